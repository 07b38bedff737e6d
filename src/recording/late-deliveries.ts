/**
 * Late deliveries: uploads of the *tail* (the unacknowledged last bytes) of a recording after its session ended without
 * a recorder. A tail stays in memory, and on disk if there is a journal, until a recorder accepts it or a limit is
 * reached. If a tail on disk does not fit into memory, the journal offers the tail again later.
 *
 * ```
 *   upload lost ──take──► waiting ──► offered ──acknowledged──► delivered
 *                 │          ▲           │
 *          no room│          └── failed ─┘   the pause doubles, up to a limit
 *                 ▼
 *              dropped ◄── too old, or `close` (tails on disk are kept)
 * ```
 *
 * Tails for the same recorders form one queue. The other tails of the queue are not offered until a recorder accepts
 * the first tail. The recorder that has stored the beginning continues the recording after the last acknowledged byte.
 * Another recorder stores the tail as a new part of the session.
 */
import { createBackoff } from '../async/backoff.ts';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import { createKeyedCounter } from '../keyed-counter.ts';
import { Shares } from '../memory/shares.ts';
import type { Logger } from '../observe/logger.ts';
import { createDeadline } from '../async/deadline.ts';
import type { LateEnd } from './late-end.ts';
import type { RecorderConnection, SessionIntent } from './recorder-connection.ts';
import { unlessAborted } from '../async/with-timeout.ts';

/** Limits of late deliveries. */
const LATE_LIMITS = {
  /** Maximum number of bytes of all queued tails in total. Users share it, see `Shares`. 0 disables late deliveries. */
  maxBytes: 64 * 1024 * 1024,
  /** Maximum number of queued tails. Users share it, see `KeyedCounter.hasShare`. */
  maxSessions: 10_000,
  /** Maximum age of a queued tail. */
  maxAgeMs: 86_400_000,
  /** Pause before the first attempt and after a success. The pause doubles with each failure, up to `maxRetryMs`. */
  retryMs: 1_000,
  maxRetryMs: 30_000,
  /** Maximum pause between attempts after `hurry` was called. */
  hurriedRetryMs: 1_000,
  /** Maximum time without a new acknowledgement of the recorder. */
  stallMs: 60_000,
  /**
   * Maximum number of consecutive attempts in which a recorder accepted the upload but acknowledged no new
   * bytes.
   */
  maxFruitless: 100,
};
export type LateLimits = Readonly<typeof LATE_LIMITS>;

const ENDED = 'the gateway has ended';

/**
 * Maximum number of tails of one queue that are delivered in parallel, after a recorder has accepted the first tail.
 */
const AT_A_TIME = 8;

export interface LateDeps {
  /** Opens an upload that continues a session. @throws Error if no recorder accepts it */
  readonly open: (
    intent: SessionIntent,
    recorders: readonly string[],
    signal: AbortSignal,
  ) => Promise<RecorderConnection>;
  readonly nowMs: () => number;
  /** Returns a random number in `[0, 1)`. */
  readonly random: () => number;
  /** Resolves after `ms` or when `signal` aborts. Never rejects. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<unknown>;
  readonly log: Logger;
  readonly limits?: Partial<LateLimits>;
}

interface Waiting extends LateEnd {
  readonly sinceMs: number;
  /** Frees the slot and the bytes that the tail uses. */
  readonly release: () => void;
  /** Number of acknowledged bytes of `rest.bytes`. */
  acknowledged: number;
  /** Number of acknowledged bytes of asciicast lines since the start of the recording. */
  lineBytes: number;
  /** Number of uploads of the session. */
  part: number;
  fruitless: number;
}

/** Queue of tails for the same recorders. The tail whose delivery failed most recently comes last. */
type Line = Set<Waiting>;

/** Late deliveries of a gateway process. */
export class LateDeliveries {
  readonly #deps: LateDeps;
  readonly #limits: LateLimits;
  readonly #lines = new Map<string, Line>();
  readonly #closing = new AbortController();
  /** Aborted by `hurry`. After the abort, all pauses are short. */
  readonly #hurry = new AbortController();
  readonly #sessions = createKeyedCounter();
  /** Bytes of the tails and of their preambles. */
  readonly #bytes: Shares;

  constructor(deps: LateDeps) {
    this.#deps = deps;
    this.#limits = { ...LATE_LIMITS, ...deps.limits };
    this.#bytes = new Shares(this.#limits.maxBytes);
  }

  /** Number of queued tails, including those that are being delivered. */
  get sessions(): number {
    return this.#sessions.total;
  }

