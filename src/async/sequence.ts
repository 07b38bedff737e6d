/** Runs steps one after another, in the order in which they were given; a step that fails does not stop the next. */
export type Sequence = <T>(step: () => Promise<T> | T) => Promise<T>;

/** No step begins before the one before it has ended, nor before the caller has returned. */
export function createSequence(): Sequence {
  let last: Promise<unknown> = Promise.resolve();
  return (step) => {
    const run = last.then(step);
    last = run.catch(() => undefined);
    return run;
  };
}

/** Calls that wait for their turn share one run of `work`: it begins after all of them. */
export function createSharedStep<T>(inTurn: Sequence, work: () => Promise<T>): () => Promise<T> {
  let waiting: Promise<T> | undefined;
  return () =>
    (waiting ??= inTurn(() => {
      waiting = undefined;
      return work();
    }));
}
