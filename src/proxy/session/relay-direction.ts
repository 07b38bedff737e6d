/**
 * One direction of a relay: the tap parses each chunk before the sink gets it.
 *
 * ```
 *   source ──────────────────────────────────────► tap ──► delivery queue ──► sink
 *      └──► elastic buffer, while bytes are queued ──┘ ▲
 * ```
 *
 * With an elastic buffer, the source is read immediately; without one, it is paused while tap or sink are busy. If
 * nothing is queued, the first small chunk in a turn of the event loop is forwarded immediately, because it may be an
 * echo. All other chunks of the turn are handled together at its end, so that a burst costs once per block instead of
 * once per chunk. A tap that waits for the recorder may parse more chunks in the meantime (`mayReadAhead`):
 * acknowledged chunks are delivered while later ones wait.
 */
import type { Duplex } from 'node:stream';
import { adoptBlock, dropBlocks, isLent } from '../../memory/block-pool.ts';
import { give, isPooled } from '../../memory/read-buffers.ts';
import { passedThrough } from '../../memory/stream-garbage.ts';
import { NO_MARK, type OutputMark, type Tap } from '../../recording/tap.ts';
import { ClientPace } from './client-pace.ts';
import { DeliveryQueue, type Wait } from './delivery-queue.ts';
import type { BufferEvents, SessionBuffer } from './elastic-buffers.ts';
import type { InsertOutput } from './notice.ts';

/**
 * Maximum size of a chunk that is forwarded immediately, such as an echo or one screen update. A larger chunk is part
 * of longer output.
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
 * Maximum bytes that the tap reads in one turn of the event loop. The event loop then reads the sockets, which takes
 * far less time.
 */
const MAX_TURN_BYTES = 256 * 1024;
/** Maximum bytes in the write queue of the sink before the tap stops reading. */
const MAX_AHEAD_OF_SINK_BYTES = 4 * 1024 * 1024;
/**
 * Bytes that the tap holds are delivered anyway if there are more than this, or if no chunk arrives for this time.
 */
const MAX_HELD_BYTES = 128 * 1024;
const MAX_HELD_MS = 1_000;
/**
 * Silence after which a source that had to wait has no output in flight. Before that, the process behind the source
 * may not have been scheduled yet, because it had to wait, too.
 */
const SETTLED_MS = 2_000;
/** Interval in which the pace of the client is checked. */
const PACE_CHECK_MS = 1_000;
/** Maximum number of queued heartbeat responses. Clients have one heartbeat in flight. */
const MAX_ANSWERS = 16;

export interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  /**
   * Parses a chunk before its delivery, see `Tap.output`.
   * @throws an error: nothing is delivered from that chunk on
   */
  readonly parse?: ((chunk: Uint8Array, more: boolean) => void | Promise<void>) | undefined;
  /** Returns the state of the tap after the last parsed chunk. */
  readonly mark?: (() => OutputMark) | undefined;
  /**
   * Delivers the last parsed chunk in another way than writing it to the sink. Not supported together with a buffer.
   */
  readonly route?: (() => void) | undefined;
  /** Returns true if more chunks may be parsed while the last one waits. */
  readonly mayReadAhead?: (() => boolean) | undefined;
  /** Called with the error of `parse`. */
  readonly refuse: (error: unknown) => void;
  readonly openBuffer?: ((events: BufferEvents) => SessionBuffer) | undefined;
  /** Inserts bytes into the output until it returned a chunk. */
  readonly insert?: InsertOutput | undefined;
  /** Called when the buffer is full and the source has to wait. */
  readonly bufferFull?: (() => void) | undefined;
  /** Returns pings for the sink. They measure its speed, so that little output is in flight to a slow sink. */
  readonly nextProbe?: Tap['nextProbe'] | undefined;
  /** Returns bytes that end the output to the sink. @param backpressured see `Direction` */
  readonly lastWords?: ((backpressured: boolean) => Uint8Array | undefined) | undefined;
}

