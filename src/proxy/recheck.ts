/**
 * Looks again, every few seconds, whether those who have something long-lived open may still have it: a node that has left
 * the tailnet, a grant that is gone, recording that is now enforced. Whatever is found ends what is open.
 *
 * A tailscaled that does not answer proves nothing, so it is given some time; then nobody can be vouched for any more.
 */
import { TailcastError } from '../errors.ts';
import type { Peer } from '../tailnet/identity.ts';
import type { Admission, Gate } from './gate.ts';

export interface RecheckOptions {
  readonly gate: Pick<Gate, 'confirm'>;
  readonly monotonicMs: () => number;
  readonly everyMs?: number;
  /** How long an admission stands without an answer, since the last one. */
  readonly toleranceMs?: number;
}

export interface Rechecks {
  /**
   * @param end called at most once, with the reason
   * @returns stops watching
   */
  watch(admission: Admission, peer: Peer, end: (error: TailcastError) => void): () => void;
  /** Stops everything. */
  close(): void;
}

interface Entry {
  readonly admission: Admission;
  readonly peer: Peer;
  readonly end: (error: TailcastError) => void;
  confirmedAtMs: number;
  busy: boolean;
}

/** Both together stay below the 15 s that a revoked grant may live on. */
export const RECHECK_EVERY_MS = 4_000;
export const RECHECK_TOLERANCE_MS = 10_000;

export function createRechecks(options: RecheckOptions): Rechecks {
  const { gate, monotonicMs, everyMs = RECHECK_EVERY_MS, toleranceMs = RECHECK_TOLERANCE_MS } = options;
  const entries = new Set<Entry>();
  const over = new AbortController();

  const settle = (entry: Entry, thrown: unknown): void => {
    entry.busy = false;
    if (!entries.has(entry)) return;
    const error =
      thrown instanceof TailcastError ? thrown : new TailcastError('INTERNAL', undefined, { cause: thrown });
    const unknown = error.code === 'IDENTITY_UNAVAILABLE';
    if (unknown && monotonicMs() - entry.confirmedAtMs < toleranceMs) return;
    entries.delete(entry);
    entry.end(error);
  };
  const look = (entry: Entry): void => {
    if (entry.busy) return;
    entry.busy = true;
    const askedAtMs = monotonicMs();
    gate.confirm(entry.admission, entry.peer, over.signal).then(
      () => {
        entry.busy = false;
        entry.confirmedAtMs = askedAtMs;
      },
      (thrown: unknown) => settle(entry, thrown),
    );
  };
  const timer = setInterval(() => {
    for (const entry of entries) look(entry);
  }, everyMs);
  timer.unref();
  return {
    watch(admission, peer, end) {
      const entry: Entry = { admission, peer, end, confirmedAtMs: monotonicMs(), busy: false };
      entries.add(entry);
      return () => void entries.delete(entry);
    },
    close() {
      clearInterval(timer);
      entries.clear();
      over.abort();
    },
  };
}
