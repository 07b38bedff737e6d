/**
 * Which recorders take an upload over an upgraded connection, so that the next one begins with that and saves a round trip. Only what
 * has worked is believed; one that offered it and then did not answer is asked for it again after a while, as what is in between
 * may swallow it.
 */

export interface KnownUpgrades {
  /** An upload may begin with it. */
  knows(key: string): boolean;
  /** It is worth trying where it is offered. */
  mayTry(key: string): boolean;
  worked(key: string): void;
  /** It was offered, and did not work. */
  failed(key: string): void;
  forget(key: string): void;
}

/** Recorders that are remembered; beyond that the oldest is forgotten. */
const MAX_KNOWN_UPGRADES = 256;
const RETRY_MS = 60_000;

export function createKnownUpgrades(nowMs: () => number): KnownUpgrades {
  /** When it failed; `works` where it did not. */
  const known = new Map<string, number | 'works'>();
  const remember = (key: string, what: number | 'works'): void => {
    known.delete(key);
    known.set(key, what);
    if (known.size <= MAX_KNOWN_UPGRADES) return;
    for (const oldest of known.keys()) {
      known.delete(oldest);
      break;
    }
  };
  return {
    knows: (key) => known.get(key) === 'works',
    mayTry(key) {
      const what = known.get(key);
      return typeof what !== 'number' || nowMs() - what >= RETRY_MS;
    },
    worked: (key) => remember(key, 'works'),
    failed: (key) => remember(key, nowMs()),
    forget: (key) => void known.delete(key),
  };
}
