/**
 * Rechecks every few seconds whether callers with long-lived requests still have access: the node may have left
 * the tailnet, the grant may be gone, or recording may be enforced now. Lost access ends the request.
 *
 * If tailscaled or the API server (access reviews) does not respond, the caller keeps access for a limited time.
 */
import { TailcastError, type ErrorCode } from '../../errors.ts';
import type { Peer } from '../../tailnet/identity.ts';
import type { Elevations } from './elevation.ts';
import type { Caller, Gate } from './gate.ts';

export interface RecheckOptions {
  readonly gate: Pick<Gate, 'confirm'>;
  /** Source of the end of access on request, which ends a request immediately. */
  readonly elevations?: Pick<Elevations, 'watch'> | undefined;
  readonly monotonicMs: () => number;
  readonly everyMs?: number;
  /** Maximum time without a response, since the last request that got one. */
  readonly toleranceMs?: number;
}

export interface Rechecks {
  /**
   * @param end called at most once, with the reason
   * @returns a function that stops watching
   */
  watch(admission: Caller, peer: Peer, end: (error: TailcastError) => void): () => void;
  /** Stops all rechecks. */
  close(): void;
}

interface Entry {
  readonly admission: Caller;
  readonly peer: Peer;
  readonly end: (error: TailcastError) => void;
  confirmedAtMs: number;
  askedAtMs: number;
  busy: boolean;
  /** Reason why the last check got no response. */
  lastFailure: TemporaryFailure;
}

const TEMPORARY = ['IDENTITY_UNAVAILABLE', 'ACCESS_REVIEW_FAILED', 'ACCESS_REQUEST_UNAVAILABLE'] as const;
type TemporaryFailure = (typeof TEMPORARY)[number];

function isTemporary(code: ErrorCode): code is TemporaryFailure {
  return TEMPORARY.some((one) => one === code);
}

/**
 * Lost access ends within 15 s, whatever tailscaled does: the last response may have been cached in
 * `tailnet/whois` for 5 s, then the tolerance applies, and one interval later the request ends.
 */
const RECHECK_EVERY_MS = 4_000;
const RECHECK_TOLERANCE_MS = 9_000;
const SWEEP_MS = 1_000;

export function createRechecks(options: RecheckOptions): Rechecks {
  const { gate, monotonicMs, everyMs = RECHECK_EVERY_MS, toleranceMs = RECHECK_TOLERANCE_MS } = options;
  const entries = new Set<Entry>();
  const over = new AbortController();

  const finish = (entry: Entry, error: TailcastError): void => {
    if (entries.delete(entry)) entry.end(error);
  };
  const settle = (entry: Entry, thrown: unknown): void => {
    entry.busy = false;
    const error =
      thrown instanceof TailcastError ? thrown : new TailcastError('INTERNAL', undefined, { cause: thrown });
    if (!isTemporary(error.code)) return finish(entry, error);
    entry.lastFailure = error.code;
    // without a response the check is repeated sooner, and the request ends after the tolerance
    entry.askedAtMs = monotonicMs() - everyMs / 2;
  };
  const look = (entry: Entry): void => {
    if (monotonicMs() - entry.confirmedAtMs >= toleranceMs) {
      const seconds = Math.round(toleranceMs / 1000);
      return finish(entry, new TailcastError(entry.lastFailure, `no answer for ${seconds} s`));
    }
    if (entry.busy || monotonicMs() - entry.askedAtMs < everyMs) return;
    entry.busy = true;
    const askedAtMs = monotonicMs();
    entry.askedAtMs = askedAtMs;
    gate.confirm(entry.admission, entry.peer, over.signal).then(
      () => {
        entry.busy = false;
        entry.confirmedAtMs = askedAtMs;
      },
      (thrown: unknown) => settle(entry, thrown),
    );
  };
  const timer = setInterval(
    () => {
      for (const entry of entries) look(entry);
    },
    Math.min(SWEEP_MS, everyMs),
  );
  timer.unref();
  return {
    watch(admission, peer, end) {
      const now = monotonicMs();
      const entry: Entry = {
        admission,
        peer,
        end,
        confirmedAtMs: now,
        askedAtMs: now,
        busy: false,
        lastFailure: 'IDENTITY_UNAVAILABLE',
      };
      entries.add(entry);
      const { elevation } = admission;
      const unwatch =
        elevation === undefined
          ? undefined
          : options.elevations?.watch(elevation.id, (error) => finish(entry, error));
      return () => {
        entries.delete(entry);
        unwatch?.();
      };
    },
    close() {
      clearInterval(timer);
      entries.clear();
      over.abort();
    },
  };
}
