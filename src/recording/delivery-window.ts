/**
 * Decides when the client may see recorded output. Offsets count bytes of the recording.
 *
 * ```
 *   policy      the client sees output …
 *   window      after it is in the journal or acknowledged by the recorder
 *   window0     after the recorder acknowledged it as durable (`--recorder-window 0`)
 *   bestEffort  immediately: the recorder cannot continue a session, or there is no journal
 * ```
 *
 * With every policy, writers wait while more than `bytes` bytes are unacknowledged. `bytes` therefore limits
 * the memory of an upload.
 *
 * With the policy `window`, a *burst* (long output) is not written to the journal if the recorder acknowledges it in
 * time. The client then sees the burst after the acknowledgement. States:
 *
 * ```
 *          large write                     everything is acknowledged
 *   idle ───────────────► unsaved burst ────────────────────────────────► idle
 *     ▲                      │ timeout, memory limit, or the recorder is lost
 *     └──── pause ◄──────────┴──► the burst is written to the journal
 * ```
 *
 * Interactive output is always written to the journal immediately, because it is small and the disk is faster than the
 * recorder. More output can join a burst until the burst is saved or full (`acceptsMore`). The client sees the
 * acknowledged part of a burst.
 */
import { createDeadline } from '../async/deadline.ts';
import { Shares } from '../memory/shares.ts';
import type { SessionJournal } from './journal/session-journal.ts';
import type { RetainedBytes } from './retained-bytes.ts';

export type DeliveryPolicy = 'window' | 'window0' | 'bestEffort';

/**
 * Minimum size of a write that starts a burst. Writes of this size occur only in long output, because the relay then
 * joins chunks (see `MAX_ALONE_BYTES` of the relay).
 */
const LEAST_BURST_BYTES = 64 * 1024;
/**
 * Maximum number of unsaved bytes (neither acknowledged nor in the journal) of one session, and of all sessions
 * together. Users share the total, see `Shares`. Each unsaved byte is in memory twice.
 */
const MAX_BURST_BYTES = 4 * 1024 * 1024;
const MAX_BURST_BYTES_OF_ALL = 32 * 1024 * 1024;
/**
 * Maximum number of unacknowledged bytes of all sessions together. Users share it, see `Shares`. After a user has used
 * up the share, each session of the user may have only {@link SCARCE_WINDOW_BYTES}. Without this limit, 200 sessions of
 * one user at a slow recorder would keep 1.6 GiB in memory.
 */
const MAX_RETAINED_BYTES_OF_ALL = 64 * 1024 * 1024;
const SCARCE_WINDOW_BYTES = 256 * 1024;
/** Interval at which a burst is checked for old bytes. A byte stays unsaved for at most twice this time. */
const PATIENCE_MS = 100;
/**
 * Pause after two successive bursts that the recorder did not acknowledge in time. During a pause, all output goes to
 * the journal immediately. Each further burst of this kind doubles the pause.
 */
const PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 32_000;

/** Memory that the uploads of a process share. */
export interface UploadMemory {
  /** Shares of the users in the unsaved bytes. */
  readonly unsaved: Shares;
  /** Shares of the users in the unacknowledged bytes. */
  readonly retained: Shares;
}

export function createUploadMemory(): UploadMemory {
  return {
    unsaved: new Shares(MAX_BURST_BYTES_OF_ALL),
    retained: new Shares(MAX_RETAINED_BYTES_OF_ALL),
  };
}

export interface WindowOptions {
  readonly policy: DeliveryPolicy;
  /** Maximum number of unacknowledged bytes before writers wait; 0 with policy `window0`. */
  readonly bytes: number;
  /** Unacknowledged bytes of the upload. */
  readonly retained: RetainedBytes;
  /** Journal to which the window writes; only with policy `window`. */
  readonly journal?: SessionJournal | undefined;
  /** Memory that all uploads share. If absent, each write goes to the journal immediately. */
  readonly memory?: UploadMemory | undefined;
  /** User of the session. */
  readonly user: string;
  /** Maximum time without an acknowledgement while writers wait, in milliseconds. */
  readonly stallMs: number;
  /** Called when writers waited for `stallMs` without an acknowledgement. */
  readonly stalled: () => void;
  readonly nowMs?: () => number;
}

