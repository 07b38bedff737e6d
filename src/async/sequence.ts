/** Runs steps one after another, in the order of the calls. A failed step does not prevent the next step. */
export type Sequence = <T>(step: () => Promise<T> | T) => Promise<T>;

/** Creates a sequence. Each step starts asynchronously, after the previous step has settled. */
export function createSequence(): Sequence {
  let last: Promise<unknown> = Promise.resolve();
  return (step) => {
    const run = last.then(step);
    last = run.catch(() => undefined);
    return run;
  };
}

/**
 * Creates a function that queues `work`. While a run is queued, further calls do not queue another run, but return the
 * result of the queued run.
 */
export function createSharedStep<T>(inTurn: Sequence, work: () => Promise<T>): () => Promise<T> {
  let waiting: Promise<T> | undefined;
  return () =>
    (waiting ??= inTurn(() => {
      waiting = undefined;
      return work();
    }));
}
