/**
 * Which of the recorders of one store tells an alert. Whoever is about to tell it creates a claim, which of all that try one can; once
 * the webhook has it, a mark says so. A claim that stands for a lease without a change is one of a recorder that died: the next number may be
 * created then, by one again. So there are no locks, no clocks to agree on, and nothing that has to be cleaned up for an alert to be told.
 */
import { randomBytes } from 'node:crypto';
import { alertMarkName } from '../../store/alert-marks.ts';
import type { DocumentStore } from '../../store/document-store.ts';
import type { Alert } from './alert.ts';

export interface AlertClaimOptions {
  readonly store: Pick<DocumentStore, 'claimDocument' | 'readDocument' | 'removeDocument'>;
  /** Name of this recorder: the same after a start. */
  readonly recorder: string;
  /** How long a claim of another stands. */
  readonly leaseMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Claims of recorders that died while they told one alert; what comes behind is told without one. */
const MAX_CLAIMS = 64;

interface Claim {
  readonly number: number;
  readonly content: string;
  /** When it was made, or first seen. */
  readonly at: number;
}

/** Of one alert, at one recorder. What it throws is of the store. */
export class AlertClaim {
  readonly #options: AlertClaimOptions;
  readonly #alert: Pick<Alert, 'id' | 'session'>;
  #seen: Claim | undefined;
  #held: Claim | undefined;

  constructor(options: AlertClaimOptions, alert: Pick<Alert, 'id' | 'session'>) {
    this.#options = options;
    this.#alert = alert;
  }

  /** @returns `mine`: it is to be told now; `told`: nobody need; `claimed`: another one is about to */
  async take(): Promise<'mine' | 'told' | 'claimed'> {
    if (await this.isTold()) return 'told';
    const number = await this.#nextNumber();
    if (number === undefined || !(await this.#create(number))) return 'claimed';
    // whoever held it before has told it, and then left the place that is taken now
    const isTold = await this.isTold();
    if (!isTold && this.#stands()) return 'mine';
    await this.release();
    return isTold ? 'told' : 'claimed';
  }

  /** Another one may tell it as soon as it looks. */
  async release(): Promise<void> {
    const held = this.#held;
    this.#held = undefined;
    // from then on it may be another's
    if (held === undefined || this.#options.now() - held.at >= this.#options.leaseMs) return;
    // from the last on, so that never one is missing before another
    for (let number = held.number; number >= 0; number -= 1)
      await this.#options.store.removeDocument(this.#name(number));
  }

  /** The webhook has it. */
  async markTold(): Promise<void> {
    await this.#options.store.claimDocument(this.#name('told'), Buffer.from(`${this.#options.recorder}\n`));
  }

  async isTold(): Promise<boolean> {
    return (await this.#options.store.readDocument(this.#name('told'))) !== undefined;
  }

  /** Long enough for a message and the mark behind it. */
  #stands(): boolean {
    const { leaseMs, now } = this.#options;
    return this.#held === undefined || now() - this.#held.at < leaseMs / 2;
  }

  /** @returns the number of the claim that may be made now; undefined while another one's stands */
  async #nextNumber(): Promise<number | undefined> {
    const { store, recorder, leaseMs, now } = this.#options;
    let last: Claim | undefined;
    for (let number = 0; number < MAX_CLAIMS; number += 1) {
      const content = await store.readDocument(this.#name(number));
      if (content === undefined) break;
      last = { number, content: Buffer.from(content).toString(), at: now() };
    }
    if (last === undefined) return 0;
    const isKnown = this.#seen?.number === last.number && this.#seen.content === last.content;
    if (!isKnown) this.#seen = last;
    const isOld = this.#seen !== undefined && now() - this.#seen.at >= leaseMs;
    // one of this recorder is of a process that has ended, or could not be removed
    return isOld || last.content.startsWith(`${recorder} `) ? last.number + 1 : undefined;
  }

  async #create(number: number): Promise<boolean> {
    const { store, recorder, now } = this.#options;
    // nobody asks that many
    if (number >= MAX_CLAIMS) return true;
    const content = `${recorder} ${randomBytes(8).toString('hex')}\n`;
    const at = now();
    const name = this.#name(number);
    const isMade =
      (await store.claimDocument(name, Buffer.from(content))) ||
      // a request whose answer was lost, and that was repeated, finds what it has made
      Buffer.from((await store.readDocument(name)) ?? []).toString() === content;
    if (isMade) this.#held = { number, content, at };
    return isMade;
  }

  #name(mark: 'told' | number): string {
    return alertMarkName(this.#alert.session, this.#alert.id, mark);
  }
}