/** A writer that waits until the client may see the bytes before `end`. */
interface Writer {
  readonly end: number;
  readonly shown: PromiseWithResolvers<void>;
}

/** Delivery window of one upload. */
export class DeliveryWindow {
  readonly policy: DeliveryPolicy;
  readonly #options: WindowOptions;
  readonly #memory: UploadMemory;
  readonly #maxBurstBytes: number;
  readonly #nowMs: () => number;
  readonly #writers: Writer[] = [];
  #stall: ReturnType<typeof createDeadline> | undefined;
  /** True if the last bytes could not be written to the journal. Writers then wait for acknowledgements. */
  #journalFailed = false;
  /** Number of bytes of the current burst that are neither acknowledged nor in the journal. */
  #burstBytes = 0;
  /** Offset of the first byte of the burst. */
  #burstStart = 0;
  /** Number of bytes of the burst that were already unsaved at the last check. */
  #oldBytes = 0;
  #patience: NodeJS.Timeout | undefined;
  #pausedUntilMs = -Infinity;
  #pauseMs = 0;
  #detached = false;
  /** Number of unacknowledged bytes of this session that `memory.retained` counts. */
  #counted = 0;

  constructor(options: WindowOptions) {
    this.#options = options;
    this.policy = options.policy;
    this.#memory = options.memory ?? createUploadMemory();
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#maxBurstBytes =
      options.policy === 'window0' ? MAX_BURST_BYTES : Math.min(MAX_BURST_BYTES, options.bytes);
  }

  /**
   * True if a writer may write again before the promise of its last write resolves. The newest promise covers all
   * earlier writes.
   */
  get acceptsMore(): boolean {
    return this.#isBurst && this.#burstBytes < this.#maxBurstBytes && this.#burstSpace > 0;
  }

  /**
   * Adds bytes that the upload has just retained.
   * @param pieces the bytes that start at `offset`
   * @returns a promise if the client must not see the bytes yet. The promise rejects with the reason that was passed to
   * `lost`
   */
  admit(offset: number, pieces: readonly Uint8Array[]): void | Promise<void> {
    this.#count(this.#options.retained.size);
    this.#save(offset, pieces);
    return this.whenShown();
  }

