/** How many people may ask at a time: all together, and from one node. */
import { TailcastError } from '../errors.ts';
import { createPlaceCount } from '../place-count.ts';

export interface Places {
  /** @returns gives the place back, once @throws TailcastError `OVERLOADED` */
  take(nodeId: string): () => void;
}

export function createPlaces(limits: { readonly total: number; readonly perNode: number }): Places {
  const taken = createPlaceCount();
  return {
    take(nodeId) {
      if (taken.total >= limits.total)
        throw new TailcastError('OVERLOADED', 'too many people look at recordings');
      if (taken.takenBy(nodeId) >= limits.perNode)
        throw new TailcastError('OVERLOADED', 'your node looks at too many recordings');
      return taken.take(nodeId);
    },
  };
}
