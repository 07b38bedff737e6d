/**
 * A moderated session runs only while, for each of its moderation rules, a moderator watches it.
 *
 * ```
 *   waiting ── every rule has a watcher ──► running ── a rule has none ──► ended
 *      └────────── no moderator in time, or the user leaves ─────────────────┘
 * ```
 *
 * The recorder repeatedly sends an order `watch` for each watcher. If no such order arrives for {@link
 * ModerationLimits.leaseMs}, the watcher has left. An attacker who controls the recorder could invent a watcher, but
 * the gateway never accepts the user of the session as a moderator.
 */
import { TailcastError } from '../../errors.ts';
import type { RecordingSession } from '../../recording/session.ts';
import type { ModerationRule } from '../../tailnet/access-rules.ts';
import type { Identity } from '../../tailnet/identity.ts';
import {
  WATCH_INTERVAL_MS,
  type SessionOrder,
  type SessionWatcher,
} from '../../wire/recorder-api/session-order.ts';

export interface ModerationLimits {
  /** Maximum time for which a session waits for its moderators. */
  readonly waitMs: number;
  /** Time without a repeated order after which a watcher counts as gone. */
  readonly leaseMs: number;
}

/** Maximum time until a moderator watches the session or its user has typed a reason. */
export const MAX_WAIT_MS = 15 * 60_000;
const LIMITS: ModerationLimits = { waitMs: MAX_WAIT_MS, leaseMs: 3 * WATCH_INTERVAL_MS };
/** Maximum number of watchers. Further watchers are refused. */
const MAX_WATCHERS = 32;

export interface ModerationOptions {
  readonly rules: readonly ModerationRule[];
  readonly owner: Identity;
  readonly session: Pick<RecordingSession, 'order'>;
  /** Starts the session. Called once. */
  readonly start: () => void;
  /** Ends the session. Called once. */
  readonly end: (error: TailcastError) => void;
  readonly limits?: Partial<ModerationLimits>;
}

interface Watching {
  readonly order: SessionOrder;
  readonly watcher: SessionWatcher;
  readonly lease: NodeJS.Timeout;
}

export class Moderation {
  readonly #options: ModerationOptions;
  readonly #limits: ModerationLimits;
  readonly #watching = new Map<string, Watching>();
  readonly #wait: NodeJS.Timeout;
  #state: 'waiting' | 'running' | 'over' = 'waiting';

  constructor(options: ModerationOptions) {
    this.#options = options;
    this.#limits = { ...LIMITS, ...options.limits };
    const { waitMs } = this.#limits;
    this.#wait = setTimeout(
      () => this.#end(`no moderator watched it for ${waitMs / 60_000} minutes`),
      waitMs,
    );
  }

  /** Extends the lease of a watcher. Returns false if the order does not repeat an earlier order. */
  repeat({ id, watcher }: SessionOrder): boolean {
    const known = watcher && this.#watching.get(keyOf(watcher));
    if (known?.order.id !== id) return false;
    known.lease.refresh();
    return true;
  }

  /** True if the watcher of an order is a moderator, and there are not too many watchers. */
  accepts({ watcher }: SessionOrder): boolean {
    return watcher !== undefined && this.#refusalOf(watcher) === undefined;
  }

  /** Handles the first order of a watcher. Starts the session if every rule has a moderator who watches. */
  watch(order: SessionOrder): void {
    const { watcher } = order;
    if (this.#state === 'over' || watcher === undefined) return;
    const { session } = this.#options;
    const refusal = this.#refusalOf(watcher);
    if (refusal !== undefined) return session.order({ ...order, action: 'leave', reason: refusal });
    const key = keyOf(watcher);
    clearTimeout(this.#watching.get(key)?.lease);
    const lease = setTimeout(() => this.#left(key), this.#limits.leaseMs);
    this.#watching.set(key, { order, watcher, lease });
    session.order(order);
    if (this.#state !== 'waiting' || !this.#isWatched) return;
    this.#state = 'running';
    clearTimeout(this.#wait);
    this.#options.start();
  }

  /** Stops all timers. Called when the session ends. */
  stop(): void {
    this.#state = 'over';
    clearTimeout(this.#wait);
    for (const { lease } of this.#watching.values()) clearTimeout(lease);
    this.#watching.clear();
  }

  get #isWatched(): boolean {
    const { rules, owner } = this.#options;
    const watchers = [...this.#watching.values()];
    return rules.every((rule) => watchers.some(({ watcher }) => isModerator(rule, owner, watcher)));
  }

  #refusalOf(watcher: SessionWatcher): string | undefined {
    const { rules, owner } = this.#options;
    if (!rules.some((rule) => isModerator(rule, owner, watcher)))
      return 'you are no moderator of this session';
    const isFull = this.#watching.size >= MAX_WATCHERS && !this.#watching.has(keyOf(watcher));
    return isFull ? `${MAX_WATCHERS} viewers watch it already` : undefined;
  }

  #left(key: string): void {
    const left = this.#watching.get(key);
    if (left === undefined) return;
    this.#watching.delete(key);
    this.#options.session.order({ ...left.order, action: 'leave', reason: '' });
    if (this.#state === 'running' && !this.#isWatched) this.#end('no moderator watches it any more');
  }

  #end(reason: string): void {
    this.stop();
    this.#options.end(new TailcastError('SESSION_ENDED', reason));
  }
}

function keyOf({ nodeId, user = '' }: SessionWatcher): string {
  return `${nodeId} ${user}`;
}

/**
 * Returns true if the rule names the watcher as a moderator. Returns false if the watcher is the user of the session,
 * even at another node.
 */
function isModerator(
  { moderators: { users, tags } }: Pick<ModerationRule, 'moderators'>,
  owner: Identity,
  { nodeId, user, tags: watcherTags = [] }: SessionWatcher,
): boolean {
  if (nodeId === owner.nodeId) return false;
  if (user === undefined) return watcherTags.some((tag) => tags.includes(tag));
  return !isLoginOf(owner, user) && users.includes(user);
}

function isLoginOf(owner: Identity, user: string): boolean {
  return owner.kind === 'user' && user.toLowerCase() === owner.login.toLowerCase();
}

/** Returns a text that names the moderators of each rule, for the user of the session. */
export function moderatorText(rules: readonly ModerationRule[], owner: Identity): string {
  return rules
    .map(({ moderators: { users, tags } }) => {
      const others = users.filter((user) => !isLoginOf(owner, user));
      return [...others, ...tags].slice(0, MAX_NAMED).join(' or ');
    })
    .join(', and ');
}

const MAX_NAMED = 5;
