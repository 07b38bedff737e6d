/**
 * Session orders: messages to the gateway of a running session. An order ends, pauses, holds or resumes the session, or
 * reports that a moderator watches the session.
 */
import { randomUUID } from 'node:crypto';
import { BoundedMap } from '../../bounded-map.ts';
import { createDeadline } from '../../async/deadline.ts';
import { TailcastError } from '../../errors.ts';
import type { LiveOrders } from '../library/live-recording.ts';
import { parseAnnotation } from '../../wire/recorder-api/annotation.ts';
import {
  MAX_REASON_LENGTH,
  WATCH_INTERVAL_MS,
  type SessionOrder,
  type SessionWatcher,
} from '../../wire/recorder-api/session-order.ts';

/**
 * Maximum time until the gateway confirms a session order, in milliseconds. This timeout is shorter than the timeout of
 * the portal, so that viewers get a result.
 */
const CONFIRM_MS = 5_000;
/**
 * Maximum number of unconfirmed session orders of one session, except orders to end the session. Watch orders count
 * separately, because viewers need no special right for them: many watch orders must not prevent an alert rule from
 * holding the session.
 */
const MAX_PENDING = 16;
/** Maximum number of unconfirmed session orders of one viewer. */
const MAX_PENDING_OF_VIEWER = 4;
/** Maximum number of remembered watchers of one session. The oldest watcher is dropped first. */
const MAX_WATCHERS = 64;

interface Pending {
  readonly by: string;
  readonly isWatch: boolean;
  readonly resolve: () => void;
  readonly reject: (error: TailcastError) => void;
}

export class SessionOrders implements LiveOrders {
  readonly #pending = new Map<string, Pending>();
  /** Confirmed watch orders. Map keys: node id and user of the viewer. */
  readonly #watchers = new BoundedMap<{ readonly order: SessionOrder; repeatedMs: number }>(MAX_WATCHERS);
  readonly #confirmMs: number;
  readonly #nowMs: () => number;
  #isConnected = false;
  #send: ((order: SessionOrder) => void) | undefined;

  constructor(confirmMs: number = CONFIRM_MS, nowMs: () => number = () => performance.now()) {
    this.#confirmMs = confirmMs;
    this.#nowMs = nowMs;
  }

  get isPossible(): boolean {
    return this.#send !== undefined;
  }

  /** @param send sends a session order to the gateway; undefined if the gateway does not support session orders */
  attach(send: ((order: SessionOrder) => void) | undefined): void {
    this.#isConnected = true;
    this.#send = send;
  }

  /** Called when the gateway disconnects. */
  detach(): void {
    this.#isConnected = false;
    this.#send = undefined;
    this.#watchers.clear();
    for (const { reject } of this.#pending.values())
      reject(new TailcastError('ORDER_UNCONFIRMED', 'its connection was lost'));
  }

  /** Called with each annotation of the gateway. Some annotations confirm a session order. */
  note(line: string): void {
    if (!line.startsWith('{"kind":"order",')) return;
    const confirmed = parseAnnotation(line);
    if (confirmed?.kind !== 'order') return;
    const { id, action, reason } = confirmed;
    const pending = this.#pending.get(id);
    if (action !== 'leave') return pending?.resolve();
    pending?.reject(new TailcastError('ORDER_REFUSED', reason));
    for (const [viewer, watching] of this.#watchers)
      if (watching.order.id === id) this.#watchers.delete(viewer);
  }

  async watch(by: string, watcher: SessionWatcher): Promise<void> {
    const key = `${watcher.nodeId} ${by}`;
    const known = this.#watchers.get(key);
    if (known === undefined) {
      const order = await this.#confirmed({ action: 'watch', by, reason: '', watcher });
      this.#watchers.set(key, { order, repeatedMs: this.#nowMs() });
    } else if (this.#nowMs() - known.repeatedMs > WATCH_INTERVAL_MS / 2) {
      known.repeatedMs = this.#nowMs();
      this.#send?.(known.order);
    }
  }

  async give({ action, by, reason }: Parameters<LiveOrders['give']>[0]): Promise<void> {
    await this.#confirmed({ action, by, reason: reason.slice(0, MAX_REASON_LENGTH) });
  }

  async #confirmed(wanted: Omit<SessionOrder, 'id'>): Promise<SessionOrder> {
    const send = this.#send;
    if (send === undefined) throw this.#refusal();
    const { action, by } = wanted;
    const isWatch = action === 'watch';
    const pending = [...this.#pending.values()];
    const own = pending.filter((one) => one.by === by).length;
    const alike = pending.filter((one) => one.isWatch === isWatch).length;
    if (own >= MAX_PENDING_OF_VIEWER || (alike >= MAX_PENDING && action !== 'end'))
      throw new TailcastError('ORDER_UNCONFIRMED', `${pending.length} orders wait for the gateway already`);
    const order = { ...wanted, id: randomUUID() };
    const confirmed = Promise.withResolvers<void>();
    const deadline = createDeadline(this.#confirmMs, () =>
      confirmed.reject(new TailcastError('ORDER_UNCONFIRMED', `no answer for ${this.#confirmMs / 1000} s`)),
    );
    this.#pending.set(order.id, { ...confirmed, by, isWatch });
    try {
      send(order);
      await confirmed.promise;
      return order;
    } finally {
      deadline.clear();
      this.#pending.delete(order.id);
    }
  }

  #refusal(): TailcastError {
    return new TailcastError(
      'ORDER_IMPOSSIBLE',
      this.#isConnected ? 'the gateway does not follow orders' : 'the gateway is not connected',
    );
  }
}
