/**
 * Handles an uncaught exception of a role, such as the gateway or the recorder. Such an exception indicates a defect.
 * It is logged and counted, and the process drains. Sessions continue until the drain limit, and new connections reach
 * another process.
 *
 * Every event callback of a request has its own error handling, which logs the id of the request. This handler does not
 * know the id of the request, because tracking ids with `AsyncLocalStorage` would slow down each request. The stack
 * trace shows the origin.
 */
import type { Counter, Registry } from 'prom-client';
import { errorText, TailcastError } from '../errors.ts';
import type { Logger } from './logger.ts';
import { createMakers } from './metric-makers.ts';

/** @param options.onFailure called once, before the drain */
export function openFatalErrors(options: {
  readonly log: Pick<Logger, 'error'>;
  readonly stop: AbortSignal;
  readonly registry?: Registry;
  readonly onFailure?: () => void;
}) {
  const { log, stop, registry, onFailure } = options;
  const failed = new AbortController();
  const counter = registry === undefined ? undefined : createExceptionCounter(registry);
  let first: { readonly thrown: unknown } | undefined;
  const onException = (thrown: unknown, origin: string): void => {
    counter?.inc();
    const stack = thrown instanceof Error ? thrown.stack : undefined;
    log.error(
      { error: errorText(thrown), origin, stack },
      'unexpected exception: the process drains and ends',
    );
    if (first !== undefined) return;
    first = { thrown };
    onFailure?.();
    failed.abort(new Error('an unexpected exception'));
  };
  // includes unhandled rejections
  process.on('uncaughtException', onException);
  return {
    /** Aborts when the process must drain, either because `stop` aborts or because of an exception. */
    signal: AbortSignal.any([stop, failed.signal]),
    /**
     * The role must call this function after the role has stopped.
     * @throws TailcastError `INTERNAL` if the role stopped because of an exception, so that the process exits with an
     * error
     */
    close(): void {
      process.off('uncaughtException', onException);
      if (first !== undefined)
        throw new TailcastError('INTERNAL', `an unexpected exception: ${errorText(first.thrown)}`, {
          cause: first.thrown,
        });
    },
  };
}

export function createExceptionCounter(registry: Registry): Counter {
  return createMakers(registry).counter(
    'tailcast_unexpected_exceptions_total',
    'Unexpected exceptions. The process then drains and exits.',
  );
}
