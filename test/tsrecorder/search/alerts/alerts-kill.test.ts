import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it } from 'vitest';
import { createRig, HEADER, openUpload, uploadWhole } from '../../recorder-rig.ts';
import { openReceiver } from './webhook-receiver.ts';

interface Recorder {
  readonly child: ChildProcess;
  readonly url: string;
  readonly steps: readonly string[];
  /** Resolves when the process has reached this step `times` times, or has exited. */
  reached(step: string, times: number): Promise<void>;
  /** Resolves when the process and its index processes have exited, because their common standard error then ends. */
  readonly over: Promise<unknown>;
}

async function start(
  directory: string,
  webhook: string,
  kill: number,
  name = '',
): Promise<Recorder | undefined> {
  const child = fork(
    join(import.meta.dirname, 'alerts-recorder-process.ts'),
    [directory, webhook, String(kill), name],
    { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], execArgv: ['--disable-warning=ExperimentalWarning'] },
  );
  const steps: string[] = [];
  const listening = Promise.withResolvers<string | undefined>();
  child.stderr!.pipe(process.stderr, { end: false });
  const over = once(child, 'close');
  const exited = once(child, 'exit').then(() => listening.resolve(undefined));
  let wake = Promise.withResolvers<void>();
  createInterface({ input: child.stdout! }).on('line', (line) => {
    if (line.startsWith('url ')) listening.resolve(line.slice(4));
    else steps.push(line);
    wake.resolve();
    wake = Promise.withResolvers();
  });
  const url = await listening.promise;
  if (url === undefined) return undefined;
  return {
    child,
    url,
    steps,
    async reached(step, times) {
      const count = (): number => steps.filter((found) => found === step).length;
      while (child.exitCode === null && child.signalCode === null && count() < times)
        await Promise.race([wake.promise, exited]);
    },
    over,
  };
}

async function end({ child, over }: Recorder): Promise<void> {
  child.kill('SIGKILL');
  await over;
}

const STEPS = ['matched', 'recorded', 'claiming', 'sending', 'taken', 'marked', 'settled'];

describe('a recorder that is killed while it creates an alert', () => {
  it.each([
    [0, 'matched', 'runs'],
    [0, 'matched', 'is over'],
    [1, 'recorded', 'is over'],
    [2, 'claiming', 'runs'],
    [3, 'sending', 'runs'],
    [4, 'taken', 'is over'],
    [5, 'marked', 'runs'],
    [6, 'settled', 'runs'],
  ] as const)(
    'sends it after the restart, with one id: at step %d (%s), of a session that %s',
    { timeout: 120_000 },
    async (kill, step, state) => {
      await using receiver = await openReceiver();
      const directory = await mkdtemp(join(tmpdir(), 'tailcast-alerts-'));
      const started: Recorder[] = [];
      try {
        const killed = (await start(directory, receiver.url, kill))!;
        started.push(killed);
        const upload = openUpload(killed);
        upload.headers.catch(() => undefined);
        upload.over.catch(() => undefined);
        upload.write(`${HEADER}[1.5,"o","a needle\\r\\n"]\n`);
        if (state === 'is over') upload.end();
        await killed.reached('its end', 1);
        upload.close();
        expect([killed.child.signalCode, killed.steps], step).toEqual(['SIGKILL', STEPS.slice(0, kill)]);
        expect(receiver.received).toHaveLength(kill < 4 ? 0 : 1);
        const next = (await start(directory, receiver.url, -1))!;
        started.push(next);
        const delivered = step === 'settled' ? 0 : 1;
        await next.reached('settled', delivered);
        // the recorder also sends an alert about a later session
        const other = openUpload(next);
        other.write(`${HEADER}[1.5,"o","another needle\\r\\n"]\n`);
        other.end();
        await next.reached('settled', delivered + 1);
        other.close();
        await end(next);
        const sessions = Map.groupBy(receiver.received, ({ data }) => data.recording['id']);
        expect(sessions.size).toBe(2);
        for (const all of sessions.values()) expect(new Set(all.map(({ id }) => id)).size).toBe(1);
        // the first alert is sent twice if the recorder was killed before it knew the result
        expect([...sessions.values()].map(({ length }) => length)).toEqual([step === 'taken' ? 2 : 1, 1]);
      } finally {
        for (const recorder of started) await end(recorder);
      }
    },
  );
});

describe('a recorder that is killed while it sends an alert', () => {
  it.each([
    [3, 'sending', 1],
    [4, 'taken', 2],
    [5, 'marked', 1],
  ] as const)(
    'leaves it to another recorder of the store, with the same id: at step %d (%s)',
    { timeout: 120_000 },
    async (kill, _step, delivered) => {
      await using receiver = await openReceiver();
      const directory = await mkdtemp(join(tmpdir(), 'tailcast-alerts-'));
      const started: Recorder[] = [];
      try {
        const plain = await createRig({}, directory);
        await uploadWhole(plain.recorder, `${HEADER}[1.5,"o","a needle\\r\\n"]\n`);
        await plain.recorder.close();
        const killed = (await start(directory, receiver.url, kill, 'one'))!;
        started.push(killed);
        await killed.reached('its end', 1);
        expect([killed.child.signalCode, killed.steps]).toEqual(['SIGKILL', STEPS.slice(0, kill)]);
        const other = (await start(directory, receiver.url, -1, 'two'))!;
        started.push(other);
        await other.reached('settled', 1);
        // if the first recorder was killed with a claim, the other recorder tries again until the claim has expired
        const looks = other.steps.filter((step) => step === 'claiming').length;
        expect(looks > 1).toBe(kill < 5);
        expect(receiver.received).toHaveLength(delivered);
        const again = (await start(directory, receiver.url, -1, 'one'))!;
        started.push(again);
        await again.reached('settled', 1);
        expect(again.steps).not.toContain('sending');
        expect(receiver.received).toHaveLength(delivered);
        expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(1);
      } finally {
        for (const recorder of started) await end(recorder);
        for (const name of ['', '.spool', '.one', '.two'])
          await rm(`${directory}${name}`, { recursive: true, force: true });
      }
    },
  );
});
