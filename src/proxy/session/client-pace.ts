/**
 * Limits the output that is in flight to a client. Without the limit, kernels and proxies on the path buffer
 * megabytes, and the terminal would keep scrolling after Ctrl-C. The limit is the output that the client
 * reads in about {@link AHEAD_MS}. Bytes count as read when the client has answered a ping that was sent
 * after them.
 *
 * The gateway waits only a limited time for a response to a ping: {@link FIRST_PATIENCE_MS} for a client that
 * never responded, {@link PATIENCE_MS} for others. The limit applies from the first byte, because the kernel
 * keeps larger buffers for a connection that was once read quickly.
 */
import type { Tap } from '../../recording/tap.ts';
import { DrainRate } from './drain-rate.ts';

/** Time for which output may continue after Ctrl-C, in addition to the round-trip time, in milliseconds. */
const AHEAD_MS = 100;
/** Minimum number of bytes in flight, also for a slow client. */
const LEAST_AHEAD_BYTES = 64 * 1024;
const RATE_MS = 500;
/**
 * Maximum wait for the response to a ping, for clients that have responded before and for clients that never
 * responded.
 */
const PATIENCE_MS = 30_000;
const FIRST_PATIENCE_MS = 2_000;

interface Probe {
  readonly ordinal: number;
  /** Number of bytes sent before the ping. */
  readonly at: number;
  readonly sentMs: number;
}

/** Flow control for one client. */
export class ClientPace {
  readonly #nextProbe: NonNullable<Tap['nextProbe']>;
  readonly #nowMs: () => number;
  readonly #rate: DrainRate;
  #unanswered: Probe[] = [];
  #sent = 0;
  #taken = 0;
  #probedAt = -Infinity;
  /** Shortest round-trip time; undefined before the first response. */
  #roundTripMs: number | undefined;
  #isOver = false;

  constructor(nextProbe: NonNullable<Tap['nextProbe']>, nowMs: () => number = () => performance.now()) {
    this.#nextProbe = nextProbe;
    this.#nowMs = nowMs;
    this.#rate = new DrainRate(RATE_MS, nowMs);
  }

  /** Counts sent bytes. @returns a ping to send after these bytes, if a ping is due */
  sent(bytes: number): Uint8Array | undefined {
    this.#sent += bytes;
    if (this.#isOver || this.#sent - this.#probedAt < this.#ahead / 4) return undefined;
    const probe = this.#nextProbe();
    if (probe === undefined) return undefined;
    this.#probedAt = this.#sent;
    this.#unanswered.push({ ordinal: probe.ordinal, at: this.#sent, sentMs: this.#nowMs() });
    return probe.frame;
  }

  /**
   * Records the response to the ping with this number, which also answers all earlier pings. `Infinity` means
   * that the client will send no more responses.
   */
  reached(ordinal: number): void {
    this.#isOver ||= ordinal === Infinity;
    const newest = this.#unanswered.findLast((probe) => probe.ordinal <= ordinal);
    if (newest === undefined) return;
    this.#unanswered = this.#unanswered.filter((probe) => probe.ordinal > ordinal);
    const tookMs = this.#nowMs() - newest.sentMs;
    this.#roundTripMs = Math.min(this.#roundTripMs ?? Infinity, tookMs);
    this.#rate.note(newest.at - this.#taken);
    this.#taken = newest.at;
  }

  /** True if the limit of output in flight is reached. */
  get full(): boolean {
    const [oldest] = this.#unanswered;
    if (this.#isOver || oldest === undefined || this.#sent - this.#taken < this.#ahead) return false;
    const patienceMs = this.#roundTripMs === undefined ? FIRST_PATIENCE_MS : PATIENCE_MS;
    return this.#nowMs() - oldest.sentMs < patienceMs;
  }

  get #ahead(): number {
    const span = (this.#roundTripMs ?? 0) + AHEAD_MS;
    return Math.max(LEAST_AHEAD_BYTES, (this.#rate.recent * span) / RATE_MS);
  }
}