/** One direction of a relay. */
export class Direction {
  readonly #options: DirectionOptions;
  readonly #buffer: SessionBuffer | undefined;
  readonly #queue: DeliveryQueue;
  readonly #pace: ClientPace | undefined;
  #insertOutput: InsertOutput | undefined;
  #bytes = 0;
  /** Number of reasons to wait: the tap, the sink. */
  #pauseReasons = 0;
  /** Number of bytes that were written to the full sink. */
  #sinkFullBytes = 0;
  #state: 'running' | 'stopped' | 'discarding' = 'running';
  #ended = false;
  #arrivals = 0;
  /** Time of the last chunk, or of the last resume of the source. */
  #lastMs = performance.now();
  #pausedRecently = false;
  /** Number of arrivals and releases. */
  #eventCount = 0;
  #turnBytes = 0;
  #turnScheduled = false;
  /** State of the tap at the end of the delivery queue. */
  #mark = NO_MARK;
  /** True if frames of the gateway may follow the delivered bytes. */
  #betweenFrames = true;
  #heldTimer: NodeJS.Timeout | undefined;
  /** Frames of the gateway for the next frame boundary. */
  #answers: Uint8Array[] = [];
  #paceTimer: NodeJS.Timeout | undefined;
  #backpressured = false;
  /** True if the last chunk waits, and no more may be parsed. The next chunks are then parsed together. */
  #waitsAlone = false;
  /** True if the last chunk waits, and more may be parsed. */
  #readsAhead = false;
  /** Set while the sink must get no output. */
  #pause: PromiseWithResolvers<void> | undefined;