  /** Like `admit`, returns a promise if the client must not see the last bytes yet. Adds no bytes. */
  whenShown(): void | Promise<void> {
    const { end } = this.#options.retained;
    if (end <= this.#safeEnd) return undefined;
    this.#watchStall();
    const last = this.#writers.at(-1);
    if (last?.end === end) return last.shown.promise;
    const shown = Promise.withResolvers<void>();
    shown.promise.catch(() => {});
    this.#writers.push({ end, shown });
    return shown.promise;
  }

  /** Called when the recorder acknowledged the bytes before `offset`. The upload has already released these bytes. */
  acknowledged(offset: number, lineBytes: number): void {
    const { retained, journal } = this.#options;
    this.#count(retained.size);
    journal?.acknowledged(offset, lineBytes);
    if (retained.size === 0) this.#journalFailed = false;
    this.#shrinkBurst(retained.end - Math.max(this.#burstStart, retained.start));
    this.#stall?.extend();
    this.#release();
  }

  /** Called when the connection is lost and the upload looks for another recorder. Writes the burst to the journal. */
  detached(): void {
    this.#detached = true;
    this.#saveBurst();
    this.close();
  }

  /** Called when another connection continues the upload. */
  attached(): void {
    this.#detached = false;
    this.#count(this.#options.retained.size);
    // Normally a write starts the stall timer. Waiting writers write nothing, so the timer is started here.
    if (this.#writers.length > 0) this.#watchStall();
  }

  /** Rejects all writers, because no recorder continues the upload. */
  lost(reason: Error): void {
    this.close();
    for (const { shown } of this.#writers.splice(0)) shown.reject(reason);
  }

  /** Stops all timers, and forgets the burst. */
  close(): void {
    this.#shrinkBurst(0);
    this.#stopStall();
    this.#count(0);
  }

  get #isBurst(): boolean {
    return this.#burstBytes > 0;
  }

  /** Offset before which the client may see all output. */
  get #safeEnd(): number {
    const { bytes, retained, user } = this.#options;
    if (this.#journalFailed || this.#isBurst) return retained.start;
    const isScarce = this.#memory.retained.spaceOf(user) === 0;
    return retained.start + (isScarce ? Math.min(bytes, SCARCE_WINDOW_BYTES) : bytes);
  }

  /** Sets the number of unacknowledged bytes of this session. */
  #count(bytes: number): void {
    this.#memory.retained.keep(this.#options.user, bytes - this.#counted);
    this.#counted = bytes;
  }

  #release(): void {
    while ((this.#writers[0]?.end ?? Infinity) <= this.#safeEnd) this.#writers.shift()?.shown.resolve();
    if (this.#writers.length === 0) this.#stopStall();
  }

  #watchStall(): void {
    this.#stall ??= createDeadline(this.#options.stallMs, this.#options.stalled);
  }

  #stopStall(): void {
    this.#stall?.clear();
    this.#stall = undefined;
  }

  /** Writes the bytes to the journal or adds them to a burst. */
  #save(offset: number, pieces: readonly Uint8Array[]): void {
    const { journal, retained } = this.#options;
    const bytes = retained.end - offset;
    // With `window0`, the window writes nothing to the journal. The upload writes to the journal after the recorder is
    // lost.
    if (this.policy === 'window0') void this.#joinBurst(bytes);
    if (this.policy !== 'window') return;
    if (!this.#isBurst) this.#burstStart = offset;
    if (this.#mayDelay && this.#joinBurst(bytes)) return;
    if (this.#isBurst) this.#saveBurst();
    else this.#journalFailed = journal?.append(offset, pieces, retained.preamble) !== true;
  }

  get #mayDelay(): boolean {
    return this.#options.memory !== undefined && !this.#detached && !this.#journalFailed;
  }

  /**
   * Adds bytes to the burst.
   * @returns false if these bytes and the burst must be written to the journal now
   */
  #joinBurst(bytes: number): boolean {
    // With `window0`, all bytes are unsaved, so `acceptsMore` must count them.
    if (bytes > this.#burstSpace && this.policy !== 'window0') return false;
    if (!this.#isBurst && !this.#mayStartBurst(bytes)) return false;
    this.#burstBytes += bytes;
    this.#memory.unsaved.keep(this.#options.user, bytes);
    return true;
  }

  /** Number of bytes by which bursts of the user may grow. */
  get #burstSpace(): number {
    return this.#memory.unsaved.spaceOf(this.#options.user);
  }

  #mayStartBurst(bytes: number): boolean {
    if (this.policy === 'window0') return true;
    if (bytes < LEAST_BURST_BYTES || this.#nowMs() < this.#pausedUntilMs) return false;
    this.#oldBytes = bytes;
    this.#patience = setInterval(() => {
      if (this.#oldBytes > 0) this.#saveBurst();
      else this.#oldBytes = this.#burstBytes;
    }, PATIENCE_MS);
    return true;
  }

  /** Sets the number of unsaved bytes after an acknowledgement. */
  #shrinkBurst(bytes: number): void {
    if (bytes === 0 && this.#isBurst) {
      this.#endBurst();
      this.#pauseMs = 0;
    }
    if (!this.#isBurst) return;
    const acknowledged = Math.max(0, this.#burstBytes - bytes);
    this.#memory.unsaved.give(this.#options.user, acknowledged);
    this.#burstBytes -= acknowledged;
    this.#oldBytes = Math.max(0, this.#oldBytes - acknowledged);
  }

  /** Writes the burst to the journal. */
  #saveBurst(): void {
    if (!this.#isBurst || this.policy !== 'window') return;
    const { journal, retained } = this.#options;
    const from = Math.max(this.#burstStart, retained.start);
    this.#journalFailed = journal?.append(from, retained.pieces(from), retained.preamble) !== true;
    this.#endBurst();
    this.#pausedUntilMs = this.#nowMs() + this.#pauseMs;
    this.#pauseMs = Math.min(Math.max(2 * this.#pauseMs, PAUSE_MS), MAX_PAUSE_MS);
    this.#release();
  }

  #endBurst(): void {
    this.#memory.unsaved.give(this.#options.user, this.#burstBytes);
    this.#burstBytes = 0;
    this.#oldBytes = 0;
    clearInterval(this.#patience);
  }
}
