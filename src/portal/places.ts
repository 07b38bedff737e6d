/** Limits concurrent requests to recorders, in total and per tailnet node. */
import { TailcastError } from '../errors.ts';
import { createKeyedCounter } from '../keyed-counter.ts';

export type Places = ReturnType<typeof createPlaces>;

export function createPlaces(limits: { readonly total: number; readonly perNode: number }) {
  const taken = createKeyedCounter();
  return {
    /**
     * Takes a slot.
     * @returns a function that releases the slot; only the first call has an effect
     * @throws TailcastError `OVERLOADED`
     */
    take(nodeId: string): () => void {
      if (taken.usedBy(nodeId) >= limits.perNode)
        throw new TailcastError('OVERLOADED', 'your node has too many open recordings');
      const leave = taken.takeShare(nodeId, limits.total);
      if (leave === undefined) throw new TailcastError('OVERLOADED', 'too many recordings are open');
      return leave;
    },
  };
}
