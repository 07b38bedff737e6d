/** Waiting for work, but not for ever. */
import { systemTimer, type Timer } from './timer.ts';

/**
 * Waits for `work`, at most `ms` and until `signal` aborts. The loser is told by the signal it was given.
 *
 * @throws what `work` threw, the signal's reason, or an Error saying that `what` took too long
 */
export async function within<T>(
  ms: number,
  what: string,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
  timer: Timer = systemTimer,
): Promise<T> {
  signal?.throwIfAborted();
  const stop = new AbortController();
  const late = Promise.withResolvers<never>();
  const give = (reason: unknown): void => {
    stop.abort(reason);
    late.reject(reason);
  };
  const onAbort = (): void => give(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  const cancel = timer.schedule(ms, () => give(new Error(`${what} took longer than ${ms} ms`)));
  try {
    return await Promise.race([work(stop.signal), late.promise]);
  } finally {
    cancel();
    signal?.removeEventListener('abort', onAbort);
  }
}

/**
 * Waits for `promise` until `signal` aborts. What it stands for goes on.
 *
 * @throws what the promise was rejected with, or the signal's reason
 */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/**
 * Waits until `promise` is settled, at most `ms`.
 *
 * @returns whether it was in time
 * @throws what the promise was rejected with in time
 */
export async function settledWithin(
  ms: number,
  promise: Promise<unknown>,
  timer: Timer = systemTimer,
): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const cancel = timer.schedule(ms, () => late.resolve(false));
  try {
    return await Promise.race([promise.then(() => true), late.promise]);
  } finally {
    cancel();
  }
}
