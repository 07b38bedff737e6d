/**
 * Rechecks every few seconds whether callers with long-lived requests still have access: the node may have
 * left the tailnet, the grant may be gone, or recording may be enforced now. The gateway ends the request
 * when its caller has lost access.
 *
 * If tailscaled does not respond, or the API server does not respond to access reviews, the caller keeps
 * access for a limited time.
 */
import { TailcastError, type ErrorCode } from '../../errors.ts';
import type { Peer } from '../../tailnet/identity.ts';
import type { Elevations } from './elevation.ts';
import type { Confirmable, Gate } from './gate.ts';

export interface RecheckOptions {
  readonly gate: Pick<Gate, 'confirm'>;
  /** Reports when granted access (access on request) ends. The request then ends immediately. */
  readonly elevations?: Pick<Elevations, 'watch'> | undefined;
  readonly monotonicMs: () => number;
  readonly everyMs?: number;
  /**
   * Time for which a caller keeps access if checks get no response, counted from the last successful check.
   */
  readonly toleranceMs?: number;
}

export type Rechecks = ReturnType<typeof createRechecks>;

interface Entry {
  readonly admission: Confirmable;
  readonly peer: Peer;
  readonly end: (error: TailcastError) => void;
  confirmedAtMs: number;
  askedAtMs: number;
  busy: boolean;
  /** Error of the most recent check without a response. */
  lastFailure: TemporaryFailure;
}

const TEMPORARY = ['IDENTITY_UNAVAILABLE', 'ACCESS_REVIEW_FAILED', 'ACCESS_REQUEST_UNAVAILABLE'] as const;
type TemporaryFailure = (typeof TEMPORARY)[number];

function isTemporary(code: ErrorCode): code is TemporaryFailure {
  return TEMPORARY.some((one) => one === code);
}

/**
 * With these values, the request of a caller without access ends within 15 s, even if tailscaled does not respond.
 * `tailnet/whois` may use a cached response for 5 s. Then the tolerance of 9 s applies, and the next sweep ends the
 * request up to 1 s later.
 */
const RECHECK_EVERY_MS = 4_000;
const RECHECK_TOLERANCE_MS = 9_000;
const SWEEP_MS = 1_000;

export function createRechecks(options: RecheckOptions) {
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
    // the next check follows after half the interval; `look` ends the request when the tolerance is over
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
    /**
     * @param end called at most once, with the reason
     * @returns a function that stops watching
     */
    watch(admission: Confirmable, peer: Peer, end: (error: TailcastError) => void): () => void {
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
      const unwatch = [elevation, elevation?.writes].flatMap((one) =>
        one === undefined ? [] : options.elevations?.watch(one.id, (error) => finish(entry, error)),
      );
      return () => {
        entries.delete(entry);
        for (const stop of unwatch) stop?.();
      };
    },
    /** Stops all rechecks. */
    close(): void {
      clearInterval(timer);
      entries.clear();
      over.abort();
    },
  };
}
