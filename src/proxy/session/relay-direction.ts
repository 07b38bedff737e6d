/**
 * One direction of a relay: the tap reads each chunk before the sink gets it.
 *
 * ```
 *   source ──────────────────────────────► tap ──► unsent ──► sink
 *      └──► buffer, while anything waits ──┘  ▲       what must not be shown yet
 * ```
 *
 * With a buffer, the source is read immediately; without one, it is paused while tap or sink are busy. If nothing is
 * queued, the first small chunk in a turn of the event loop goes straight through, because it may be an echo. All other
 * chunks of the turn are handled together at its end, so that a burst costs once per block instead of once per chunk. A
 * tap that waits for the recorder may accept more chunks meanwhile (`gathers`): acknowledged chunks are delivered while
 * later ones wait.
 */
import type { Duplex } from 'node:stream';
import { adoptBlock, dropBlocks, isLent } from '../../memory/block-pool.ts';
import { give, isPooled } from '../../memory/read-buffers.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import type { ClientProbes, Tap, TapPlace } from '../../recording/tap.ts';
import { Awaited, type Answered } from './awaited.ts';
import { ClientPace } from './client-pace.ts';
import type { BufferEvents, SessionBuffer } from './elastic-buffers.ts';
import { SinkRounds } from './sink-rounds.ts';

/**
 * Maximum size of a chunk that goes straight through: an echo or one screen update. A larger chunk is part of longer
 * output.
 */
const MAX_ALONE_BYTES = 8 * 1024;
/** Maximum size of several pieces that are joined, by a copy, into one write. */
const MAX_CORKED_BYTES = 16 * 1024;
/**
 * Maximum bytes that are taken from the buffer together. If output is shown only when it is durable, `cat` of text is
 * relayed at 21 MB/s with single pieces, at 42 MB/s with 64 KiB and at 58 MB/s with this value. Without a limit it is
 * 90 MB/s with three times the memory, because blocks above 256 KiB are not pooled.
 */
const MAX_TAKEN_BYTES = 128 * 1024;
/**
 * Maximum bytes that the tap reads in one turn of the event loop. Then the sockets are read, which takes far less time.
 */
const MAX_TURN_BYTES = 256 * 1024;
/** Maximum bytes in the write queue of the sink before the tap stops reading. */
const MAX_GATHERED_SINK_BYTES = 4 * 1024 * 1024;
/** Undelivered bytes are delivered anyway if there are more of them, or if nothing arrives for this time. */
const MAX_UNSENT_BYTES = 128 * 1024;
const MAX_UNSENT_MS = 1_000;
/**
 * Silence after which a source that had to wait has no output in flight. Until then the process behind the source,
 * which had to wait too, may not have been scheduled.
 */
const SETTLED_MS = 2_000;
/** Interval in which the pace of the client is checked. */
const PACE_LOOK_MS = 1_000;
/** Maximum number of queued heartbeat responses. Clients have one heartbeat in flight. */
const MAX_ANSWERS = 16;

export interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly tap: Tap | undefined;
  /** Called with the error of the tap. Nothing is delivered from that chunk on. */
  readonly refuse: (error: unknown) => void;
  readonly openBuffer?: ((events: BufferEvents) => SessionBuffer) | undefined;
  /** Called when the buffer is full and the source has to wait. */
  readonly beyond?: (() => void) | undefined;
  /** Pings for the sink. With them the output in flight is limited to what the sink reads in a moment. */
  readonly probes?: ClientProbes | undefined;
  /** Returns true if the chunk must not be delivered now; `forward` may deliver it later. */
  readonly consider?: ((chunk: Uint8Array, tap: Tap) => boolean) | undefined;
  /** Returns bytes that end the output to the sink. @param pressed see `Direction` */
  readonly lastWords?: ((pressed: boolean) => Uint8Array | undefined) | undefined;
}

