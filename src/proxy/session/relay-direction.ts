/**
 * One direction of a relay: every chunk goes past the tap before it goes to the sink, one at a time.
 *
 * A server that has said everything closes its connection while much of it is still in the buffers of the way here, when
 * a slow recorder or a slow client holds it back. One more byte to such a server makes its system throw the rest away.
 * So what may wait, the heartbeats of a client, waits until everything is here.
 */
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { passedThrough } from '../../memory/stream-garbage.ts';

/** A stage that sees every chunk before it is delivered. */
export interface RelayTap {
  /** A promise holds the chunk back until it resolves; a throw or a rejection stops the relay with the chunk unsent. */
  push(chunk: Uint8Array): void | Promise<void>;
  /** The chunk has been handed to the other end. */
  delivered(): void;
  /**
   * For how long the chunk that was pushed last may be kept back while the other direction is behind, in milliseconds.
   * 0 or nothing: it must not wait for that.
   */
  readonly patienceMs?: number;
}

/** A direction has caught up when nothing held it back, and nothing came, for this long. */
const CAUGHT_UP_MS = 100;
/**
 * Taken together at most. Where output is shown when it is durable, `cat` of text is relayed at 21 MB/s piece by piece, at 42
 * with 64 KiB and at 58 with this. Without a limit it is 90, in three times the memory: the blocks that lines are written into
 * are not used again beyond 256 KiB.
 */
const MAX_TAKEN_BYTES = 128 * 1024;

export interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly tap: RelayTap | undefined;
  /** Called with what the tap threw; nothing is delivered from that chunk on. */
  readonly refuse: (error: unknown) => void;
  readonly otherIsBehind: () => boolean;
  /** Bytes for the sink before its end, behind everything else. */
  readonly lastWords?: (() => Uint8Array | undefined) | undefined;
}

export class Direction {
  readonly #options: DirectionOptions;
  #bytes = 0;
  /** Reasons to wait: the tap, the sink. The source flows when there is none. */
  #holds = 0;
  #state: 'running' | 'stopped' | 'discarding' = 'running';
  #ended = false;
  /** Runs from when it was held back, or something came after that; undefined when it has caught up. */
  #catchingUp: NodeJS.Timeout | undefined;
  /** How often that has begun anew. */
  #stirs = 0;

  constructor(options: DirectionOptions) {
    this.#options = options;
  }

  /** Taken from the source. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Something holds it back, or did until a moment ago. */
  get behind(): boolean {
    if (this.#state !== 'running') return false;
    return this.#holds > 0 || this.#catchingUp !== undefined;
  }

  start(head: Uint8Array): void {
    const { source } = this.#options;
    source.pause();
    source.on('data', this.#take);
    source.once('end', this.endSource);
    if (head.length > 0) this.#take(head);
    if (this.#holds === 0 && this.#state === 'running') source.resume();
  }

  stop(): void {
    const { source, sink } = this.#options;
    this.#state = 'stopped';
    clearTimeout(this.#catchingUp);
    source.off('data', this.#take);
    source.off('end', this.endSource);
    sink.off('drain', this.#release);
    source.pause();
  }

  /**
   * Nothing more comes from the source: the sink is ended when it has what was taken. A socket says that it has ended
   * even while it is paused, with a chunk still in the hands of the tap.
   */
  readonly endSource = (): void => {
    this.#ended = true;
    if (this.#holds === 0) this.#endSink();
  };

  /** The sink is gone: what still comes is read and dropped, so that the source can end. */
  discard(): void {
    if (this.#state === 'stopped') return;
    this.#state = 'discarding';
    this.#options.source.resume();
  }

  readonly #take = (chunk: Uint8Array): void => {
    const { tap, refuse, otherIsBehind } = this.#options;
    if (this.#state !== 'running') return;
    this.#bytes += chunk.length;
    passedThrough(chunk.length);
    if (this.#catchingUp !== undefined) this.#stir();
    if (tap === undefined) return this.#deliver(chunk);
    let wait: void | Promise<void>;
    try {
      wait = tap.push(chunk);
    } catch (error) {
      return refuse(error);
    }
    const { patienceMs = 0 } = tap;
    if (patienceMs > 0 && otherIsBehind()) wait = this.#waitForOther(wait, patienceMs);
    if (wait === undefined) return this.#deliver(chunk);
    this.#hold();
    wait.then(() => {
      this.#deliver(chunk);
      this.#release();
      this.#takeWaiting();
    }, refuse);
  };

  async #waitForOther(first: void | Promise<void>, patienceMs: number): Promise<void> {
    await first;
    const untilMs = performance.now() + patienceMs;
    while (this.#state === 'running' && this.#options.otherIsBehind() && performance.now() < untilMs) {
      await delay(CAUGHT_UP_MS / 4);
    }
  }

  #deliver(chunk: Uint8Array): void {
    const { sink, tap } = this.#options;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const room = sink.write(chunk);
    tap?.delivered();
    if (room) return;
    this.#hold();
    sink.once('drain', this.#release);
  }

  #hold(): void {
    this.#holds += 1;
    this.#options.source.pause();
  }

  readonly #release = (): void => {
    this.#holds -= 1;
    if (this.#state === 'stopped') return;
    this.#stir();
    if (this.#holds > 0) return;
    if (this.#ended) this.#endSink();
    else this.#options.source.resume();
  };

  #stir(): void {
    this.#stirs += 1;
    this.#catchingUp ??= setTimeout(this.#lookWhetherQuiet, CAUGHT_UP_MS).unref();
    this.#catchingUp.refresh();
  }

  /** On a busy machine a process may wait that long for its turn, so what has come meanwhile is read before that is quiet. */
  readonly #lookWhetherQuiet = (): void => {
    const before = this.#stirs;
    setImmediate(() => {
      if (this.#stirs === before) this.#catchingUp = undefined;
    });
  };

  /** What came while a tap held a chunk back is taken together: a tap that waits for the recorder waits once for it. */
  #takeWaiting(): void {
    const { source } = this.#options;
    if (this.#state !== 'running' || this.#holds > 0) return;
    // hands it to `#take`
    source.read(Math.min(source.readableLength, MAX_TAKEN_BYTES));
  }

  #endSink(): void {
    const { sink, lastWords } = this.#options;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.();
    if (words === undefined) sink.end();
    else sink.end(words);
  }
}