  /** Queues a tail. @returns false if the tail was dropped */
  take(end: LateEnd): boolean {
    const { rest, events, user } = end;
    const ofBytes = rest.bytes.length;
    if (ofBytes === 0 && !rest.resumable) return false;
    if (end.announced !== true) events.left(ofBytes);
    const heldBytes = ofBytes + rest.preamble.size;
    if (!rest.resumable) {
      // Without this check, another recorder would store bytes that the lost recorder already has.
      events.dropped({ bytes: ofBytes, ofBytes, reason: 'its recorder cannot continue a session' });
      end.journal?.remove();
      return false;
    }
    if (this.#closing.signal.aborted) return this.#leaveToDisk(end, 0, ENDED);
    const crowded = this.#crowded(heldBytes, user, end.journal !== undefined);
    if (crowded !== undefined) {
      const saved = this.#dropUnsaved(end, 0, crowded);
      if (saved !== undefined) end.journal?.wait();
      return saved !== undefined;
    }
    const leave = this.#sessions.take(user);
    this.#bytes.keep(user, heldBytes);
    const release = (): void => {
      leave();
      this.#bytes.give(user, heldBytes);
    };
    const sinceMs = this.#deps.nowMs() - (end.waitedMs ?? 0);
    const { part, lineBytes } = rest;
    const waiting = { ...end, sinceMs, release, acknowledged: 0, lineBytes, part, fruitless: 0 };
    const key = end.recorders.join(' ');
    const known = this.#lines.get(key);
    if (known !== undefined) {
      known.add(waiting);
      return true;
    }
    const line: Line = new Set([waiting]);
    this.#lines.set(key, line);
    void this.#work(key, line);
    return true;
  }

  /** Shortens the pauses between attempts, because the process shuts down. */
  hurry(): void {
    this.#hurry.abort();
  }

  /** Returns true if a tail of `bytes` bytes that is on disk fits into the share of the user. */
  hasRoom(bytes: number, user: string): boolean {
    return this.#crowded(bytes, user, true) === undefined;
  }

  /** Stops all deliveries. Drops tails that are not on disk, including tails that are passed to `take` later. */
  close(): void {
    this.#closing.abort(new Error(ENDED));
    for (const line of this.#lines.values()) {
      for (const waiting of line) this.#keep(line, waiting, ENDED);
    }
  }

  /**
   * Returns the reason why a tail does not fit, or undefined. If the queue is empty, a tail on disk may
   * exceed the share.
   */
  #crowded(heldBytes: number, user: string, onDisk: boolean): string | undefined {
    const { maxBytes, maxSessions } = this.#limits;
    if (!this.#sessions.hasShare(user, maxSessions))
      return `the undelivered recordings of the user exceed the user's share of ${maxSessions}`;
    if (onDisk && this.sessions === 0 && maxBytes > 0) return undefined;
    if (heldBytes > this.#bytes.spaceOf(user))
      return `the undelivered output of the user exceeds the user's share of ${maxBytes} bytes`;
    return undefined;
  }

  /** Delivers a queue until it is empty. Never rejects. */
  async #work(key: string, line: Line): Promise<void> {
    const { retryMs, maxRetryMs } = this.#limits;
    const backoff = createBackoff({ baseMs: retryMs, maxMs: maxRetryMs });
    while (line.size > 0) {
      await this.#pause(backoff.next());
      this.#dropOld(line);
      if (await this.#round(line)) backoff.reset();
    }
    this.#lines.delete(key);
  }

  /** Waits for a random time between half of `pauseMs` and `pauseMs`, or for a shorter time after `hurry`. */
  async #pause(pauseMs: number): Promise<void> {
    const closing = this.#closing.signal;
    const hurry = this.#hurry.signal;
    const longestMs = hurry.aborted ? Math.min(pauseMs, this.#limits.hurriedRetryMs) : pauseMs;
    const signal = hurry.aborted ? closing : AbortSignal.any([closing, hurry]);
    const ms = (longestMs * (1 + this.#deps.random())) / 2;
    await (this.#deps.sleep ?? pause)(ms, signal);
  }

  /**
   * Delivers the first tail of the queue and, after a success, the others.
   * @returns true if the first delivery succeeded
   */
  async #round(line: Line): Promise<boolean> {
    const [first, ...others] = line;
    if (first === undefined || !(await this.#deliver(line, first))) return false;
    for (let start = 0; start < others.length; start += AT_A_TIME) {
      const some = others.slice(start, start + AT_A_TIME);
      const taken = await Promise.all(some.map((waiting) => this.#deliver(line, waiting)));
      if (!taken.includes(true)) break;
    }
    return true;
  }

  async #deliver(line: Line, waiting: Waiting): Promise<boolean> {
    const { sessionId, recorders, rest, events, journal } = waiting;
    if (journal?.taken === true) {
      this.#keep(line, waiting, 'another process has taken it over');
      return false;
    }
    try {
      const recorder = await this.#send(waiting);
      if (!this.#remove(line, waiting)) return false;
      journal?.remove();
      const waitedMs = this.#deps.nowMs() - waiting.sinceMs;
      events.delivered({ bytes: rest.bytes.length, recorder, waitedMs });
      return true;
    } catch (error) {
      const reason = errorText(error);
      this.#deps.log.debug({ sessionId, recorders, reason }, 'not delivered yet');
      // Gives up after too many attempts, because each failed attempt may store another part of the recording
      // at the recorder.
      if (waiting.fruitless >= this.#limits.maxFruitless) this.#drop(line, waiting, reason);
      else if (line.delete(waiting)) line.add(waiting);
      return false;
    }
  }

  /**
   * Sends one tail.
   * @returns the address of the recorder.
   * @throws Error if the recorder did not acknowledge all bytes
   */
  async #send(waiting: Waiting): Promise<string> {
    const { sessionId, rest } = waiting;
    const { signal } = this.#closing;
    const recorders = (await waiting.find?.(signal)) ?? waiting.recorders;
    const offset = waiting.lineBytes;
    const intent = {
      sessionId,
      offset,
      frames: rest.offset + waiting.acknowledged,
      part: waiting.part + 1,
      preamble: rest.preamble.before(offset),
      recorders,
      ...(rest.recorder === undefined ? {} : { before: rest.recorder }),
    };
    const connection = await this.#deps.open(intent, recorders, signal);
    waiting.part += 1;
    waiting.fruitless += 1;
    const over = Promise.withResolvers<void>();
    const stall = createDeadline(this.#limits.stallMs, () =>
      over.reject(new Error(`nothing was acknowledged for ${this.#limits.stallMs} ms`)),
    );
    connection.attach({
      acknowledged(upTo, lineBytes = upTo) {
        const bytes = Math.min(upTo - rest.offset, rest.bytes.length);
        if (bytes <= waiting.acknowledged) return;
        waiting.acknowledged = bytes;
        waiting.lineBytes = lineBytes;
        waiting.fruitless = 0;
        stall.extend();
      },
      finished: over.resolve,
      lost: over.reject,
    });
    connection.send(rest.bytes.subarray(waiting.acknowledged));
    connection.finish();
    try {
      await unlessAborted(over.promise, signal);
      if (waiting.acknowledged < rest.bytes.length) throw new Error('not everything was acknowledged');
    } catch (error) {
      connection.destroy();
      throw error;
    } finally {
      stall.clear();
    }
    return connection.address;
  }

  #dropOld(line: Line): void {
    const bornMs = this.#deps.nowMs() - this.#limits.maxAgeMs;
    for (const waiting of line) {
      if (waiting.sinceMs <= bornMs) this.#drop(line, waiting, 'no recorder accepted it in time');
    }
  }

  #drop(line: Line, waiting: Waiting, reason: string): void {
    if (!this.#remove(line, waiting)) return;
    waiting.journal?.remove();
    const ofBytes = waiting.rest.bytes.length;
    waiting.events.dropped({ bytes: ofBytes - waiting.acknowledged, ofBytes, reason });
  }

  #keep(line: Line, waiting: Waiting, reason: string): void {
    if (this.#remove(line, waiting)) this.#leaveToDisk(waiting, waiting.acknowledged, reason);
  }

  /** Leaves a tail to the next process. @returns false if no part of the tail is on disk */
  #leaveToDisk(end: LateEnd, acknowledged: number, reason: string): boolean {
    const saved = this.#dropUnsaved(end, acknowledged, reason);
    if (saved !== undefined) end.events.kept({ ...saved, reason });
    return saved !== undefined;
  }

  /**
   * Drops the bytes of a tail that are neither acknowledged nor on disk. The bytes on disk then form a tail of their
   * own.
   * @param acknowledged number of acknowledged bytes at the start of the tail
   * @returns undefined if no unacknowledged byte is on disk. Otherwise, `bytes` is the number of unacknowledged bytes
   * on disk, and `ofBytes` is the size of the tail that contains them
   */
  #dropUnsaved(
    { rest, events, journal }: LateEnd,
    acknowledged: number,
    reason: string,
  ): { readonly bytes: number; readonly ofBytes: number } | undefined {
    const ofBytes = rest.bytes.length;
    const saved = journal === undefined ? 0 : (rest.journaled ?? ofBytes);
    const onDisk = Math.max(0, saved - acknowledged);
    const lost = ofBytes - Math.max(saved, acknowledged);
    if (journal !== undefined && lost === 0) return { bytes: onDisk, ofBytes };
    events.dropped({ bytes: lost, ofBytes, reason });
    if (onDisk === 0) {
      journal?.remove();
      return undefined;
    }
    events.left(onDisk);
    return { bytes: onDisk, ofBytes: onDisk };
  }

  /** @returns false if the tail had already been removed */
  #remove(line: Line, waiting: Waiting): boolean {
    if (!line.delete(waiting)) return false;
    waiting.release();
    return true;
  }
}