/** One direction of a relay. */
export class Direction {
  readonly #options: DirectionOptions;
  readonly #buffer: SessionBuffer | undefined;
  readonly #pace: ClientPace | undefined;
  #bytes = 0;
  /** Number of reasons to wait: the tap, the sink. */
  #holds = 0;
  #sinkFull = 0;
  #state: 'running' | 'stopped' | 'discarding' = 'running';
  #ended = false;
  #arrivals = 0;
  /** Time of the last chunk, or of the last resume of the source. */
  #lastMs = performance.now();
  #strained = false;
  /** Counts arrivals and releases. */
  #stirs = 0;
  #turnBytes = 0;
  #turnAsked = false;
  #unsent: Uint8Array[] = [];
  #unsentBytes = 0;
  #unsentTimer: NodeJS.Timeout | undefined;
  #answers: Uint8Array[] = [];
  #paceTimer: NodeJS.Timeout | undefined;
  #pressed = false;
  /**
   * True if the tap makes its writer wait and accepts no more chunks. The next chunks are then taken together and wait
   * once.
   */
  #waited = false;
  readonly #awaited = new Awaited();
  /** True if the tap makes its writer wait and accepts more chunks. */
  #gathers = false;
  /** Number of bytes that the tap has read, and that the sink has got. */
  #taken = 0;
  #sent = 0;
  readonly #rounds: SinkRounds;

