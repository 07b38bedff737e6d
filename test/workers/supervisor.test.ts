import { EventEmitter, once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { FromWorker, ToWorker } from '../../src/workers/messages.ts';
import { Supervisor, type SupervisorOptions, type WorkerExit } from '../../src/workers/supervisor.ts';

interface FakeProcess {
  readonly slot: number;
  readonly pid: number;
  readonly heard: ToWorker[];
  say(message: FromWorker): void;
  end(exit: WorkerExit): void;
}

/** Processes that come up at once unless told otherwise, and end when they are told to. */
function startRig(
  options: Partial<SupervisorOptions> & { readonly onFork?: (process: FakeProcess) => void } = {},
) {
  const forked: FakeProcess[] = [];
  const news = new EventEmitter();
  const supervisor = new Supervisor({
    count: 2,
    times: { readyMs: 5000, backoffMs: 1, maxBackoffMs: 20, stableMs: 60_000, stopMs: 5000 },
    monotonicMs: () => performance.now(),
    log: createSilentLogger(),
    onMessage: () => undefined,
    onEnd: (worker, exit, wanted) => news.emit('end', { worker, exit, wanted }),
    ...options,
    fork(slot) {
      const exited = Promise.withResolvers<WorkerExit>();
      let hear: (message: FromWorker) => void = () => undefined;
      const fake: FakeProcess = {
        slot,
        pid: forked.length + 1,
        heard: [],
        say: (message) => hear(message),
        end: exited.resolve,
      };
      forked.push(fake);
      queueMicrotask(() => {
        (options.onFork ?? ((process) => process.say({ kind: 'ready' })))(fake);
        news.emit('forked', fake);
      });
      return {
        pid: fake.pid,
        exited: exited.promise,
        send(message) {
          fake.heard.push(message);
          if (message.kind === 'stop') exited.resolve({ code: 0, signal: null });
        },
        onMessage(listener) {
          hear = listener;
        },
        kill: (signal) => exited.resolve({ code: null, signal }),
      };
    },
  });
  return { supervisor, forked, news };
}

describe('the supervisor', () => {
  it('starts the first worker alone, then the others', async () => {
    const started = Promise.withResolvers<FakeProcess>();
    const rig = startRig({
      count: 3,
      onFork: (process) => (process.pid === 1 ? started.resolve(process) : process.say({ kind: 'ready' })),
    });
    const ready = rig.supervisor.start();
    const first = await started.promise;
    expect(rig.forked.map(({ slot }) => slot)).toEqual([0]);
    first.say({ kind: 'ready' });
    await ready;
    expect(rig.forked.map(({ slot }) => slot)).toEqual([0, 1, 2]);
    expect(rig.supervisor.serving(2)?.state).toBe('ready');
    await rig.supervisor.stop();
    expect(rig.supervisor.workers).toEqual([]);
  });

  it('leaves nothing behind when a worker does not come up at the start', async () => {
    const rig = startRig({
      onFork: (process) =>
        process.pid === 1 ? process.say({ kind: 'ready' }) : process.end({ code: 1, signal: null }),
    });
    await expect(rig.supervisor.start()).rejects.toThrow(/could not be started: it ended with code 1/);
    expect(rig.supervisor.workers).toEqual([]);
    expect(rig.forked).toHaveLength(2);
  });

  it('replaces a worker that ends by itself, in its slot, and leaves the others alone', async () => {
    const rig = startRig();
    await rig.supervisor.start();
    const forked = once(rig.news, 'forked');
    rig.forked[1]!.end({ code: null, signal: 'SIGSEGV' });
    expect(((await forked)[0] as FakeProcess).slot).toBe(1);
    expect(rig.forked[0]!.heard).toEqual([]);
    await rig.supervisor.stop();
  });

  it('waits longer each time for a worker that does not come up again', async () => {
    const times: number[] = [];
    let refusals = 0;
    const rig = startRig({
      times: { readyMs: 5000, backoffMs: 10, maxBackoffMs: 60, stableMs: 60_000, stopMs: 5000 },
      onFork(process) {
        times.push(performance.now());
        if (process.pid <= 2 || refusals >= 4) return process.say({ kind: 'ready' });
        refusals += 1;
        process.end({ code: 1, signal: null });
      },
    });
    await rig.supervisor.start();
    rig.forked[0]!.end({ code: 1, signal: null });
    while (rig.forked.length < 7) await once(rig.news, 'forked');
    const pauses = times.slice(3).map((time, index) => time - times[index + 2]!);
    expect(pauses).toHaveLength(4);
    for (const [index, least] of [19, 39, 59, 59].entries()) expect(pauses[index]).toBeGreaterThan(least);
    await rig.supervisor.stop();
  });

  it('kills a worker that does not come up, and one that does not end', async () => {
    const times = { readyMs: 20, backoffMs: 1, maxBackoffMs: 20, stableMs: 60_000, stopMs: 20 };
    const mute = startRig({ times, onFork: () => undefined });
    await expect(mute.supervisor.start()).rejects.toThrow(/SIGKILL/);
  });

  it('restarts one by one: the new worker serves before the old one stops', async () => {
    const order: string[] = [];
    const rig = startRig({
      onFork(process) {
        order.push(`start ${process.slot}`);
        process.say({ kind: 'ready' });
      },
      onEnd: (worker, _exit, wanted) => order.push(`end ${worker.slot} ${String(wanted)}`),
    });
    await rig.supervisor.start();
    expect(await rig.supervisor.restart()).toBe(true);
    expect(order).toEqual(['start 0', 'start 1', 'start 0', 'end 0 true', 'start 1', 'end 1 true']);
    expect(rig.supervisor.serving(0)?.process.pid).toBe(3);
    await rig.supervisor.stop();
  });

  it('gives a restart up when a new worker does not come up, and the old ones go on', async () => {
    const rig = startRig({
      onFork: (process) =>
        process.pid <= 2 ? process.say({ kind: 'ready' }) : process.end({ code: 1, signal: null }),
    });
    await rig.supervisor.start();
    expect(await rig.supervisor.restart()).toBe(false);
    expect(rig.supervisor.serving(0)?.process.pid).toBe(1);
    expect(rig.supervisor.serving(1)?.process.pid).toBe(2);
    expect(rig.forked.slice(0, 2).flatMap(({ heard }) => heard)).toEqual([]);
    await rig.supervisor.stop();
  });

  it('hears nothing any more from a worker that has ended', async () => {
    const heard: string[] = [];
    const rig = startRig({ onMessage: (worker, { kind }) => heard.push(`${worker.slot} ${kind}`) });
    await rig.supervisor.start();
    const ended = once(rig.news, 'end');
    rig.forked[1]!.end({ code: null, signal: 'SIGKILL' });
    await ended;
    rig.forked[1]!.say({ kind: 'enter', id: 1, user: 'a', limits: { perUser: 1, total: 1 } });
    rig.forked[0]!.say({ kind: 'leave', id: 1 });
    expect(heard).toEqual(['0 ready', '1 ready', '0 leave']);
    await rig.supervisor.stop();
  });

  it('starts nothing any more once it stops', async () => {
    const rig = startRig();
    await rig.supervisor.start();
    rig.forked[0]!.end({ code: 1, signal: null });
    await rig.supervisor.stop();
    expect(await rig.supervisor.restart()).toBe(false);
    expect(rig.forked).toHaveLength(2);
  });
});
