/**
 * Ends of recordings whose recorder was lost for good. The sessions are over; what they had recorded and no recorder has
 * acknowledged waits here until a recorder takes it or a limit is reached: in memory, and on disk where there is a journal
 * of it. What is on disk and does not fit into memory is offered again by the journals.
 *
 * ```
 *   upload lost ──take──► waiting ──► offered ──acknowledged──► delivered
 *                 │          ▲           │
 *          no room│          └── failed ─┘   the pause doubles, up to a limit
 *                 ▼
 *              dropped ◄── too old, or `close` (what is on disk is kept)
 * ```
 *
 * Ends that are for the same recorders stand in one line: while nobody takes its first one, nobody is asked to take the
 * others. An end goes on where the recorders have acknowledged, as any continued session does; a recorder that never had
 * the session makes a part of it.
 */
import { createBackoff } from '../async/backoff.ts';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { createDeadline } from '../async/deadline.ts';
import type { LateEnd, UploadRest } from './late-end.ts';
import type { RecorderConnection, SessionIntent } from './recorder-connection.ts';

export interface LateLimits {
  /** Bytes that may wait, all sessions together. 0: nothing is delivered late. */
  readonly maxBytes: number;
  /** Sessions whose ends may wait. */
  readonly maxSessions: number;
  /** How long an end may wait. */
  readonly maxAgeMs: number;
  /** Pause before the first attempt and after a success; doubles with each failure, up to `maxRetryMs`. */
  readonly retryMs: number;
  readonly maxRetryMs: number;
  /** Longest pause once the process is to end. */
  readonly hurriedRetryMs: number;
  /** How long a recorder may take without acknowledging anything new. */
  readonly stallMs: number;
  /** How often in a row a recorder may accept an end and then fail without acknowledging anything new. */
  readonly maxFruitless: number;
}

const LATE_LIMITS: LateLimits = {
  maxBytes: 64 * 1024 * 1024,
  maxSessions: 10_000,
  maxAgeMs: 86_400_000,
  retryMs: 1_000,
  maxRetryMs: 30_000,
  hurriedRetryMs: 1_000,
  stallMs: 60_000,
  maxFruitless: 100,
};

const ENDED = 'the gateway has ended';

/** Ends of one line that are offered at the same time, once a recorder has taken the first. */
const AT_A_TIME = 8;

export interface LateDeps {
  /** Opens an upload that continues a session. @throws when no recorder takes it */
  readonly open: (
    intent: SessionIntent,
    recorders: readonly string[],
    signal: AbortSignal,
  ) => Promise<RecorderConnection>;
  readonly nowMs: () => number;
  /** In `[0, 1)`. */
  readonly random: () => number;
  /** Resolves, never rejects, after `ms` or when `signal` aborts. */
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<unknown>;
  readonly log: Logger;
  readonly limits?: Partial<LateLimits>;
}

interface Waiting extends LateEnd {
  readonly sinceMs: number;
  /** What counts against the limit. */
  readonly heldBytes: number;
  /** Of `rest.bytes`. */
  acknowledged: number;
  /** Bytes of lines that are acknowledged, of the whole recording. */
  lineBytes: number;
  /** Counts the uploads of the session. */
  part: number;
  fruitless: number;
}

/** Ends for the same recorders, those that failed last at the end. */
type Line = Set<Waiting>;

/** One per gateway process. */
export class LateDeliveries {
  readonly #deps: LateDeps;
  readonly #limits: LateLimits;
  readonly #lines = new Map<string, Line>();
  readonly #closing = new AbortController();
  /** Aborts when pauses are to be short from now on. */
  readonly #hurry = new AbortController();
  #sessions = 0;
  #heldBytes = 0;

  constructor(deps: LateDeps) {
    this.#deps = deps;
    this.#limits = { ...LATE_LIMITS, ...deps.limits };
  }

  /** Ends that wait, those that are on their way included. */
  get sessions(): number {
    return this.#sessions;
  }