  constructor(options: DirectionOptions) {
    this.#options = options;
    this.#rounds = new SinkRounds(options.sink);
    this.#pace = options.probes === undefined ? undefined : new ClientPace(options.probes);
    this.#buffer = options.openBuffer?.({
      ready: () => this.#pump(),
      room: () => this.#readOn(),
      beyond: () => {
        this.#pressed = true;
        options.beyond?.();
      },
      fileLost: () => {},
      failed: options.refuse,
    });
  }

  /** Number of bytes read from the source. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Time since the source was last readable and silent, in milliseconds; 0 while it is paused. */
  get silentMs(): number {
    return this.#options.source.isPaused() ? 0 : performance.now() - this.#lastMs;
  }

  /** True if the source had to wait because the buffer was full, and was not silent for `SETTLED_MS` since. */
  get strained(): boolean {
    return this.#strained && this.silentMs < SETTLED_MS;
  }

  /** True if bytes are unread or undelivered. */
  get behind(): boolean {
    if (this.#state !== 'running') return false;
    const { source } = this.#options;
    return this.#holds > 0 || this.#waiting > 0 || this.#unsentBytes > 0 || source.readableLength > 0;
  }

  /** True if the source had to wait, and since then each turn of the event loop brought bytes. */
  get pressed(): boolean {
    return this.#pressed;
  }

  start(head: Uint8Array): void {
    const { source, sink } = this.#options;
    source.pause();
    source.on('data', this.#arrive);
    source.once('end', this.endSource);
    // The client answers no more pings.
    if (this.#pace !== undefined) sink.once('end', () => this.reached(Infinity));
    if (head.length > 0) this.#arrive(head);
    this.#readOn();
  }

  stop(): void {
    const { source, sink } = this.#options;
    this.#state = 'stopped';
    this.#rounds.finish();
    this.#buffer?.bytes.close();
    clearTimeout(this.#unsentTimer);
    clearTimeout(this.#paceTimer);
    source.off('data', this.#arrive);
    source.off('end', this.endSource);
    sink.off('drain', this.#drained);
    source.pause();
  }

  /**
   * Marks the end of the source. The sink is ended after it got all bytes. A socket emits `end` even while it is paused
   * and the tap still has a chunk.
   */
  readonly endSource = (): void => {
    this.#ended = true;
    this.#endSink();
  };

  /** Drops all further bytes because the sink is closed. The source is still read, so that it can end. */
  discard(): void {
    if (this.#state === 'stopped') return;
    this.#state = 'discarding';
    this.#rounds.drop();
    this.#buffer?.bytes.close();
    clearTimeout(this.#unsentTimer);
    clearTimeout(this.#paceTimer);
    this.#options.source.resume();
  }

  /**
   * Resolves after a complete turn of the event loop: true if nothing arrived, nothing is in flight, and everything is
   * delivered.
   */
  async quiet(): Promise<boolean> {
    const before = this.#stirs;
    // Node polls the sockets between the two turns.
    await nextTurn();
    await nextTurn();
    return this.#stirs === before && !this.behind && !this.strained;
  }

  /** Sends the sink bytes that are not from the source, at the next frame boundary. */
  answer(bytes: readonly Uint8Array[]): void {
    this.#answers.push(...bytes);
    this.#answers.splice(0, this.#answers.length - MAX_ANSWERS);
    this.#sendAnswers();
  }

  /** Records the response to a ping; see `ClientPace`. */
  reached(probe: number): void {
    const wasFull = this.#pace?.full === true;
    this.#pace?.reached(probe);
    if (wasFull && !this.#blocked) this.#askTurn();
  }

  /** Delivers a delayed chunk of the source. */
  forward(chunk: Uint8Array): void {
    const { sink } = this.#options;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    this.#write([chunk]);
  }

  /**
   * True if the sink is closed and chunks are still parsed. Heartbeats are answered as long as the other direction
   * delivers output, because kubectl waits only 61 s for a response.
   */
  get #stillConsiders(): boolean {
    const { consider, tap } = this.#options;
    return this.#state === 'discarding' && consider !== undefined && tap !== undefined;
  }

  /** True if the tap must not read more now. A tap that gathers chunks does not wait for the sink, up to a limit. */
  get #blocked(): boolean {
    if (this.#holds === 0) return false;
    if (this.#buffer === undefined || !this.#gathers) return true;
    if (this.#awaited.any && this.#options.tap?.gathers !== true) return true;
    return this.#sinkFull > MAX_GATHERED_SINK_BYTES;
  }

  get #waiting(): number {
    return this.#buffer?.bytes.size ?? 0;
  }

  readonly #arrive = (chunk: Uint8Array): void => {
    if (this.#state !== 'running' && !this.#stillConsiders) return;
    this.#strained = this.strained;
    this.#bytes += chunk.length;
    this.#arrivals += 1;
    this.#lastMs = performance.now();
    this.#stirs += 1;
    countGarbage(chunk);
    if (this.#buffer === undefined) {
      // The sink keeps the chunk for an unknown time, so its block cannot be reused.
      if (adoptBlock(chunk) !== undefined) dropBlocks(1);
      return this.#take(chunk);
    }
    const { bytes } = this.#buffer;
    const alone = this.#holds === 0 && bytes.size === 0 && !this.#turnAsked && this.#pace?.full !== true;
    if (alone && chunk.length <= MAX_ALONE_BYTES) {
      this.#turnBytes += chunk.length;
      this.#askTurn();
      return this.#take(chunk);
    }
    if (bytes.push(chunk)) give(chunk);
    if (bytes.full) {
      this.#strained = true;
      this.#options.source.pause();
    }
    if (!this.#blocked) this.#askTurn();
  };

  /** Resets `pressed` after a turn of the event loop in which nothing arrived. */
  async #watchPressure(): Promise<void> {
    const { source } = this.#options;
    for (let before = -1; before !== this.#arrivals;) {
      before = this.#arrivals;
      await nextTurn();
      await nextTurn();
      if (this.#state !== 'running' || this.#ended || source.isPaused()) return;
    }
    this.#pressed = false;
  }

  #askTurn(): void {
    if (this.#turnAsked) return;
    this.#turnAsked = true;
    setImmediate(() => {
      this.#turnAsked = false;
      this.#turnBytes = 0;
      this.#pump();
    });
  }

  /** Checks the pace again later, because a client that answers no ping causes no event. */
  #askSoon(): void {
    this.#paceTimer ??= setTimeout(() => {
      this.#paceTimer = undefined;
      this.#pump();
    }, PACE_LOOK_MS);
  }

  /** Takes bytes from the buffer, up to the limit of one turn. */
  #pump(): void {
    const bytes = this.#buffer?.bytes;
    if (bytes === undefined) return;
    while (this.#state === 'running' && !this.#blocked && bytes.size > 0) {
      if (this.#pace?.full === true) return this.#askSoon();
      if (this.#turnBytes >= MAX_TURN_BYTES) return this.#askTurn();
      const chunks = this.#takeOut(bytes);
      if (chunks.length === 0) return;
      this.#take(...chunks);
    }
    this.#endSink();
  }

  /** Takes blocks from the buffer that the tap reads together, up to the limit of one turn. */
  #takeOut(bytes: SessionBuffer['bytes']): readonly Uint8Array[] {
    const chunks: Uint8Array[] = [];
    let end = this.#taken;
    while (bytes.size > 0 && this.#turnBytes < MAX_TURN_BYTES) {
      const taken = bytes.take(MAX_TAKEN_BYTES, this.#waited);
      if (taken === undefined) break;
      chunks.push(taken.bytes);
      end += taken.bytes.length;
      this.#turnBytes += taken.bytes.length;
      if (taken.spent !== undefined) this.#rounds.lend(taken.spent, end);
      if (this.#waited) break;
    }
    return chunks;
  }

  #take(...chunks: readonly Uint8Array[]): void {
    const { tap } = this.#options;
    const awaited = this.#awaited;
    for (const { length } of chunks) this.#taken += length;
    if (tap === undefined) return this.#deliver(chunks);
    let wait: void | Promise<void> = undefined;
    try {
      for (const [index, chunk] of chunks.entries()) wait = tap.push(chunk, index < chunks.length - 1);
    } catch (error) {
      return this.#refuse(error);
    }
    // A chunk without new events joins the chunks that wait.
    if (wait !== undefined || !awaited.any) this.#gathers = wait !== undefined && tap.gathers === true;
    this.#waited = wait !== undefined && !this.#gathers;
    if (wait === undefined && !awaited.any) return this.#deliver(chunks);
    if (!awaited.any) this.#hold();
    const answered = awaited.add(chunks, tap.place?.(), wait !== undefined);
    wait?.then(() => this.#deliverAnswered(answered()), this.#refuse);
  }

  #deliverAnswered(answered: Answered | undefined): void {
    if (answered === undefined) return;
    this.#deliver(answered.chunks, answered.until);
    if (this.#awaited.any) return this.#pump();
    this.#release();
    this.#takeWaiting();
  }

  /** An error of the tap is ignored if its chunk would be dropped anyway. */
  readonly #refuse = (error: unknown): void => {
    if (!this.#stillConsiders) this.#options.refuse(error);
  };

  #deliver(chunks: readonly Uint8Array[], until?: TapPlace): void {
    const { sink, tap, consider } = this.#options;
    if (this.#state === 'stopped') return;
    // `consider` is set only for the direction without a buffer, whose chunks arrive one at a time.
    if (tap !== undefined && chunks.some((chunk) => consider?.(chunk, tap) === true)) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    for (const chunk of chunks) {
      this.#unsent.push(chunk);
      this.#unsentBytes += chunk.length;
    }
    const { unsentBytes = 0, conclusionBytes = 0 } = until ?? tap ?? {};
    this.#send(this.#pressed ? Math.max(unsentBytes, conclusionBytes) : unsentBytes, until);
  }

  /** Delivers all except the last `keep` bytes. @param until place of their end, if the tap has seen more */
  #send(keep: number, until?: TapPlace): void {
    const kept = keep > MAX_UNSENT_BYTES ? 0 : Math.min(keep, this.#unsentBytes);
    const pieces = this.#unsent;
    this.#unsent = kept === 0 ? [] : cutTail(pieces, kept);
    const sent = this.#unsentBytes - kept;
    this.#unsentBytes = kept;
    this.#sent += sent;
    if (kept > 0) this.#watchUnsent();
    if (sent > 0) this.#write(pieces);
    this.#options.tap?.delivered(kept, until);
    const probe = sent === 0 ? undefined : this.#pace?.sent(sent);
    if (probe !== undefined) this.#answers.push(probe);
    this.#sendAnswers();
  }

  #watchUnsent(): void {
    if (this.#unsentTimer === undefined) this.#unsentTimer = setTimeout(this.#sendAll, MAX_UNSENT_MS).unref();
    else this.#unsentTimer.refresh();
  }

  readonly #sendAll = (): void => {
    if (this.#state !== 'running' || this.#unsentBytes === 0) return;
    // While a chunk waits for the recorder, the tap has seen more than was delivered.
    if (this.#holds > 0) this.#unsentTimer?.refresh();
    else this.#send(0);
  };

  #write(pieces: readonly Uint8Array[]): void {
    const { sink } = this.#options;
    const count = pieces.reduce((sum, { length }) => sum + length, 0);
    const corked = pieces.length > 1 && count <= MAX_CORKED_BYTES;
    if (corked) sink.cork();
    const room = this.#rounds.write(pieces, this.#sent);
    if (corked) sink.uncork();
    if (room) return this.#buffer?.drained(count);
    this.#sinkFull += count;
    if (this.#sinkFull > count) return;
    this.#hold();
    sink.once('drain', this.#drained);
  }

  readonly #drained = (): void => {
    if (!this.#rounds.goOn()) {
      this.#options.sink.once('drain', this.#drained);
      return;
    }
    this.#buffer?.drained(this.#sinkFull);
    this.#sinkFull = 0;
    this.#sendAnswers();
    this.#release();
  };

  #sendAnswers(): void {
    const { sink, tap } = this.#options;
    if (this.#answers.length === 0 || this.#state !== 'running' || this.#sinkFull > 0) return;
    if (tap?.standsBetweenFrames !== true || sink.writableEnded || sink.destroyed) return;
    const answers = this.#answers;
    this.#answers = [];
    this.#write(answers);
  }

  #hold(): void {
    this.#holds += 1;
    if (this.#buffer === undefined) this.#options.source.pause();
  }

  #release(): void {
    this.#holds -= 1;
    if (this.#state === 'stopped') return;
    this.#stirs += 1;
    if (this.#holds > 0) return;
    if (this.#buffer !== undefined) return this.#pump();
    if (this.#ended) this.#endSink();
    else this.#readOn();
  }

  #readOn(): void {
    if (this.#state === 'stopped') return;
    const busy = this.#buffer === undefined ? this.#holds > 0 : this.#buffer.bytes.full;
    if (busy) return;
    if (this.#options.source.isPaused()) this.#lastMs = performance.now();
    this.#options.source.resume();
    if (this.#pressed) void this.#watchPressure();
  }

  /**
   * Without a buffer: takes all bytes together that arrived while a chunk waited, so that they wait once for the
   * recorder.
   */
  #takeWaiting(): void {
    const { source } = this.#options;
    if (this.#state !== 'running' || this.#holds > 0 || this.#buffer !== undefined) return;
    // `read` emits the bytes as `data`, which calls `#arrive`.
    source.read(Math.min(source.readableLength, MAX_TAKEN_BYTES));
  }

  #endSink(): void {
    const { sink, lastWords } = this.#options;
    if (!this.#ended || this.#holds > 0 || this.#waiting > 0) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.(this.#pressed);
    clearTimeout(this.#unsentTimer);
    // The remaining bytes are an incomplete frame or an unproved exit status.
    if (words === undefined) for (const piece of this.#unsent) sink.write(piece);
    this.#unsent = [];
    this.#unsentBytes = 0;
    if (words === undefined) sink.end();
    else sink.end(words);
  }
}

/** Counts a chunk as garbage, unless its memory is pooled. */
function countGarbage(chunk: Uint8Array): void {
  if (!isPooled(chunk) && !isLent(chunk)) passedThrough(chunk.length);
}

/** Removes the last `bytes` bytes from `pieces` and returns them. */
function cutTail(pieces: Uint8Array[], bytes: number): Uint8Array[] {
  const tail: Uint8Array[] = [];
  for (let left = bytes; left > 0;) {
    const last = pieces.pop();
    if (last === undefined) break;
    if (last.length > left) {
      pieces.push(last.subarray(0, last.length - left));
      tail.unshift(last.subarray(last.length - left));
      break;
    }
    tail.unshift(last);
    left -= last.length;
  }
  return tail;
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
