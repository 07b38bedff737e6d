/** Questions of the primary to its workers. */
import type { FromWorker } from './messages.ts';
import type { Worker } from './supervisor.ts';

export interface Questions {
  /** @returns undefined when no answer comes in time */
  ask(worker: Worker, what: 'metrics' | 'health'): Promise<FromWorker | undefined>;
  /** To be called with each answer. */
  answered(message: Extract<FromWorker, { readonly kind: 'metrics' | 'health' }>): void;
}

export function createQuestions(timeoutMs: number): Questions {
  const open = new Map<number, (answer: FromWorker | undefined) => void>();
  let last = 0;
  return {
    async ask(worker, what) {
      last += 1;
      const id = last;
      const answer = Promise.withResolvers<FromWorker | undefined>();
      open.set(id, answer.resolve);
      const limit = setTimeout(() => answer.resolve(undefined), timeoutMs);
      worker.process.send({ kind: 'ask', id, what });
      try {
        return await answer.promise;
      } finally {
        clearTimeout(limit);
        open.delete(id);
      }
    },
    answered(message) {
      open.get(message.id)?.(message);
    },
  };
}
