/**
 * Opens connections from a pod's network, several at a time, until this program receives a signal. Then the program
 * prints three numbers: responses, errors, and errors on established connections.
 *
 *   node load.ts <url> <at a time> <at least> [<time limit of each in milliseconds>]
 */
import { get } from 'node:http';

const [url = '', parallel = '', least = '', limit = '10000'] = process.argv.slice(2);
const result = {
  meanwhile: 0,
  done: 0,
  failed: 0,
  broken: 0,
  /** The longest time without a response, in milliseconds. */
  silentMs: 0,
  errors: {} as Record<string, number>,
  names: {} as Record<string, number>,
};
let ending = false;
let answeredAt = Date.now();
process.once('SIGTERM', () => {
  ending = true;
  result.meanwhile = result.done;
});

function ask(): Promise<string> {
  return new Promise((done, fail) => {
    const request = get(url, { agent: false, timeout: Number(limit) }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += String(chunk)));
      response.on('end', () => done((JSON.parse(text) as { name: string }).name));
      response.on('error', fail);
    });
    let open = false;
    request.on('socket', (socket) => socket.once('connect', () => (open = true)));
    request.on('timeout', () => request.destroy(new Error('no answer in time')));
    request.on('error', (error) => {
      if (open) result.broken += 1;
      fail(error);
    });
  });
}

async function work(): Promise<void> {
  while (!ending || result.done < Number(least)) {
    try {
      const name = await ask();
      result.done += 1;
      result.silentMs = Math.max(result.silentMs, Date.now() - answeredAt);
      answeredAt = Date.now();
      result.names[name] = (result.names[name] ?? 0) + 1;
    } catch (error) {
      const text = String(error);
      result.failed += 1;
      result.errors[text] = (result.errors[text] ?? 0) + 1;
      if (result.failed > 1000) return;
    }
  }
}

await Promise.all(Array.from({ length: Number(parallel) }, work));
process.stdout.write(JSON.stringify(result));
