import { beforeEach, describe, expect, it, vi } from 'vitest';
import { createBackoff } from '../../src/async/backoff.ts';
import { pause } from '../../src/async/pause.ts';
import { settledWithin, unlessAborted, withTimeout } from '../../src/async/with-timeout.ts';
import { createFakeClock, settle, type FakeClock } from '../operator/fake-clock.ts';

let clock: FakeClock;
let abort: AbortController;
beforeEach(() => {
  clock = createFakeClock();
  abort = new AbortController();
});

/** Observes a promise. `seen` returns the value or the error of the promise, or `waiting` while it is pending. */
function watch<T>(promise: Promise<T>): { readonly seen: () => T | Error | 'waiting' } {
  let seen: T | Error | 'waiting' = 'waiting';
  promise.then(
    (value) => (seen = value),
    (error: unknown) => (seen = error as Error),
  );
  return { seen: () => seen };
}

describe('a pause', () => {
  it('ends when its time is over, not before', async () => {
    const { seen } = watch(pause(100, abort.signal, clock));
    await clock.advance(99);
    expect(seen()).toBe('waiting');
    await clock.advance(1);
    expect(seen()).toBe(true);
  });

  it('ends with the signal, and leaves no timer behind', async () => {
    const { seen } = watch(pause(100, abort.signal, clock));
    abort.abort();
    await settle();
    expect(seen()).toBe(false);
    expect(clock.nextInMs).toBeUndefined();
    expect(await pause(100, abort.signal, clock)).toBe(false);
  });
});

describe('work with a time limit', () => {
  it('gives what the work gives, and leaves no timer behind', async () => {
    expect(await withTimeout(100, 'work', abort.signal, async () => 'done', clock)).toBe('done');
    await expect(
      withTimeout(100, 'work', undefined, () => Promise.reject(new Error('broken')), clock),
    ).rejects.toThrow('broken');
    expect(clock.nextInMs).toBeUndefined();
  });

  it('fails when the time is over, and tells the work so', async () => {
    let given: AbortSignal | undefined;
    const { seen } = watch(
      withTimeout(
        100,
        'asking',
        abort.signal,
        (signal) => {
          given = signal;
          return new Promise<never>(() => undefined);
        },
        clock,
      ),
    );
    await clock.advance(99);
    expect(seen()).toBe('waiting');
    expect(given?.aborted).toBe(false);
    await clock.advance(1);
    expect(seen()).toEqual(new Error('asking took longer than 100 ms'));
    expect(given?.aborted).toBe(true);
  });

  it('fails with the reason of the signal, before and while it works', async () => {
    const forever = (): Promise<never> => new Promise<never>(() => undefined);
    const { seen } = watch(withTimeout(100, 'work', abort.signal, forever, clock));
    abort.abort(new Error('gone'));
    await settle();
    expect(seen()).toEqual(new Error('gone'));
    expect(clock.nextInMs).toBeUndefined();
    let begun = false;
    const late = async (): Promise<void> => void (begun = true);
    await expect(withTimeout(100, 'work', abort.signal, late, clock)).rejects.toThrow('gone');
    expect(begun).toBe(false);
  });
});

describe('a promise with a time limit', () => {
  it('tells whether it was in time', async () => {
    expect(await settledWithin(100, Promise.resolve('x'), clock)).toBe(true);
    const { seen } = watch(settledWithin(100, new Promise(() => undefined), clock));
    await clock.advance(99);
    expect(seen()).toBe('waiting');
    await clock.advance(1);
    expect(seen()).toBe(false);
  });

  it('fails as it does', async () => {
    await expect(settledWithin(100, Promise.reject(new Error('broken')), clock)).rejects.toThrow('broken');
    expect(clock.nextInMs).toBeUndefined();
  });
});

describe('a promise with a signal', () => {
  it('gives what it gives, and listens to the signal no more', async () => {
    const removed = vi.spyOn(abort.signal, 'removeEventListener');
    expect(await unlessAborted(Promise.resolve('done'), abort.signal)).toBe('done');
    await expect(unlessAborted(Promise.reject(new Error('broken')), abort.signal)).rejects.toThrow('broken');
    expect(removed).toHaveBeenCalledTimes(2);
  });

  it('fails with the reason of the signal, before and while it is waited for', async () => {
    const { seen } = watch(unlessAborted(new Promise(() => undefined), abort.signal));
    await settle();
    expect(seen()).toBe('waiting');
    abort.abort(new Error('left'));
    await settle();
    expect(seen()).toEqual(new Error('left'));
    await expect(unlessAborted(new Promise(() => undefined), abort.signal)).rejects.toThrow('left');
  });
});

describe('back-off', () => {
  it('doubles up to the longest, and begins again after a success', () => {
    const backoff = createBackoff({ baseMs: 100, maxMs: 500 });
    expect([1, 2, 3, 4, 5].map(() => backoff.next())).toEqual([100, 200, 400, 500, 500]);
    backoff.reset();
    expect(backoff.next()).toBe(100);
  });

  it('is shortened by up to half', () => {
    const values = [0, 0.5, 1];
    const backoff = createBackoff({ baseMs: 100, maxMs: 100 }, () => values.shift() ?? 0);
    expect([1, 2, 3].map(() => backoff.next())).toEqual([100, 75, 50]);
  });

  it('stays finite after a year of failures', () => {
    const backoff = createBackoff({ baseMs: 1, maxMs: 1e15 });
    for (let failures = 0; failures < 5000; failures += 1) backoff.next();
    expect(backoff.next()).toBe(2 ** 30);
  });
});