  constructor(options: DirectionOptions) {
    this.#options = options;
    this.#insertOutput = options.insert;
    this.#queue = new DeliveryQueue(options.sink);
    this.#pace = options.nextProbe === undefined ? undefined : new ClientPace(options.nextProbe);
    this.#buffer = options.openBuffer?.({
      ready: () => this.#pump(),
      room: () => this.#readOn(),
      limitReached: () => {
        this.#backpressured = true;
        options.bufferFull?.();
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
  get pausedRecently(): boolean {
    return this.#pausedRecently && this.silentMs < SETTLED_MS;
  }

  /** True if bytes are unread or undelivered. */
  get hasPending(): boolean {
    if (this.#state !== 'running') return false;
    const { source } = this.#options;
    const isBusy = this.#pauseReasons > 0 || this.#bufferedBytes > 0 || this.#queue.heldBytes > 0;
    return isBusy || source.readableLength > 0;
  }

  /** True if the source had to wait, and since then each turn of the event loop brought bytes. */
  get backpressured(): boolean {
    return this.#backpressured;
  }

  start(head: Uint8Array): void {
    const { source, sink } = this.#options;
    source.pause();
    source.on('data', this.#arrive);
    source.once('end', this.endSource);
    // The client answers no more pings.
    if (this.#pace !== undefined) sink.once('end', () => this.probeAnswered(Infinity));
    if (head.length > 0 || this.#insertOutput !== undefined) this.#arrive(head);
    this.#readOn();
  }

  stop(): void {
    const { source, sink } = this.#options;
    this.#state = 'stopped';
    this.#queue.finish();
    this.#buffer?.bytes.close();
    clearTimeout(this.#heldTimer);
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

  /** Drops all further bytes because the sink is closed. The source is still read, so that its end is noticed. */
  discard(): void {
    if (this.#state === 'stopped') return;
    this.#state = 'discarding';
    this.#queue.drop();
    this.#buffer?.bytes.close();
    clearTimeout(this.#heldTimer);
    clearTimeout(this.#paceTimer);
    this.#options.source.resume();
  }

  /**
   * Resolves after a complete turn of the event loop: true if no chunk arrived, none is in flight, and all chunks are
   * delivered.
   */
  async isIdle(): Promise<boolean> {
    const before = this.#eventCount;
    // Node polls the sockets between the two turns.
    await nextTurn();
    await nextTurn();
    return this.#eventCount === before && !this.hasPending && !this.pausedRecently;
  }

  /** Keeps the output that is parsed during a pause in the delivery queue, up to its limit. */
  setPaused(isPaused: boolean): void {
    if (!isPaused) this.#pause?.resolve();
    this.#pause = isPaused ? (this.#pause ?? Promise.withResolvers()) : undefined;
  }

  /** Sends the sink bytes that are not from the source, at the next frame boundary. */
  answer(bytes: readonly Uint8Array[]): void {
    this.#answers.push(...bytes);
    this.#answers.splice(0, this.#answers.length - MAX_ANSWERS);
    this.#sendAnswers();
  }

  /** Records the response to a ping; see `ClientPace`. */
  probeAnswered(ordinal: number): void {
    const wasFull = this.#pace?.full === true;
    this.#pace?.reached(ordinal);
    if (wasFull && !this.#blocked) this.#scheduleTurn();
  }

  /** Writes bytes to the sink, after all bytes that are ready. */
  forward(bytes: Uint8Array): void {
    const { sink } = this.#options;
    if (this.#state === 'running' && !sink.writableEnded && !sink.destroyed) this.#insert([bytes]);
  }

  /**
   * True if the sink is closed and chunks are still parsed. Heartbeats are answered as long as the other direction
   * delivers output, because kubectl waits only 61 s for a response.
   */
  get #stillParses(): boolean {
    return this.#state === 'discarding' && this.#options.route !== undefined;
  }

  /** True if the tap must not parse more now. A tap that reads ahead does not wait for the sink, up to a limit. */
  get #blocked(): boolean {
    if (this.#pauseReasons === 0) return false;
    if (this.#buffer === undefined || !this.#readsAhead) return true;
    if (this.#queue.isWaiting && !this.#mayReadAhead) return true;
    return this.#sinkFullBytes > MAX_AHEAD_OF_SINK_BYTES;
  }

  get #mayReadAhead(): boolean {
    if (this.#pause !== undefined) return this.#queue.heldBytes < MAX_AHEAD_OF_SINK_BYTES;
    return this.#options.mayReadAhead?.() === true;
  }

  get #bufferedBytes(): number {
    return this.#buffer?.bytes.size ?? 0;
  }

  readonly #arrive = (chunk: Uint8Array): void => {
    const inserted = this.#insertOutput?.(chunk);
    if (inserted === undefined) return chunk.length === 0 ? undefined : this.#receive(chunk);
    this.#insertOutput = undefined;
    if (inserted !== chunk && isPooled(chunk)) give(chunk);
    this.#receive(inserted);
  };

  #receive(chunk: Uint8Array): void {
    if (this.#state !== 'running' && !this.#stillParses) return;
    this.#pausedRecently = this.pausedRecently;
    this.#bytes += chunk.length;
    this.#arrivals += 1;
    this.#lastMs = performance.now();
    this.#eventCount += 1;
    countGarbage(chunk);
    if (this.#buffer === undefined) {
      // The sink keeps the chunk for an unknown time, so its block cannot be reused.
      if (adoptBlock(chunk) !== undefined) dropBlocks(1);
      return this.#take(chunk);
    }
    const { bytes } = this.#buffer;
    const alone =
      this.#pauseReasons === 0 && bytes.size === 0 && !this.#turnScheduled && this.#pace?.full !== true;
    if (alone && chunk.length <= MAX_ALONE_BYTES) {
      this.#turnBytes += chunk.length;
      this.#scheduleTurn();
      return this.#take(chunk);
    }
    if (bytes.push(chunk)) give(chunk);
    if (bytes.full) {
      this.#pausedRecently = true;
      this.#options.source.pause();
    }
    if (!this.#blocked) this.#scheduleTurn();
  }

  /** Resets `backpressured` after a turn of the event loop in which nothing arrived. */
  async #watchPressure(): Promise<void> {
    const { source } = this.#options;
    for (let before = -1; before !== this.#arrivals;) {
      before = this.#arrivals;
      await nextTurn();
      await nextTurn();
      if (this.#state !== 'running' || this.#ended || source.isPaused()) return;
    }
    this.#backpressured = false;
  }

  #scheduleTurn(): void {
    if (this.#turnScheduled) return;
    this.#turnScheduled = true;
    setImmediate(() => {
      this.#turnScheduled = false;
      this.#turnBytes = 0;
      this.#pump();
    });
  }

  /** Checks the pace again later, because a client that answers no ping causes no event. */
  #checkPaceLater(): void {
    this.#paceTimer ??= setTimeout(() => {
      this.#paceTimer = undefined;
      this.#pump();
    }, PACE_CHECK_MS);
  }

  /** Takes bytes from the buffer, up to the limit of one turn. */
  #pump(): void {
    const bytes = this.#buffer?.bytes;
    if (bytes === undefined) return;
    while (this.#state === 'running' && !this.#blocked && bytes.size > 0) {
      if (this.#pace?.full === true) return this.#checkPaceLater();
      if (this.#turnBytes >= MAX_TURN_BYTES) return this.#scheduleTurn();
      const chunks = this.#takeOut(bytes);
      if (chunks.length === 0) return;
      this.#take(...chunks);
    }
    this.#endSink();
  }

  /** Takes blocks from the buffer that the tap parses together, up to the limit of one turn. */
  #takeOut(bytes: SessionBuffer['bytes']): readonly Uint8Array[] {
    const chunks: Uint8Array[] = [];
    let { end } = this.#queue;
    while (bytes.size > 0 && this.#turnBytes < MAX_TURN_BYTES) {
      const taken = bytes.take(MAX_TAKEN_BYTES, this.#waitsAlone);
      if (taken === undefined) break;
      chunks.push(taken.bytes);
      end += taken.bytes.length;
      this.#turnBytes += taken.bytes.length;
      if (taken.spent !== undefined) this.#queue.lend(taken.spent, end);
      if (this.#waitsAlone) break;
    }
    return chunks;
  }

  #parse(chunks: readonly Uint8Array[]): void | Promise<void> {
    const { parse } = this.#options;
    let wait: void | Promise<void> = undefined;
    for (const [index, chunk] of chunks.entries()) wait = parse?.(chunk, index < chunks.length - 1);
    const pause = this.#pause?.promise;
    return pause === undefined ? wait : Promise.all([wait, pause]).then(() => undefined);
  }

  #take(...chunks: readonly Uint8Array[]): void {
    const { mark, route } = this.#options;
    const queue = this.#queue;
    let wait: void | Promise<void> = undefined;
    try {
      wait = this.#parse(chunks);
    } catch (error) {
      return this.#refuse(error);
    }
    if (route === undefined) queue.add(chunks);
    this.#mark = mark?.() ?? NO_MARK;
    // A chunk without new events joins the chunks that wait.
    if (wait !== undefined || !queue.isWaiting) this.#readsAhead = wait !== undefined && this.#mayReadAhead;
    this.#waitsAlone = wait !== undefined && !this.#readsAhead;
    if (wait === undefined && !queue.isWaiting) return this.#deliver(queue.end, this.#mark);
    if (!queue.isWaiting) this.#hold();
    const waiting = queue.wait(this.#mark, wait !== undefined);
    wait?.then(() => this.#acknowledged(waiting), this.#refuse);
  }

  /** The recorder acknowledged the bytes of this wait and all earlier ones. */
  #acknowledged(waiting: Wait): void {
    if (!this.#queue.acknowledge(waiting)) return;
    this.#deliver(waiting.end, waiting.mark);
    if (this.#queue.isWaiting) return this.#pump();
    this.#release();
    this.#takeWaiting();
  }

  /** An error of the tap is ignored if its chunk would be dropped anyway. */
  readonly #refuse = (error: unknown): void => {
    if (!this.#stillParses) this.#options.refuse(error);
  };

  /** Delivers the queued bytes before `end`, except bytes that the tap holds. */
  #deliver(end: number, mark: OutputMark): void {
    const { sink, route } = this.#options;
    if (this.#state === 'stopped') return;
    if (route !== undefined) return route();
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    this.#send(end, this.#backpressured ? mark.heldBytesBackpressured : mark.heldBytes, mark);
  }

  /** Delivers the queued bytes before `end` except the last `held`. */
  #send(end: number, held: number, mark: OutputMark): void {
    const start = this.#queue.end - this.#queue.heldBytes;
    const kept = held > MAX_HELD_BYTES ? 0 : Math.min(held, end - start);
    const { bytes, pieces } = this.#queue.release(end - kept);
    if (kept > 0) this.#watchHeld();
    if (bytes > 0) this.#flush(bytes, pieces);
    this.#betweenFrames = mark.delivered(kept);
    const probe = bytes === 0 ? undefined : this.#pace?.sent(bytes);
    if (probe !== undefined) this.#answers.push(probe);
    this.#sendAnswers();
  }

  #watchHeld(): void {
    if (this.#heldTimer === undefined) this.#heldTimer = setTimeout(this.#sendHeld, MAX_HELD_MS).unref();
    else this.#heldTimer.refresh();
  }

  readonly #sendHeld = (): void => {
    if (this.#state !== 'running' || this.#queue.heldBytes === 0) return;
    // Bytes that wait for the recorder must not be delivered.
    if (this.#pauseReasons > 0) this.#heldTimer?.refresh();
    else this.#send(this.#queue.end, 0, this.#mark);
  };

  #insert(pieces: readonly Uint8Array[]): void {
    this.#queue.insert(pieces);
    this.#flush(
      pieces.reduce((sum, { length }) => sum + length, 0),
      pieces.length,
    );
  }

  /** Writes ready bytes. @param bytes number of bytes that became ready, in this number of pieces */
  #flush(bytes: number, pieces: number): void {
    const { sink } = this.#options;
    const corked = pieces > 1 && bytes <= MAX_CORKED_BYTES;
    if (corked) sink.cork();
    const isWritten = this.#queue.goOn();
    if (corked) sink.uncork();
    if (isWritten) return this.#buffer?.drained(bytes);
    this.#sinkFullBytes += bytes;
    if (this.#sinkFullBytes > bytes) return;
    this.#hold();
    sink.once('drain', this.#drained);
  }

  readonly #drained = (): void => {
    if (!this.#queue.goOn()) {
      this.#options.sink.once('drain', this.#drained);
      return;
    }
    this.#buffer?.drained(this.#sinkFullBytes);
    this.#sinkFullBytes = 0;
    this.#sendAnswers();
    this.#release();
  };

  #sendAnswers(): void {
    const { sink } = this.#options;
    if (this.#answers.length === 0 || this.#state !== 'running' || this.#sinkFullBytes > 0) return;
    if (!this.#betweenFrames || sink.writableEnded || sink.destroyed) return;
    const answers = this.#answers;
    this.#answers = [];
    this.#insert(answers);
  }

  #hold(): void {
    this.#pauseReasons += 1;
    if (this.#buffer === undefined) this.#options.source.pause();
  }

  #release(): void {
    this.#pauseReasons -= 1;
    if (this.#state === 'stopped') return;
    this.#eventCount += 1;
    if (this.#pauseReasons > 0) return;
    if (this.#buffer !== undefined) return this.#pump();
    if (this.#ended) this.#endSink();
    else this.#readOn();
  }

  #readOn(): void {
    if (this.#state === 'stopped') return;
    const busy = this.#buffer === undefined ? this.#pauseReasons > 0 : this.#buffer.bytes.full;
    if (busy) return;
    if (this.#options.source.isPaused()) this.#lastMs = performance.now();
    this.#options.source.resume();
    if (this.#backpressured) void this.#watchPressure();
  }

  /**
   * Without a buffer: takes all bytes together that arrived while a chunk waited, so that they wait once for the
   * recorder.
   */
  #takeWaiting(): void {
    const { source } = this.#options;
    if (this.#state !== 'running' || this.#pauseReasons > 0 || this.#buffer !== undefined) return;
    // `read` emits the bytes as `data`, which calls `#arrive`.
    source.read(Math.min(source.readableLength, MAX_TAKEN_BYTES));
  }

  #endSink(): void {
    const { sink, lastWords } = this.#options;
    if (!this.#ended || this.#pauseReasons > 0 || this.#bufferedBytes > 0) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.(this.#backpressured);
    clearTimeout(this.#heldTimer);
    // The held bytes are an incomplete frame or an unproved exit status.
    if (words === undefined) this.#queue.release(this.#queue.end);
    this.#queue.dropHeld();
    this.#queue.finish();
    if (words === undefined) sink.end();
    else sink.end(words);
  }
}

/** Counts a chunk as garbage, unless its memory is pooled. */
function countGarbage(chunk: Uint8Array): void {
  if (!isPooled(chunk) && !isLent(chunk)) passedThrough(chunk.length);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
