/**
 * When a flood is written to the journal: not as long as the recorder acknowledges it within a moment. Until then nothing of it is
 * shown, so what is shown is on disk or at a recorder all the same.
 *
 * ```
 *          much at once                   all is acknowledged
 *   idle ───────────────► delayed ──────────────────────────────► idle
 *     ▲                      │ not all for a moment, no room, the recorder is lost
 *     └── rests for a while ◄┴──► the upload writes what waits to the journal
 * ```
 *
 * What a person types for is never delayed: it is small, and the disk answers sooner. While something is delayed, what comes goes with
 * it, as long as there is room (`gathers`): what the recorder has acknowledged is shown while the rest is on its way.
 */

/** Written at once at least: a part of something longer, see `MAX_ALONE_BYTES` of the relay. */
const LEAST_BYTES = 64 * 1024;
/** Written at most until something is acknowledged, of one session and of all together. What is delayed is in memory twice. */
const MOST_BYTES = 4 * 1024 * 1024;
const MOST_BYTES_OF_ALL = 32 * 1024 * 1024;
/** The recorder has so long, and at most twice that, to acknowledge each byte: longer than a busy one takes, and nobody reads a flood sooner. */
const PATIENCE_MS = 100;
/** Then it goes to the journal. When it comes to that again, so does all that follows for so long; each time twice as long. */
const REST_MS = 1_000;
const LONGEST_REST_MS = 32_000;

/** What all uploads of a process share. */
export class DelayRoom {
  /** Bytes that are delayed now. */
  bytes = 0;
}

/** One for each upload. */
export class SaveDelay {
  readonly #room: DelayRoom;
  readonly #mostBytes: number;
  readonly #nowMs: () => number;
  readonly #expired: (() => void) | undefined;
  #bytes = 0;
  /** Those of them that were delayed when it was last looked. */
  #oldBytes = 0;
  #restsUntilMs = -Infinity;
  #restMs = 0;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param expired called when what is delayed has to go to the journal: the recorder took too long. Undefined: everything waits for the
   *   recorder, and there is nothing else to wait for
   * @param windowBytes what may be unacknowledged; 0: nothing that is shown
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

  /** Something is not in the journal. */
  get active(): boolean {
    return this.#bytes > 0;
  }

  /** More may be written before any of it is acknowledged. */
  get gathers(): boolean {
    return this.active && this.#bytes < this.#mostBytes && this.#room.bytes < MOST_BYTES_OF_ALL;
  }

  /** @returns whether so many bytes that are written now are delayed. False while it is active: all goes to the journal now. */
  takes(bytes: number): boolean {
    if (this.#room.bytes + bytes > MOST_BYTES_OF_ALL) return false;
    if (!this.active && !this.#begins(bytes)) return false;
    this.#bytes += bytes;
    this.#room.bytes += bytes;
    return true;
  }

  /** Of what is delayed only the last `bytes` bytes are not acknowledged. */
  keeps(bytes: number): void {
    if (bytes === 0) this.end('acknowledged');
    if (!this.active) return;
    const acknowledged = Math.max(0, this.#bytes - bytes);
    this.#room.bytes -= acknowledged;
    this.#bytes -= acknowledged;
    this.#oldBytes = Math.max(0, this.#oldBytes - acknowledged);
  }

  /** All of it is acknowledged, or written: nothing is delayed any more. */
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
