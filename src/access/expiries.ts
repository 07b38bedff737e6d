/** Writes the expiry of an access request into its record, and stores evidence about the expiry. */
import { randomUUID } from 'node:crypto';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { AccessRecord } from './record.ts';
import type { RequestStore } from './request-store.ts';
import { hasExpired } from './rules.ts';

/** Accepted difference between the clocks of two gateways. */
export const SKEW_MS = 300_000;
/** Time for which a gateway retries storing the evidence of an expiry, in milliseconds. */
const EVIDENCE_MS = 600_000;
/**
 * Time for which only the gateway that claimed an expiry may write it. This time is longer than the accepted clock
 * difference `SKEW_MS`.
 */
const CLAIM_MS = SKEW_MS + 60_000;

interface ExpiriesDeps {
  readonly store: RequestStore;
  readonly log: Logger;
  readonly unixMs: () => number;
  /** Aborts when the gateway stops. */
  readonly signal: AbortSignal;
  /** Stores the evidence of an expiry. @returns false if no recorder stored it */
  readonly record: (record: AccessRecord) => Promise<boolean>;
}

/** Writer of expiries; one per gateway. */
export class Expiries {
  readonly #deps: ExpiriesDeps;
  /** Name of this gateway in claims. */
  readonly #gateway = randomUUID();
  /** IDs of requests whose expiry is stored at a recorder, but not yet in the AccessRequest object. */
  readonly #recorded = new Set<string>();

  constructor(deps: ExpiriesDeps) {
    this.#deps = deps;
  }

  /** Writes the expiries that no other gateway has claimed. */
  async write(): Promise<void> {
    const { store, unixMs, signal, log } = this.#deps;
    const expired = store.all.filter((record) => hasExpired(record, unixMs()));
    for (const id of this.#recorded)
      if (!expired.some((record) => record.id === id)) this.#recorded.delete(id);
    for (const { id } of expired) {
      if (signal.aborted) return;
      try {
        if (await this.#claim(id)) await this.#write(id);
      } catch (error) {
        log.warn(
          { request: id, error: errorText(error) },
          'the expiry of an access request is not written yet',
        );
      }
    }
  }

  /** Claims an expiry. @returns true if this gateway must write it */
  async #claim(id: string): Promise<boolean> {
    const { store, unixMs, signal } = this.#deps;
    const { record, ...object } = await store.read(id, signal);
    const now = unixMs();
    const { expiry, revision } = record;
    if (!hasExpired(record, now)) return false;
    if (expiry !== undefined && now < expiry.untilMs) return expiry.claimedBy === this.#gateway;
    const claim = { claimedBy: this.#gateway, untilMs: now + CLAIM_MS };
    return store.replace(object, { ...record, revision: revision + 1, expiry: claim }, signal);
  }

  async #write(id: string): Promise<void> {
    const { store, unixMs, signal } = this.#deps;
    const { record, ...object } = await store.read(id, signal);
    if (!hasExpired(record, unixMs())) return;
    const next = { ...record, revision: record.revision + 1, state: 'expired' as const };
    const isRecorded = this.#recorded.has(id) || (await this.#deps.record(next));
    if (isRecorded) this.#recorded.add(id);
    if (isRecorded || unixMs() > record.expiresMs + EVIDENCE_MS) await store.replace(object, next, signal);
  }
}
