/**
 * Measures how long output continues after Ctrl-C. A program floods a slow terminal with `kubectl exec -it` against a
 * real API server: directly and through the gateway, in turn.
 *
 *   node test/real/load/interrupt.ts [--runs 5] [--rate 1500000] [--seconds 4] [--ways direct,unrecorded,recorded] [--transport websocket]
 *
 * `--rate`: bytes a second that the terminal takes; `--seconds`: how long before Ctrl-C. Prints each run, the median
 * of each path, and the median of the difference from the direct run of the same turn.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { spawn } from '@lydell/node-pty';
import { environmentFor, findKubectls, type Kubectl, type Transport } from '../rig/kubectl.ts';
import { createRig } from '../rig/rig.ts';
import { WAYS, type Way } from './cells.ts';
import { POD, startLoadSite } from './site.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '5' },
    rate: { type: 'string', default: '1500000' },
    seconds: { type: 'string', default: '4' },
    ways: { type: 'string', default: 'direct,unrecorded,recorded' },
    transport: { type: 'string', default: 'websocket' },
  },
});

/** Last output of the shell after the flood. */
const LAST = 'the-flood-is-over';
const FLOOD = `trap : INT; yes 'the quick brown fox jumps over the lazy dog and comes back again'; echo ${LAST}`;
const TIMEOUT_MS = 120_000;
/** Number of output characters that are kept for error messages. The limit is longer than `LAST`. */
const TAIL_CHARACTERS = 300;

interface Interrupted {
  readonly seconds: number;
  /** Bytes after Ctrl-C. */
  readonly bytes: number;
}

interface Client {
  readonly kubectl: Kubectl;
  readonly transport: Transport;
  readonly kubeconfig: string;
}

async function interrupt(client: Client, rate: number, floodMs: number): Promise<Interrupted> {
  const { kubectl, transport, kubeconfig } = client;
  const terminal = spawn(kubectl.path, ['exec', '-it', POD, '--', 'sh', '-c', FLOOD], {
    name: 'xterm',
    env: environmentFor({ kubeconfig, transport }),
  });
  const begun = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  let tail = '';
  let bytes = 0;
  let dueMs = performance.now();
  terminal.onData((text) => {
    begun.resolve();
    bytes += text.length;
    const joined = tail + text;
    // The terminal does not echo commands, so the word appears once.
    if (joined.includes(LAST)) over.resolve();
    tail = joined.slice(-TAIL_CHARACTERS);
    dueMs = Math.max(dueMs, performance.now()) + (text.length / rate) * 1000;
    terminal.pause();
    setTimeout(() => terminal.resume(), Math.max(0, dueMs - performance.now()));
  });
  // A lost connection also ends the output; kubectl has printed the reason.
  terminal.onExit(({ exitCode }) => {
    begun.reject(new Error(`kubectl ended with ${exitCode}: ${tail}`));
    over.resolve();
  });
  const late = setTimeout(() => terminal.kill('SIGKILL'), TIMEOUT_MS);
  try {
    await begun.promise;
    await delay(floodMs);
    const before = bytes;
    const pressedMs = performance.now();
    terminal.write('\u0003');
    await over.promise;
    return { seconds: (performance.now() - pressedMs) / 1000, bytes: bytes - before };
  } finally {
    clearTimeout(late);
    terminal.resume();
    terminal.kill('SIGKILL');
  }
}

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((left, right) => left - right);
  const [low = NaN, high = NaN] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return (low + high) / 2;
}

async function main(): Promise<void> {
  const ways = values.ways.split(',').map((name) => {
    const way = WAYS.find((known) => known === name);
    if (way === undefined) throw new TypeError(`${name} is none of ${WAYS.join(', ')}`);
    return way;
  });
  const transport: Transport = values.transport === 'spdy' ? 'spdy' : 'websocket';
  const kubectl = (await findKubectls()).at(-1);
  if (kubectl === undefined) throw new Error('there is no kubectl');
  const rig = createRig();
  const results = new Map<Way, Interrupted[]>(ways.map((way) => [way, []]));
  try {
    const site = await startLoadSite(rig);
    for (let run = 0; run < Number(values.runs); run += 1) {
      for (const way of ways) {
        const { kubeconfig, recorder } = await site.way(way, 'idle');
        const result = await interrupt(
          { kubectl, transport, kubeconfig },
          Number(values.rate),
          Number(values.seconds) * 1000,
        );
        recorder?.forget();
        results.get(way)?.push(result);
        process.stdout.write(
          `${way}: ${result.seconds.toFixed(2)} s, ${(result.bytes / 1e6).toFixed(1)} MB\n`,
        );
      }
    }
  } finally {
    await rig.stop();
  }
  const direct = results.get('direct') ?? [];
  for (const [way, runs] of results) {
    const more = runs.flatMap(({ seconds }, run) => {
      const control = direct[run];
      return control === undefined ? [] : [seconds - control.seconds];
    });
    process.stdout.write(
      `${way}: median ${median(runs.map(({ seconds }) => seconds)).toFixed(2)} s, ${median(more).toFixed(2)} s ` +
        `more than direct [${Math.min(...more).toFixed(2)} to ${Math.max(...more).toFixed(2)}]\n`,
    );
  }
}

await main();
