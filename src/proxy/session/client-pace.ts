/**
 * How much may be on its way to a client: what it takes in a moment. What waits in the systems and proxies between would go on scrolling
 * after Ctrl-C, megabytes of it, so bytes count as taken when a ping behind them was answered.
 *
 * A client that answers no ping is not waited for but at the beginning, and one that has stopped to answer not for long. From the first byte
 * on, because the system keeps the more ready of a server the quicker it was read once.
 */
import type { ClientProbes } from '../../recording/tap.ts';
import { DrainRate } from './drain-rate.ts';

/** A flood goes on for so long behind what stopped it, beside the time that a ping takes. */
const AHEAD_MS = 100;
/** So much may be on its way however slow the client is. */
const LEAST_AHEAD_BYTES = 64 * 1024;
const RATE_MS = 500;
/** A client that has not answered a ping for so long is not waited for: one that has answered before, and another. */
const PATIENCE_MS = 30_000;
const FIRST_PATIENCE_MS = 2_000;

interface Probe {
  readonly ordinal: number;
  /** Bytes that were sent before it. */
  readonly at: number;
  readonly sentMs: number;
}

export class ClientPace {
  readonly #probes: ClientProbes;
  readonly #nowMs: () => number;
  readonly #rate: DrainRate;
  #unanswered: Probe[] = [];
  #sent = 0;
  #taken = 0;
  #probedAt = -Infinity;
  /** Of the quickest answer; undefined until one has come. */
  #roundTripMs: number | undefined;
  #isOver = false;

  constructor(probes: ClientProbes, nowMs: () => number = () => performance.now()) {
    this.#probes = probes;
    this.#nowMs = nowMs;
    this.#rate = new DrainRate(RATE_MS, nowMs);
  }

  /** Bytes went to the client. @returns a ping to be put behind them, where one is due */
  sent(bytes: number): Uint8Array | undefined {
    this.#sent += bytes;
    if (this.#isOver || this.#sent - this.#probedAt < this.#ahead / 4) return undefined;
    const probe = this.#probes.next();
    if (probe === undefined) return undefined;
    this.#probedAt = this.#sent;
    this.#unanswered.push({ ordinal: probe.ordinal, at: this.#sent, sentMs: this.#nowMs() });
    return probe.frame;
  }

  /** The client has answered the ping with this number, and so those before it. Infinity: it answers no more. */
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

  /** Nothing should be sent until the client has taken more. */
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
