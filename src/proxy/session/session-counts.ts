/** Limits the number of upgraded connections in total and per user. */
import { TailcastError } from '../../errors.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';

/** Counter of upgraded connections. */
export type SessionCounts = ReturnType<typeof createSessionCounts>;

export function createSessionCounts(limits: { readonly perUser: number; readonly total: number }) {
  const open = createKeyedCounter();
  return {
    /**
     * Counts a connection. Returns a function that ends the count; call it once.
     * @throws TailcastError `OVERLOADED`
     */
    async enter(user: string): Promise<() => void> {
      const own = open.usedBy(user);
      if (own >= limits.perUser) {
        throw new TailcastError('OVERLOADED', `you have ${own} sessions open, which is the limit`);
      }
      if (open.total >= limits.total) {
        throw new TailcastError('OVERLOADED', `${open.total} sessions are open, which is the limit`);
      }
      return open.take(user);
    },
  };
}
