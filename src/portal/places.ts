/** Limits concurrent requests to recorders, in total and per tailnet node. */
import { TailcastError } from '../errors.ts';
import { createKeyedCounter } from '../keyed-counter.ts';

export interface Places {
  /**
   * Takes a slot. @returns a function that releases the slot; only the first call has an effect @throws
   * TailcastError `OVERLOADED`
   */
  take(nodeId: string): () => void;
}

export function createPlaces(limits: { readonly total: number; readonly perNode: number }): Places {
  const taken = createKeyedCounter();
  return {
    take(nodeId) {
      if (taken.usedBy(nodeId) >= limits.perNode)
        throw new TailcastError('OVERLOADED', 'your node has too many open recordings');
      if (!taken.hasShare(nodeId, limits.total))
        throw new TailcastError('OVERLOADED', 'too many recordings are open');
      return taken.take(nodeId);
    },
  };
}
