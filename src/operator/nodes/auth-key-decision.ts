/** When a replica gets an auth key, and when a new one. Pure, but for the limiter, which counts. */
import type { StoredKey } from './specs.ts';

/** Keys are used within seconds of being made, or the pod does not start; a lost one should soon be worthless. */
export const KEY_LIFETIME_MS = 60 * 60 * 1000;
/** A key this close to its end is not handed out any more. */
const EXPIRY_MARGIN_MS = 60_000;

/** A key that is gone at the control server counts as lost only after this: its node may just be joining. */
export const SPENT_AFTER_MS = 120_000;

export type ReplaceReason = 'requested' | 'expired' | 'tags' | 'spent';

export type KeyDecision =
  | { readonly kind: 'keep' }
  | { readonly kind: 'none' }
  | { readonly kind: 'create' }
  /** `requested`: its node cannot log in any more, and is removed first. */
  | { readonly kind: 'replace'; readonly reason: ReplaceReason };

/** What is known about one replica's key. */
export interface KeyFacts {
  /** The key in the auth Secret; undefined or an empty key when there is none. */
  readonly stored: StoredKey | undefined;
  /** The node of the replica, as far as it exists. */
  readonly deviceId: string | undefined;
  /** The key that the pod says it cannot log in with. */
  readonly brokenKey: string | undefined;
  readonly tags: readonly string[];
  /** The control server does not take the stored key any more. */
  readonly spent: boolean;
  readonly nowMs: number;
}

/**
 * A pod's request is heeded when the key it names is the one that is stored, or none is: otherwise a newer key is on its
 * way to it. Without a request, a replica that has no node needs a key that works and carries the wanted tags.
 */
export function decideKey({ stored, deviceId, brokenKey, ...facts }: KeyFacts): KeyDecision {
  const key = stored?.key ?? '';
  if (brokenKey !== undefined && (key === '' || key === brokenKey)) {
    return { kind: 'replace', reason: 'requested' };
  }
  if (deviceId !== undefined) return key === '' ? { kind: 'none' } : { kind: 'keep' };
  if (stored === undefined || key === '') return { kind: 'create' };
  const reason = fault(stored, facts);
  return reason === undefined ? { kind: 'keep' } : { kind: 'replace', reason };
}

function fault(
  stored: StoredKey,
  { tags, spent, nowMs }: Pick<KeyFacts, 'tags' | 'spent' | 'nowMs'>,
): ReplaceReason | undefined {
  if (spent) return 'spent';
  if (stored.expiresAtMs !== undefined && stored.expiresAtMs - EXPIRY_MARGIN_MS <= nowMs) return 'expired';
  return stored.tags !== undefined && stored.tags.join(',') !== tags.join(',') ? 'tags' : undefined;
}

/** One reissue per 30 s, and as many at once as there are replicas. */
export class ReissueLimiter {
  readonly #burst: number;
  readonly #intervalMs: number;
  readonly #nowMs: () => number;
  #tokens: number;
  #countedAtMs: number;

  constructor(burst: number, nowMs: () => number, intervalMs = 30_000) {
    this.#burst = Math.max(1, burst);
    this.#intervalMs = intervalMs;
    this.#nowMs = nowMs;
    this.#tokens = this.#burst;
    this.#countedAtMs = nowMs();
  }

  /** Takes one, or says no. */
  take(): boolean {
    const now = this.#nowMs();
    const gained = Math.max(0, now - this.#countedAtMs) / this.#intervalMs;
    this.#tokens = Math.min(this.#burst, this.#tokens + gained);
    this.#countedAtMs = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
