/**
 * One access event for one viewing. A page that is open asks again and again: for pieces of a recording, for its state,
 * for the newest recordings. The first question is written down before it is answered; the same person's same question
 * is the same viewing until it has not been asked for a while, or the viewing has become long.
 */
export interface ViewingLimits {
  /** A question after such a silence is a new viewing. */
  readonly silenceMs: number;
  /** And one that lasts longer is written down again. */
  readonly longestMs: number;
  /** Viewings known at a time; the oldest is forgotten first, which costs one event more. */
  readonly max: number;
}

const VIEWING_LIMITS: ViewingLimits = {
  silenceMs: 10 * 60_000,
  longestMs: 60 * 60_000,
  max: 10_000,
};

export interface Viewings {
  /**
   * @param key who asks for what; equal for the questions of one viewing.
   * @param record writes the event down.
   * @returns when it is written down. Rejects when it could not be: then the next question tries again.
   */
  once(key: string, record: () => Promise<void>): Promise<void>;
}

interface Viewing {
  readonly since: number;
  last: number;
  readonly recorded: Promise<void>;
}

/** @param nowMs milliseconds since the epoch. */
export function createViewings(nowMs: () => number, limits: ViewingLimits = VIEWING_LIMITS): Viewings {
  const known = new Map<string, Viewing>();
  return {
    once(key, record) {
      const now = nowMs();
      const viewing = known.get(key);
      const goesOn =
        viewing !== undefined &&
        Math.abs(now - viewing.last) < limits.silenceMs &&
        Math.abs(now - viewing.since) < limits.longestMs;
      if (goesOn) {
        viewing.last = now;
        return viewing.recorded;
      }
      const recorded = record();
      const fresh: Viewing = { since: now, last: now, recorded };
      known.delete(key);
      const [oldest] = known.keys();
      if (known.size >= limits.max && oldest !== undefined) known.delete(oldest);
      known.set(key, fresh);
      recorded.catch(() => {
        if (known.get(key) === fresh) known.delete(key);
      });
      return recorded;
    },
  };
}
