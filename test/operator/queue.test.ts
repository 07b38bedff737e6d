import { describe, expect, it } from 'vitest';
import { WorkQueue } from '../../src/operator/queue.ts';
import { createFakeClock, settle, type FakeClock } from './fake-clock.ts';

interface Work {
  readonly queue: WorkQueue;
  readonly clock: FakeClock;
  readonly started: string[];
  readonly failures: { readonly key: string; readonly retryInMs: number }[];
  /** Completes the oldest pending work of the key. */
  finish(key: string, result?: number | Error): Promise<void>;
  stop(): Promise<void>;
}

function start(workers = 2, shareOf?: (key: string) => string): Work {
  const clock = createFakeClock();
  const abort = new AbortController();
  const started: string[] = [];
  const failures: { key: string; retryInMs: number }[] = [];
  const open = new Map<string, { resolve(result?: number): void; reject(error: Error): void }>();
  const queue = new WorkQueue({
    workers,
    ...(shareOf === undefined ? {} : { shareOf }),
    clock,
    random: () => 0,
    retry: { baseMs: 100, maxMs: 1000 },
    onFailure: (key, _error, retryInMs) => failures.push({ key, retryInMs }),
    handle(key) {
      expect(open.has(key)).toBe(false);
      started.push(key);
      return new Promise<number | undefined>((resolve, reject) => open.set(key, { resolve, reject }));
    },
  });
  const running = queue.run(abort.signal);
  return {
    queue,
    clock,
    started,
    failures,
    async finish(key, result) {
      const work = open.get(key)!;
      open.delete(key);
      if (result instanceof Error) work.reject(result);
      else work.resolve(result);
      await settle();
    },
    async stop() {
      abort.abort();
      for (const work of open.values()) work.resolve();
      await running;
    },
  };
}

describe('the work queue', () => {
  it('holds a key once however often it is added', async () => {
    const work = start(1);
    work.queue.add('a');
    for (const key of ['b', 'b', 'b', 'c']) work.queue.add(key);
    expect(work.queue.size).toBe(3);
    await work.finish('a');
    await work.finish('b');
    await work.finish('c');
    expect(work.started).toEqual(['a', 'b', 'c']);
    await work.stop();
  });

  it('never works on a key twice at the same time, and does it again when it was added meanwhile', async () => {
    const work = start(4);
    work.queue.add('a');
    work.queue.add('a');
    work.queue.add('a');
    await settle();
    expect(work.started).toEqual(['a']);
    await work.finish('a');
    expect(work.started).toEqual(['a', 'a']);
    await work.finish('a');
    expect(work.started).toEqual(['a', 'a']);
    await work.stop();
  });

  it('works on as many keys at once as it is told', async () => {
    const work = start(2);
    for (const key of ['a', 'b', 'c']) work.queue.add(key);
    expect(work.started).toEqual(['a', 'b']);
    await work.finish('b');
    expect(work.started).toEqual(['a', 'b', 'c']);
    await work.stop();
  });

  it('leaves workers to others while one namespace has much work', async () => {
    const work = start(4, (key) => key.split('/')[0] ?? key);
    for (let at = 0; at < 10; at += 1) work.queue.add(`evil/${at}`);
    expect(work.started).toEqual(['evil/0', 'evil/1']);
    work.queue.add('prod/0');
    expect(work.started.at(-1)).toBe('prod/0');
    await work.finish('evil/0');
    expect(work.started.at(-1)).toBe('evil/2');
    await work.finish('prod/0');
    work.queue.add('shop/0');
    expect(work.started.at(-1)).toBe('shop/0');
    await work.stop();
  });

  it('tries what failed again after a delay that doubles up to a limit, and forgets that after a success', async () => {
    const work = start();
    work.queue.add('a');
    for (let attempt = 0; attempt < 6; attempt += 1) {
      await work.finish('a', new Error('no'));
      await work.clock.advance(work.clock.nextInMs!);
    }
    expect(work.failures.map(({ retryInMs }) => retryInMs)).toEqual([100, 200, 400, 800, 1000, 1000]);
    await work.finish('a');
    expect(work.clock.nextInMs).toBeUndefined();
    work.queue.add('a');
    await work.finish('a', new Error('no'));
    expect(work.failures.at(-1)?.retryInMs).toBe(100);
    await work.stop();
  });

  it('does not let one key’s failures hold up another', async () => {
    const work = start(1);
    work.queue.add('bad');
    await work.finish('bad', new Error('no'));
    work.queue.add('good');
    expect(work.started).toEqual(['bad', 'good']);
    await work.stop();
  });

  it('comes back to a key when its work asked for that, or earlier when it is added', async () => {
    const work = start();
    work.queue.add('a');
    await work.finish('a', 5000);
    await work.clock.advance(4999);
    expect(work.started).toEqual(['a']);
    await work.clock.advance(1);
    expect(work.started).toEqual(['a', 'a']);
    await work.finish('a', 5000);
    work.queue.add('a');
    expect(work.started).toEqual(['a', 'a', 'a']);
    await work.finish('a');
    await work.clock.advance(10_000);
    expect(work.started).toHaveLength(3);
    await work.stop();
  });

  it('starts nothing after the signal, and ends when its work has ended', async () => {
    const work = start(1);
    work.queue.add('a');
    work.queue.add('b');
    await work.stop();
    await settle();
    expect(work.started).toEqual(['a']);
    expect(work.clock.nextInMs).toBeUndefined();
  });

  it('keeps what is added before it runs', async () => {
    const handled: string[] = [];
    const abort = new AbortController();
    const queue = new WorkQueue({
      workers: 1,
      clock: createFakeClock(),
      random: () => 0,
      onFailure: () => undefined,
      handle: async (key) => void handled.push(key),
    });
    queue.add('early');
    expect(handled).toEqual([]);
    const running = queue.run(abort.signal);
    await settle();
    expect(handled).toEqual(['early']);
    abort.abort();
    await running;
  });
});
