/** Timeouts for asynchronous work. */
import { once } from 'node:events';
import { systemTimer, type Timer } from './timer.ts';

/**
 * Waits for `work` until `ms` have passed or `signal` aborts. If `work` is not complete by then, aborts the signal that
 * `work` received.
 *
 * @throws the error of `work`, the reason of the signal, or an Error that contains `what` if the time is over
 */
export async function withTimeout<T>(
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
 * Waits for `promise` until `signal` aborts. Does not stop the work behind the promise.
 *
 * @throws the rejection of the promise, or the reason of the signal
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

/** Resolves when `signal` aborts. */
export async function untilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

/**
 * Waits at most `ms` until `promise` is settled.
 *
 * @returns true if it settled in time
 * @throws the rejection of the promise, if it rejected in time
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
