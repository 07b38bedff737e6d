/** The orders of one running session, from the recorder to its gateway. */
import { randomUUID } from 'node:crypto';
import { createDeadline } from '../../async/deadline.ts';
import { TailcastError } from '../../errors.ts';
import type { LiveOrders } from '../library/live-recording.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { MAX_REASON_LENGTH, type SessionOrder } from '../../wire/recorder-api/session-order.ts';

/** Maximum time until the gateway confirms an order. Shorter than the timeout of the portal. */
const CONFIRM_MS = 5_000;
/** Maximum number of unconfirmed orders of one session. */
const MAX_PENDING = 16;

interface Pending {
  readonly resolve: () => void;
  readonly reject: (error: TailcastError) => void;
}

export class SessionOrders implements LiveOrders {
  readonly #pending = new Map<string, Pending>();
  readonly #confirmMs: number;
  #isConnected = false;
  #send: ((order: SessionOrder) => void) | undefined;

  constructor(confirmMs: number = CONFIRM_MS) {
    this.#confirmMs = confirmMs;
  }

  get isPossible(): boolean {
    return this.#send !== undefined;
  }

  /** @param send sends an order to the gateway; undefined if the gateway does not follow orders */
  attach(send: ((order: SessionOrder) => void) | undefined): void {
    this.#isConnected = true;
    this.#send = send;
  }

  /** Called when the gateway is not connected any more. */
  detach(): void {
    this.#isConnected = false;
    this.#send = undefined;
    for (const { reject } of this.#pending.values())
      reject(new TailcastError('ORDER_UNCONFIRMED', 'its connection was lost'));
  }

  /** Called with each annotation of the gateway. Some of them confirm an order. */
  note(line: string): void {
    if (!line.startsWith('{"kind":"order",')) return;
    const order = jsonOrUndefined(line);
    if (typeof order === 'object' && order !== null && 'id' in order)
      this.#pending.get(String(order.id))?.resolve();
  }

  async give({ action, by, reason }: Omit<SessionOrder, 'id'>): Promise<void> {
    const send = this.#send;
    if (send === undefined) throw this.#refusal();
    if (this.#pending.size >= MAX_PENDING)
      throw new TailcastError('ORDER_UNCONFIRMED', `${MAX_PENDING} orders wait for the gateway already`);
    const id = randomUUID();
    const confirmed = Promise.withResolvers<void>();
    const deadline = createDeadline(this.#confirmMs, () =>
      confirmed.reject(new TailcastError('ORDER_UNCONFIRMED', `no answer for ${this.#confirmMs / 1000} s`)),
    );
    this.#pending.set(id, confirmed);
    try {
      send({ id, action, by, reason: reason.slice(0, MAX_REASON_LENGTH) });
      await confirmed.promise;
    } finally {
      deadline.clear();
      this.#pending.delete(id);
    }
  }

  #refusal(): TailcastError {
    return new TailcastError(
      'ORDER_IMPOSSIBLE',
      this.#isConnected ? 'the gateway does not follow orders' : 'the gateway is not connected',
    );
  }
}
