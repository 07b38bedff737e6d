/** How many people may ask at a time: all together, and from one node. */
import { TailcastError } from '../errors.ts';

export interface Places {
  /** @returns gives the place back; to be called once @throws TailcastError `OVERLOADED` */
  take(nodeId: string): () => void;
}

export function createPlaces(limits: { readonly total: number; readonly perNode: number }): Places {
  const taken = new Map<string, number>();
  let total = 0;
  return {
    take(nodeId) {
      const own = taken.get(nodeId) ?? 0;
      if (total >= limits.total) throw new TailcastError('OVERLOADED', 'too many people look at recordings');
      if (own >= limits.perNode)
        throw new TailcastError('OVERLOADED', 'your node looks at too many recordings');
      total += 1;
      taken.set(nodeId, own + 1);
      return () => {
        total -= 1;
        const left = (taken.get(nodeId) ?? 1) - 1;
        if (left === 0) taken.delete(nodeId);
        else taken.set(nodeId, left);
      };
    },
  };
}
