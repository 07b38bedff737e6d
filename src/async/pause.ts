import { systemTimer, type Timer } from './timer.ts';

/**
 * Resolves after `delayMs`, or immediately if the signal aborts. Never rejects.
 *
 * @returns false if the signal ended the pause
 */
export function pause(delayMs: number, signal: AbortSignal, timer: Timer = systemTimer): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(false);
      return;
    }
    const finish = (): void => {
      cancel();
      signal.removeEventListener('abort', finish);
      resolve(!signal.aborted);
    };
    const cancel = timer.schedule(delayMs, finish);
    signal.addEventListener('abort', finish, { once: true });
  });
}
