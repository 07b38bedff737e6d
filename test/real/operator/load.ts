/**
 * Opens one connection after the other from inside a pod's network, several at a time, until it is told to end; then
 * prints how many were answered and what went wrong with the others.
 *
 *   node load.ts <url> <at a time> <at least>
 */
import { get } from 'node:http';

const [url = '', parallel = '', least = ''] = process.argv.slice(2);
const LIMIT_MS = 10_000;
const result = {
  meanwhile: 0,
  done: 0,
  failed: 0,
  errors: {} as Record<string, number>,
  names: {} as Record<string, number>,
};
let ending = false;
process.once('SIGTERM', () => {
  ending = true;
  result.meanwhile = result.done;
});

function ask(): Promise<string> {
  return new Promise((done, fail) => {
    const request = get(url, { agent: false, timeout: LIMIT_MS }, (response) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += String(chunk)));
      response.on('end', () => done((JSON.parse(text) as { name: string }).name));
      response.on('error', fail);
    });
    request.on('timeout', () => request.destroy(new Error('no answer in time')));
    request.on('error', fail);
  });
}

async function work(): Promise<void> {
  while (!ending || result.done < Number(least)) {
    try {
      const name = await ask();
      result.done += 1;
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
