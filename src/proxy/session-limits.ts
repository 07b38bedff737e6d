/** How many upgraded connections there may be, from admission to end, so that one user cannot take them all. */
import { TailcastError } from '../errors.ts';

export interface SessionLimits {
  /**
   * Takes a place; the returned function gives it back, once.
   * @throws TailcastError `OVERLOADED`
   */
  enter(user: string): Promise<() => void>;
}

export function createSessionLimits(limits: {
  readonly perUser: number;
  readonly total: number;
}): SessionLimits {
  const byUser = new Map<string, number>();
  let total = 0;
  return {
    async enter(user) {
      const own = byUser.get(user) ?? 0;
      if (own >= limits.perUser) {
        throw new TailcastError('OVERLOADED', `you have ${own} sessions open, and no more are allowed`);
      }
      if (total >= limits.total) {
        throw new TailcastError('OVERLOADED', `${total} sessions are open, and no more are allowed`);
      }
      byUser.set(user, own + 1);
      total += 1;
      let left = false;
      return () => {
        if (left) return;
        left = true;
        total -= 1;
        const rest = (byUser.get(user) ?? 1) - 1;
        if (rest === 0) byUser.delete(user);
        else byUser.set(user, rest);
      };
    },
  };
}
