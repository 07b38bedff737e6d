/**
 * Decides which of the recorders of one store sends an alert. A recorder creates a claim before it sends one, and only one
 * of several recorders can create it. Once the webhook has the alert, a mark says so. A claim that stands for a lease without
 * a change is one of a recorder that died: the next number may then be created. There are no locks, no common clock, and no
 * cleanup that an alert waits for.
 *
 * Everybody with write access to the store can write these documents. A claim or a mark without the signature of a trusted
 * key is ignored, so write access to the store does not suppress an alert.
 */
import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { alertMarkName, type AlertMark } from '../../store/alert-marks.ts';
import type { DocumentStore } from '../../store/document-store.ts';
import type { Alert } from './alert.ts';

/** Signs claims and marks, and checks those of other recorders. */
export interface AlertSigner {
  sign(value: object): string;
  /** @returns what a trusted key has signed, or why the text proves nothing */
  read(text: string): { readonly value: unknown } | { readonly problem: string };
}

export interface AlertClaimOptions {
  readonly signer: AlertSigner;
  readonly store: Pick<
    DocumentStore,
    'claimDocument' | 'readDocument' | 'removeDocument' | 'replaceDocument'
  >;
  /** Name of this recorder: the same after a start. */
  readonly recorder: string;
  /** How long a claim of another stands. */
  readonly leaseMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Called for a claim or a mark that is ignored, with its name and the reason. */
  readonly onUnproven?: (name: string, problem: string) => void;
}

/** Maximum size of a claim or a mark; of a larger document, only the beginning is read. */
const MAX_MARK_BYTES = 16 * 1024;
/** Maximum number of claims of one alert; an alert with that many is sent without one. */
const MAX_CLAIMS = 64;

const MARK = z.strictObject({
  alert: z.string(),
  session: z.string(),
  mark: z.union([z.literal('told'), z.int().min(0)]),
  recorder: z.string(),
  /** Makes two claims of one recorder different. */
  nonce: z.string(),
});
type Mark = z.infer<typeof MARK>;

interface Claim {
  readonly number: number;
  /** When it was made. */
  readonly at: number;
}

/** The claim on one alert at one recorder. Throws what the store throws. */
export class AlertClaim {
  readonly #options: AlertClaimOptions;
  readonly #alert: Pick<Alert, 'id' | 'session'>;
  /** When each claim was first seen, by nonce. An old claim that is restored does not become new. */
  readonly #seen = new Map<string, number>();
  #held: Claim | undefined;

  constructor(options: AlertClaimOptions, alert: Pick<Alert, 'id' | 'session'>) {
    this.#options = options;
    this.#alert = alert;
  }

  /** @returns `mine`: send it now; `told`: it was sent; `claimed`: another recorder is about to send it */
  async take(): Promise<'mine' | 'told' | 'claimed'> {
    if (await this.isTold()) return 'told';
    const made = await this.#claimNext();
    if (made !== 'mine') return made;
    // the recorder before may have sent it, and then released the claim that is taken now
    const isTold = await this.isTold();
    if (!isTold && this.#stands()) return 'mine';
    await this.release();
    return isTold ? 'told' : 'claimed';
  }

  /** Another recorder may send it as soon as it looks. */
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
    const { store } = this.#options;
    const name = this.#name('told');
    const content = Buffer.from(this.#sign('told'));
    if (await store.claimDocument(name, content)) return;
    if (typeof (await this.#read('told')) !== 'object') await store.replaceDocument(name, content);
  }

  async isTold(): Promise<boolean> {
    return typeof (await this.#read('told')) === 'object';
  }

  /** True if a message and the mark after it have enough time. */
  #stands(): boolean {
    const { leaseMs, now } = this.#options;
    return this.#held === undefined || now() - this.#held.at < leaseMs / 2;
  }

  /** Creates the next claim, unless one of another recorder stands. */
  async #claimNext(): Promise<'mine' | 'claimed'> {
    let last: Mark | undefined;
    for (let number = 0; number < MAX_CLAIMS; number += 1) {
      const found = await this.#read(number);
      if (typeof found === 'object') last = found.mark;
      if (found !== undefined) continue;
      if (this.#isOfAnother(last)) return 'claimed';
      const created = await this.#create(number);
      if (created !== 'unproven') return created;
    }
    return this.#isOfAnother(last) ? 'claimed' : 'mine';
  }

  /** True if the claim is of another recorder that may still be alive. */
  #isOfAnother(claim: Mark | undefined): boolean {
    if (claim === undefined) return false;
    const { recorder, leaseMs, now } = this.#options;
    const seenAt = this.#seen.get(claim.nonce) ?? now();
    this.#seen.set(claim.nonce, seenAt);
    // a claim of this recorder is of a process that has ended, or could not be removed
    return now() - seenAt < leaseMs && claim.recorder !== recorder;
  }

  /** @returns `unproven`: an unsigned document took the number in between */
  async #create(number: number): Promise<'mine' | 'claimed' | 'unproven'> {
    const { store, now } = this.#options;
    const text = this.#sign(number);
    const at = now();
    const isMade = await store.claimDocument(this.#name(number), Buffer.from(text));
    const there = isMade ? undefined : await this.#read(number);
    if (there === 'unproven') return there;
    // a request whose response was lost, and that was repeated, finds what it has made
    if (!isMade && there?.text !== text) return 'claimed';
    this.#held = { number, at };
    return 'mine';
  }

  #sign(mark: AlertMark): string {
    const { id, session } = this.#alert;
    const { recorder, signer } = this.#options;
    const nonce = randomBytes(8).toString('hex');
    return signer.sign({ alert: id, session, mark, recorder, nonce } satisfies Mark);
  }

  async #read(
    mark: AlertMark,
  ): Promise<{ readonly text: string; readonly mark: Mark } | 'unproven' | undefined> {
    const { store, signer, onUnproven } = this.#options;
    const name = this.#name(mark);
    const content = await store.readDocument(name, MAX_MARK_BYTES);
    if (content === undefined) return undefined;
    const text = Buffer.from(content).toString();
    const read = signer.read(text);
    if ('problem' in read) {
      onUnproven?.(name, read.problem);
      return 'unproven';
    }
    const signed = MARK.safeParse(read.value).data;
    const { id, session } = this.#alert;
    if (signed?.alert === id && signed.session === session && signed.mark === mark)
      return { text, mark: signed };
    onUnproven?.(name, 'it is about another alert');
    return 'unproven';
  }

  #name(mark: AlertMark): string {
    return alertMarkName(this.#alert.session, this.#alert.id, mark);
  }
}
