/** A task that repeats for the lifetime of the process. */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';

/** Runs `step` every `intervalMs`, without overlap. Failures are logged, and the next run retries. */
export function createLoop(
  step: () => Promise<void>,
  intervalMs: number,
  log: Logger,
  onFailure: () => void,
) {
  let running: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let closed = false;

  function now(): Promise<void> {
    running ??= step()
      .catch((error: unknown) => {
        onFailure();
        log.warn({ error: errorText(error) }, 'the shared bucket could not be kept up to date');
      })
      .finally(() => {
        running = undefined;
      });
    return running;
  }

  function schedule(): void {
    timer = setTimeout(() => {
      void now().then(() => {
        if (!closed) schedule();
      });
    }, intervalMs);
  }

  return {
    start(): void {
      if (closed) return;
      void now();
      schedule();
    },
    now,
    async close(): Promise<void> {
      closed = true;
      clearTimeout(timer);
      await running;
    },
  };
}
