/**
 * Decides when a burst of output is written to the journal. As long as the recorder acknowledges a burst within a
 * moment, the journal write is skipped. The client does not see the burst until then, so each byte that the client sees
 * is on disk or at a recorder.
 *
 * ```
 *          large write                    everything is acknowledged
 *   idle ───────────────► delayed ──────────────────────────────────► idle
 *     ▲                      │ timeout, memory limit, or the recorder is lost
 *     └──── pause ◄──────────┴──► the upload writes the delayed bytes to the journal
 * ```
 *
 * Interactive output is never delayed: it is small, and the disk is faster than the recorder. While a burst is delayed,
 * further output joins it up to a limit (`gathers`), and acknowledged bytes are shown.
 */

/** Minimum size of a write that can start a delay: part of a longer output, see `MAX_ALONE_BYTES` of the relay. */
const LEAST_BYTES = 64 * 1024;
/** Maximum delayed bytes of one session and of all sessions. Delayed bytes are in memory twice. */
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_BYTES_OF_ALL = 32 * 1024 * 1024;
/**
 * Time in which the recorder must acknowledge each byte; at most twice this time passes. A busy recorder needs less.
 */
const PATIENCE_MS = 100;
/** Pause after repeated timeouts, in which the journal is written immediately. It doubles each time. */
const REST_MS = 1_000;
const LONGEST_REST_MS = 32_000;

/** Delayed bytes of all uploads of a process. */
export class DelayRoom {
  /** Number of delayed bytes. */
  bytes = 0;
}

/** Delay state of one upload. */
export class SaveDelay {
  readonly #room: DelayRoom;
  readonly #mostBytes: number;
  readonly #nowMs: () => number;
  readonly #expired: (() => void) | undefined;
  #bytes = 0;
  /** Number of delayed bytes that were delayed at the last timer tick already. */
  #oldBytes = 0;
  #restsUntilMs = -Infinity;
  #restMs = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param expired called when the delayed bytes must be written to the journal because the recorder is too slow.
   *   Undefined: all output waits for the recorder
   * @param windowBytes maximum unacknowledged bytes; 0: the client sees acknowledged bytes only
   */
  constructor(
    room: DelayRoom,
    expired: (() => void) | undefined,
    windowBytes: number,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#room = room;
    this.#mostBytes = windowBytes === 0 ? MOST_BYTES : Math.min(MOST_BYTES, windowBytes);
    this.#nowMs = nowMs;
    this.#expired = expired;
  }

  /** True if bytes are delayed. */
  get active(): boolean {
    return this.#bytes > 0;
  }

  /** True if more bytes may be written before an acknowledgement. */
  get gathers(): boolean {
    return this.active && this.#bytes < this.#mostBytes && this.#room.bytes < MOST_BYTES_OF_ALL;
  }

  /**
   * Tries to delay a write of `bytes` bytes. @returns false if the write, and all delayed bytes, must go to the journal
   * now
   */
  takes(bytes: number): boolean {
    if (this.#room.bytes + bytes > MOST_BYTES_OF_ALL) return false;
    if (!this.active && !this.#begins(bytes)) return false;
    this.#bytes += bytes;
    this.#room.bytes += bytes;
    return true;
  }

  /** Sets the number of delayed bytes that are not acknowledged. */
  keeps(bytes: number): void {
    if (bytes === 0) this.end('acknowledged');
    if (!this.active) return;
    const acknowledged = Math.max(0, this.#bytes - bytes);
    this.#room.bytes -= acknowledged;
    this.#bytes -= acknowledged;
    this.#oldBytes = Math.max(0, this.#oldBytes - acknowledged);
  }

  /** Ends the delay: all bytes are acknowledged, or written to the journal. */
  end(how: 'acknowledged' | 'written'): void {
    if (!this.active) return;
    this.#room.bytes -= this.#bytes;
    this.#bytes = 0;
    this.#oldBytes = 0;
    clearInterval(this.#timer);
    if (how === 'written') this.#rest();
    else this.#restMs = 0;
  }

  #rest(): void {
    this.#restsUntilMs = this.#nowMs() + this.#restMs;
    this.#restMs = Math.min(Math.max(2 * this.#restMs, REST_MS), LONGEST_REST_MS);
  }

  #begins(bytes: number): boolean {
    const expired = this.#expired;
    if (expired === undefined) return true;
    if (bytes < LEAST_BYTES || this.#nowMs() < this.#restsUntilMs) return false;
    this.#oldBytes = bytes;
    this.#timer = setInterval(() => {
      if (this.#oldBytes > 0) expired();
      else this.#oldBytes = this.#bytes;
    }, PATIENCE_MS);
    return true;
  }
}
