import { BoundedMap } from '../../bounded-map.ts';

/**
 * Limits of viewings. All requests of a viewing cause one access event. An open page sends repeated requests: for
 * chunks of a recording, for its state, and for the newest recordings. The access event of the first request is stored
 * before the response. Requests of the same viewer for the same content belong to one viewing. A viewing ends after
 * `silenceMs` without requests, or after `longestMs`.
 */
const VIEWING_LIMITS = {
  /** Pause after which a request starts a new viewing, in milliseconds. */
  silenceMs: 10 * 60_000,
  /** Maximum duration of a viewing, in milliseconds. After this time, the next request causes a new access event. */
  longestMs: 60 * 60_000,
  /**
   * Maximum number of remembered viewings. The oldest viewing is dropped first. If a dropped viewing continues, its
   * next request causes one additional event.
   */
  max: 10_000,
};
export type ViewingLimits = Readonly<typeof VIEWING_LIMITS>;

interface Viewing {
  readonly since: number;
  last: number;
  readonly recorded: Promise<void>;
}

/** Creates the access events of viewings. @param nowMs returns milliseconds since the epoch */
export function createViewings(nowMs: () => number, limits: ViewingLimits = VIEWING_LIMITS) {
  const known = new BoundedMap<Viewing>(limits.max);
  return {
    /**
     * Stores one event per viewing.
     *
     * @param key viewer and content; equal for all requests of one viewing
     * @param record stores the event
     * @returns a promise that resolves when the event is durable. After a failure, the next request stores the event
     */
    once(key: string, record: () => Promise<void>): Promise<void> {
      const now = nowMs();
      const viewing = known.get(key);
      const isContinued =
        viewing !== undefined &&
        Math.abs(now - viewing.last) < limits.silenceMs &&
        Math.abs(now - viewing.since) < limits.longestMs;
      if (isContinued) {
        viewing.last = now;
        return viewing.recorded;
      }
      const recorded = record();
      const fresh: Viewing = { since: now, last: now, recorded };
      known.set(key, fresh);
      recorded.catch(() => {
        if (known.get(key) === fresh) known.delete(key);
      });
      return recorded;
    },
  };
}