  /** @returns false when the end is dropped at once */
  take(end: LateEnd): boolean {
    const { rest, events } = end;
    const ofBytes = rest.bytes.length;
    if (ofBytes === 0 && !rest.resumable) return false;
    if (end.announced !== true) events.left(ofBytes);
    const heldBytes = ofBytes + rest.preamble.size;
    if (this.#closing.signal.aborted && end.journal !== undefined && rest.resumable) {
      events.kept({ bytes: ofBytes, ofBytes, reason: ENDED });
      return true;
    }
    const reason = this.#refusal(rest);
    if (reason !== undefined) {
      events.dropped({ bytes: ofBytes, ofBytes, reason });
      end.journal?.remove();
      return false;
    }
    const crowded = this.#crowded(heldBytes, end.journal !== undefined);
    if (crowded !== undefined) {
      if (end.journal === undefined) events.dropped({ bytes: ofBytes, ofBytes, reason: crowded });
      else end.journal.wait();
      return end.journal !== undefined;
    }
    this.#sessions += 1;
    this.#heldBytes += heldBytes;
    const sinceMs = this.#deps.nowMs() - (end.waitedMs ?? 0);
    const { part, lineBytes } = rest;
    const waiting = { ...end, sinceMs, heldBytes, acknowledged: 0, lineBytes, part, fruitless: 0 };
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

  /** The process is to end: recorders are asked again soon, and often. */
  hurry(): void {
    this.#hurry.abort();
  }

  /** Whether an end of so many bytes, which is on disk, would be taken now. */
  hasRoom(bytes: number): boolean {
    return this.#crowded(bytes, true) === undefined;
  }

  /** Nothing is delivered any more; what is not on disk is dropped, and so is what comes later. */
  close(): void {
    this.#closing.abort(new Error(ENDED));
    for (const line of this.#lines.values()) {
      for (const waiting of line) {
        if (waiting.journal === undefined) this.#drop(line, waiting, ENDED);
        else this.#keep(line, waiting, ENDED);
      }
    }
  }

  #refusal({ resumable }: UploadRest): string | undefined {
    // to begin again would bring what is there already once more
    if (!resumable) return 'its recorder cannot continue a session';
    return this.#closing.signal.aborted ? ENDED : undefined;
  }

  /** What is on disk may be larger than all of the memory if nothing else is in it: it would never have its turn. */
  #crowded(heldBytes: number, onDisk: boolean): string | undefined {
    const { maxBytes, maxSessions } = this.#limits;
    if (this.#sessions >= maxSessions) return `the ends of ${maxSessions} sessions wait already`;
    if (onDisk && this.#sessions === 0 && maxBytes > 0) return undefined;
    if (this.#heldBytes + heldBytes > maxBytes) return `more than ${maxBytes} bytes would wait`;
    return undefined;
  }

  /** Resolves, never rejects, when nothing stands in the line any more. */
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

  /** Somewhere between half of `pauseMs` and all of it, less in a hurry. */
  async #pause(pauseMs: number): Promise<void> {
    const closing = this.#closing.signal;
    const hurry = this.#hurry.signal;
    const longestMs = hurry.aborted ? Math.min(pauseMs, this.#limits.hurriedRetryMs) : pauseMs;
    const signal = hurry.aborted ? closing : AbortSignal.any([closing, hurry]);
    const ms = (longestMs * (1 + this.#deps.random())) / 2;
    await (this.#deps.sleep ?? pause)(ms, signal);
  }

  /** Offers the first one, to find out whether anybody takes it, and then the others. @returns whether somebody does */
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
      // each of them may leave a part of the recording behind
      if (waiting.fruitless >= this.#limits.maxFruitless) this.#drop(line, waiting, reason);
      else if (line.delete(waiting)) line.add(waiting);
      return false;
    }
  }

  /** @returns the recorder that has acknowledged everything. @throws when it has not */
  async #send(waiting: Waiting): Promise<string> {
    const { sessionId, recorders, rest } = waiting;
    const { signal } = this.#closing;
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
    const onAbort = (): void => over.reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
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
      await over.promise;
      if (waiting.acknowledged < rest.bytes.length) throw new Error('not everything was acknowledged');
    } catch (error) {
      connection.destroy();
      throw error;
    } finally {
      stall.clear();
      signal.removeEventListener('abort', onAbort);
    }
    return connection.address;
  }

  #dropOld(line: Line): void {
    const bornMs = this.#deps.nowMs() - this.#limits.maxAgeMs;
    for (const waiting of line) {
      if (waiting.sinceMs <= bornMs) this.#drop(line, waiting, 'no recorder took it in time');
    }
  }

  #drop(line: Line, waiting: Waiting, reason: string): void {
    if (!this.#remove(line, waiting)) return;
    waiting.journal?.remove();
    const ofBytes = waiting.rest.bytes.length;
    waiting.events.dropped({ bytes: ofBytes - waiting.acknowledged, ofBytes, reason });
  }

  #keep(line: Line, waiting: Waiting, reason: string): void {
    if (!this.#remove(line, waiting)) return;
    const ofBytes = waiting.rest.bytes.length;
    waiting.events.kept({ bytes: ofBytes - waiting.acknowledged, ofBytes, reason });
  }

  /** @returns false when it was gone already */
  #remove(line: Line, waiting: Waiting): boolean {
    if (!line.delete(waiting)) return false;
    this.#sessions -= 1;
    this.#heldBytes -= waiting.heldBytes;
    return true;
  }
}
