/**
 * Decides which recorder of a store sends an alert. Before sending, a recorder creates a claim. Only one recorder can
 * create a claim with a given number, if the store supports conditional writes. After delivery, the recorder writes a
 * delivery mark. If a claim is older than the lease and unchanged, the recorder that created it counts as failed, and
 * another recorder may create the claim with the next number. This protocol needs no locks and no common clock.
 *
 * Anyone with write access to the store can write these documents. Claims and delivery marks without a trusted
 * signature are ignored, so that only recorders can suppress an alert.
 */
import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { alertMarkName, type AlertMark } from '../../store/alert-marks.ts';
import type { DocumentStore } from '../../store/document-store.ts';
import type { Alert } from './alert.ts';

/** Signs claims and delivery marks, and verifies the claims and delivery marks of other recorders. */
export interface AlertSigner {
  sign(value: object): string;
  /** Reads a claim or a delivery mark. @returns the signed value, or the reason why the text is invalid */
  read(text: string): { readonly value: unknown } | { readonly problem: string };
}

export interface AlertClaimOptions {
  readonly signer: AlertSigner;
  readonly store: Pick<
    DocumentStore,
    'claimDocument' | 'readDocument' | 'removeDocument' | 'replaceDocument'
  >;
  /** Name of this recorder, which stays the same after a restart. */
  readonly recorder: string;
  /** Time until a claim of another recorder expires, in milliseconds. */
  readonly leaseMs: number;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called with the name of an ignored claim or delivery mark, and the reason. */
  readonly onUnproven?: (name: string, problem: string) => void;
}

/** Maximum size of a claim or a delivery mark, in bytes. If a document is larger, only its start is read. */
const MAX_MARK_BYTES = 16 * 1024;
/** Maximum number of claims for one alert. Above this number, the recorder sends the alert without a claim. */
const MAX_CLAIMS = 64;

const MARK = z.strictObject({
  alert: z.string(),
  session: z.string(),
  mark: z.union([z.literal('told'), z.int().min(0)]),
  recorder: z.string(),
  /** Distinguishes two claims of the same recorder. */
  nonce: z.string(),
});
type Mark = z.infer<typeof MARK>;

interface Claim {
  readonly number: number;
  /** Time of the creation, by the monotonic clock, in milliseconds. */
  readonly at: number;
}

/** The claim of one recorder on one alert. Methods reject with the errors of the store. */
export class AlertClaim {
  readonly #options: AlertClaimOptions;
  readonly #alert: Pick<Alert, 'id' | 'session'>;
  /**
   * Time when each claim was first seen. Map keys: nonce of the claim. If an attacker restores an old claim, the
   * recorder still uses the time when it first saw the claim.
   */
  readonly #seen = new Map<string, number>();
  #held: Claim | undefined;

  constructor(options: AlertClaimOptions, alert: Pick<Alert, 'id' | 'session'>) {
    this.#options = options;
    this.#alert = alert;
  }

  /**
   * Takes the claim.
   *
   * @returns `mine`: send the alert now; `told`: already delivered; `claimed`: another recorder is about to send it
   */
  async take(): Promise<'mine' | 'told' | 'claimed'> {
    if (await this.isDelivered()) return 'told';
    const made = await this.#claimNext();
    if (made !== 'mine') return made;
    // Check the delivery mark again: the previous owner of the claim may have delivered the alert before it released
    // the claim.
    const isDelivered = await this.isDelivered();
    if (!isDelivered && this.#isValid()) return 'mine';
    await this.release();
    return isDelivered ? 'told' : 'claimed';
  }

  /** Releases the claim, so that another recorder can send the alert immediately. */
  async release(): Promise<void> {
    const held = this.#held;
    this.#held = undefined;
    // If the lease has expired, keep the claim, because another recorder may have taken over.
    if (held === undefined || this.#options.now() - held.at >= this.#options.leaseMs) return;
    // Remove the claims in descending order, so that their numbers never have a gap.
    for (let number = held.number; number >= 0; number -= 1)
      await this.#options.store.removeDocument(this.#name(number));
  }

  /** Marks the alert as delivered. */
  async markDelivered(): Promise<void> {
    const { store } = this.#options;
    const name = this.#name('told');
    const content = Buffer.from(this.#sign('told'));
    if (await store.claimDocument(name, content)) return;
    if (typeof (await this.#read('told')) !== 'object') await store.replaceDocument(name, content);
  }

  async isDelivered(): Promise<boolean> {
    return typeof (await this.#read('told')) === 'object';
  }

  /** True if the rest of the lease is long enough to send the message and write the delivery mark. */
  #isValid(): boolean {
    const { leaseMs, now } = this.#options;
    return this.#held === undefined || now() - this.#held.at < leaseMs / 2;
  }

  /** Creates the claim with the next number, unless another recorder has a valid claim. */
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

  /** True if another recorder owns the claim and may still be running. */
  #isOfAnother(claim: Mark | undefined): boolean {
    if (claim === undefined) return false;
    const { recorder, leaseMs, now } = this.#options;
    const seenAt = this.#seen.get(claim.nonce) ?? now();
    this.#seen.set(claim.nonce, seenAt);
    // A claim of this recorder does not count: it is from an earlier process, or its removal failed.
    return now() - seenAt < leaseMs && claim.recorder !== recorder;
  }

  /**
   * Creates the claim with this number. @returns `unproven` if a document without a trusted signature has the number
   */
  async #create(number: number): Promise<'mine' | 'claimed' | 'unproven'> {
    const { store, now } = this.#options;
    const text = this.#sign(number);
    const at = now();
    const isMade = await store.claimDocument(this.#name(number), Buffer.from(text));
    const there = isMade ? undefined : await this.#read(number);
    if (there === 'unproven') return there;
    // If the response to an earlier attempt was lost, the repeated request finds this recorder's own claim.
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
