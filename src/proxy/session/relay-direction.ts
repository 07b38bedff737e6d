/**
 * One direction of a relay: the tap parses each chunk before the sink gets it.
 *
 * ```
 *   source ──────────────────────────────────────► tap ──► delivery queue ──► sink
 *      └──► elastic buffer, while bytes are queued ──┘ ▲
 * ```
 *
 * With an elastic buffer, the gateway reads the source until the buffer is full. Without a buffer, the gateway pauses
 * the source while the tap or the sink is busy. If nothing is queued, the first small chunk in a turn of the event loop
 * is forwarded immediately, because it may be an echo. All other chunks of the turn are processed together at its end,
 * which needs less CPU for bursts. If `mayReadAhead` allows it, the tap parses further chunks while earlier chunks wait
 * for the recorder. Each chunk is delivered when the recorder has acknowledged it.
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
 * Maximum size of a chunk that is forwarded immediately, such as an echo or one screen update. A larger chunk
 * is usually followed by more output.
 */
const MAX_ALONE_BYTES = 8 * 1024;
/** Maximum size of several pieces that are copied and joined into one write. */
const MAX_CORKED_BYTES = 16 * 1024;
/**
 * Maximum number of bytes that are taken from the buffer at once. In a test with `cat` of a text file, the client saw
 * output only after the recorder had stored it. The test reached 21 MB/s with single pieces, 42 MB/s with 64 KiB, and
 * 58 MB/s with this value. Without a limit, the relay reaches 90 MB/s but needs three times the memory, because blocks
 * above 256 KiB are not pooled.
 */
const MAX_TAKEN_BYTES = 128 * 1024;
/**
 * Maximum number of bytes that the tap parses in one turn of the event loop. After that, the event loop can read from
 * the sockets, which takes far less time than parsing.
 */
const MAX_TURN_BYTES = 256 * 1024;
/**
 * Maximum number of bytes that wait for the sink before the tap stops reading, unless the user has much output in
 * memory.
 */
const MAX_AHEAD_OF_SINK_BYTES = 4 * 1024 * 1024;
/**
 * Maximum number of held bytes, and maximum time for which bytes are held without a new chunk. Above either limit, the
 * relay delivers the held bytes.
 */
const MAX_HELD_BYTES = 128 * 1024;
const MAX_HELD_MS = 1_000;
/**
 * Silence after which the gateway assumes that a source that had to wait has no output in flight. The time is long,
 * because the process behind the source also had to wait and may continue late.
 */
const SETTLED_MS = 2_000;
/** Interval of the check whether the client has read enough output. */
const PACE_CHECK_MS = 1_000;
/** Maximum number of queued heartbeat responses. Clients send one heartbeat at a time. */
const MAX_ANSWERS = 16;

export interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  /**
   * Parses a chunk before its delivery, see `Tap.output`.
   * @throws any error; this chunk and later chunks are then not delivered
   */
  readonly parse?: ((chunk: Uint8Array, more: boolean) => void | Promise<void>) | undefined;
  /** Returns the state of the tap after the last parsed chunk. */
  readonly mark?: (() => OutputMark) | undefined;
  /**
   * Called instead of a write to the sink. The function delivers the last parsed chunk. Not supported together with
   * a buffer.
   */
  readonly route?: (() => void) | undefined;
  /** Returns true if more chunks may be parsed while the last chunk waits for the recorder. */
  readonly mayReadAhead?: (() => boolean) | undefined;
  /** Called with the error of `parse`. */
  readonly refuse: (error: unknown) => void;
  readonly openBuffer?: ((events: BufferEvents) => SessionBuffer) | undefined;
  /** Inserts bytes into the output, see {@link InsertOutput}. */
  readonly insert?: InsertOutput | undefined;
  /** Called when the buffer has reached a limit, so that the source must wait. */
  readonly bufferFull?: BufferEvents['limitReached'] | undefined;
  /**
   * Returns pings for the sink. They measure how fast the sink reads, so that little output is in flight to a
   * slow sink.
   */
  readonly nextProbe?: Tap['nextProbe'] | undefined;
  /**
   * Returns the last bytes for the sink, such as an error status; undefined if the output is complete.
   * @param backpressured see `Direction.backpressured`
   */
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
  /** Number of reasons why this direction waits: one if the tap waits, one if the sink is full. */
  #pauseReasons = 0;
  /** Number of bytes that were queued for the sink since it became full. */
  #sinkFullBytes = 0;
  #state: 'running' | 'stopped' | 'discarding' = 'running';
  #ended = false;
  #arrivals = 0;
  /** Time when the last chunk arrived or the source was last resumed. */
  #lastMs = performance.now();
  #pausedRecently = false;
  /** Number of arrived chunks and ended waits. A change means that the direction was not idle. */
  #eventCount = 0;
  #turnBytes = 0;
  #turnScheduled = false;
  /** State of the tap after the last byte of the delivery queue. */
  #mark = NO_MARK;
  /** True if the delivered bytes end at a frame boundary, so that the gateway may insert its own frames. */
  #betweenFrames = true;
  #heldTimer: NodeJS.Timeout | undefined;
  /** Frames of the gateway that the relay sends at the next frame boundary. */
  #answers: Uint8Array[] = [];
  #paceTimer: NodeJS.Timeout | undefined;
  #backpressured = false;
  /**
   * True if the last chunk waits for the recorder, and the relay parses no chunk during this wait. After the wait, the
   * relay parses the bytes that have arrived as one chunk.
   */
  #waitsAlone = false;
  /** True if the last chunk waits for the recorder, and further chunks may be parsed. */
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
      limitReached: (limit) => {
        this.#backpressured = true;
        options.bufferFull?.(limit);
      },
      fileLost: () => {},
      failed: options.refuse,
    });
  }

  /** Number of bytes read from the source. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Time since the last chunk, in milliseconds. The time before the source was last resumed does not count. 0 while the
   * source is paused.
   */
  get silentMs(): number {
    return this.#options.source.isPaused() ? 0 : performance.now() - this.#lastMs;
  }

  /**
   * True if the source had to wait because the buffer was full, and has not been silent for `SETTLED_MS`
   * after that.
   */
  get pausedRecently(): boolean {
    return this.#pausedRecently && this.silentMs < SETTLED_MS;
  }

  /** True if bytes of the source are unread or undelivered. */
  get hasPending(): boolean {
    if (this.#state !== 'running') return false;
    const { source } = this.#options;
    const isBusy = this.#pauseReasons > 0 || this.#bufferedBytes > 0 || this.#queue.heldBytes > 0;
    return isBusy || source.readableLength > 0;
  }

  /**
   * True if the source had to wait because the buffer was full, and has sent bytes in each turn of the event
   * loop since then.
   */
  get backpressured(): boolean {
    return this.#backpressured;
  }

  start(head: Uint8Array): void {
    const { source, sink } = this.#options;
    source.pause();
    source.on('data', this.#arrive);
    source.once('end', this.endSource);
    // After the sink has closed its side, the sink answers no pings.
    if (this.#pace !== undefined) sink.once('end', () => this.probeAnswered(Infinity));
    if (head.length > 0 || this.#insertOutput !== undefined) this.#arrive(head);
    this.#readOn();
  }

  stop(): void {
    const { source, sink } = this.#options;
    this.#state = 'stopped';
    this.#queue.finish();
    this.#buffer?.close();
    clearTimeout(this.#heldTimer);
    clearTimeout(this.#paceTimer);
    source.off('data', this.#arrive);
    source.off('end', this.endSource);
    sink.off('drain', this.#drained);
    source.pause();
  }

  /**
   * Marks the end of the source. The sink is ended after it got all bytes. The end may come while the source
   * is paused and a chunk is still in the tap.
   */
  readonly endSource = (): void => {
    this.#ended = true;
    this.#endSink();
  };

  /**
   * Drops all further bytes because the sink is closed. Reading continues, so that the gateway notices the
   * end of the source.
   */
  discard(): void {
    if (this.#state === 'stopped') return;
    this.#state = 'discarding';
    this.#queue.drop();
    this.#buffer?.close();
    clearTimeout(this.#heldTimer);
    clearTimeout(this.#paceTimer);
    this.#options.source.resume();
  }

  /**
   * Resolves after a complete turn of the event loop. The result is true if no chunk arrived in that turn, no chunk is
   * in flight, and all chunks are delivered.
   */
  async isIdle(): Promise<boolean> {
    const before = this.#eventCount;
    // Node.js polls the sockets between the two turns.
    await nextTurn();
    await nextTurn();
    return this.#eventCount === before && !this.hasPending && !this.pausedRecently;
  }

  /**
   * Pauses the delivery. Output that is parsed during a pause stays in the delivery queue, up to the limit of
   * the queue.
   */
  setPaused(isPaused: boolean): void {
    if (!isPaused) this.#pause?.resolve();
    this.#pause = isPaused ? (this.#pause ?? Promise.withResolvers()) : undefined;
  }

  /** Sends frames of the gateway to the sink at the next frame boundary. */
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

  /**
   * Sends bytes to the sink without passing them to the tap. The delivery queue puts these bytes after its *ready*
   * bytes and before its *held* bytes.
   */
  forward(bytes: Uint8Array): void {
    const { sink } = this.#options;
    if (this.#state === 'running' && !sink.writableEnded && !sink.destroyed) this.#insert([bytes]);
  }

  /**
   * True if the sink is closed but chunks are still parsed. The gateway still answers heartbeats of the
   * client while the other direction delivers output, because kubectl waits only 61 s for a response.
   */
  get #stillParses(): boolean {
    return this.#state === 'discarding' && this.#options.route !== undefined;
  }

  /**
   * True if the tap must not parse more now. A tap that reads ahead continues while the sink is full, up to a
   * limit.
   */
  get #blocked(): boolean {
    if (this.#pauseReasons === 0) return false;
    if (this.#buffer === undefined || !this.#readsAhead) return true;
    if (this.#queue.isWaiting && !this.#mayReadAhead) return true;
    return this.#sinkFullBytes > (this.#buffer.scarce ? 0 : MAX_AHEAD_OF_SINK_BYTES);
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
      // Without a buffer it is unknown when the sink has written the chunk, so the block of the chunk cannot
      // be reused.
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

  /**
   * Checks again later whether the client may get more output. If the client answers no ping, no event would
   * cause this check.
   */
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

  /** Takes the blocks from the buffer that the tap will parse together, up to the limit of one turn. */
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
    // A chunk without new events needs no acknowledgement, but is delivered after the chunks that wait for one.
    if (wait !== undefined || !queue.isWaiting) this.#readsAhead = wait !== undefined && this.#mayReadAhead;
    this.#waitsAlone = wait !== undefined && !this.#readsAhead;
    if (wait === undefined && !queue.isWaiting) return this.#deliver(queue.end, this.#mark);
    if (!queue.isWaiting) this.#hold();
    const waiting = queue.wait(this.#mark, wait !== undefined);
    wait?.then(() => this.#acknowledged(waiting), this.#refuse);
  }

  /**
   * Delivers the bytes that this wait and all earlier waits held back, because the recorder has acknowledged these
   * bytes.
   */
  #acknowledged(waiting: Wait): void {
    if (!this.#queue.acknowledge(waiting)) return;
    this.#deliver(waiting.end, waiting.mark);
    if (this.#queue.isWaiting) return this.#pump();
    this.#release();
    this.#takeWaiting();
  }

  /**
   * Reports an error of the tap. Ignores the error if the sink is closed, because the chunk would be dropped anyway.
   */
  readonly #refuse = (error: unknown): void => {
    if (!this.#stillParses) this.#options.refuse(error);
  };

  /** Delivers the queued bytes before the offset `end`, except bytes that the tap holds. */
  #deliver(end: number, mark: OutputMark): void {
    const { sink, route } = this.#options;
    if (this.#state === 'stopped') return;
    if (route !== undefined) return route();
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    this.#send(end, this.#backpressured ? mark.heldBytesBackpressured : mark.heldBytes, mark);
  }

  /** Delivers the queued bytes before the offset `end`, except the last `held` bytes. */
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
    // Held bytes must not be delivered while bytes before them wait for the recorder.
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

  /**
   * Writes ready bytes.
   * @param bytes number of bytes that became ready
   * @param pieces number of pieces that became ready
   */
  #flush(bytes: number, pieces: number): void {
    const { sink } = this.#options;
    const corked = pieces > 1 && bytes <= MAX_CORKED_BYTES;
    if (corked) sink.cork();
    const isWritten = this.#queue.goOn();
    if (corked) sink.uncork();
    if (isWritten) return this.#buffer?.drained(bytes);
    this.#sinkFullBytes += bytes;
    this.#buffer?.waiting(this.#sinkFullBytes);
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
    this.#buffer?.waiting(0);
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
   * Reads, as one chunk, all bytes that arrived while an earlier chunk waited, so that these bytes wait for the
   * recorder only once. Used without a buffer.
   */
  #takeWaiting(): void {
    const { source } = this.#options;
    if (this.#state !== 'running' || this.#pauseReasons > 0 || this.#buffer !== undefined) return;
    // `read` emits a `data` event, whose listener is `#arrive`.
    source.read(Math.min(source.readableLength, MAX_TAKEN_BYTES));
  }

  #endSink(): void {
    const { sink, lastWords } = this.#options;
    if (!this.#ended || this.#pauseReasons > 0 || this.#bufferedBytes > 0) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.(this.#backpressured);
    clearTimeout(this.#heldTimer);
    // The held bytes are an incomplete frame or an unproved exit status. If `lastWords` returns bytes, they replace the
    // held bytes.
    if (words === undefined) this.#queue.release(this.#queue.end);
    this.#queue.dropHeld();
    this.#queue.finish();
    if (words === undefined) sink.end();
    else sink.end(words);
  }
}

/** Counts a chunk for the early garbage collection, unless its memory is pooled. */
function countGarbage(chunk: Uint8Array): void {
  if (!isPooled(chunk) && !isLent(chunk)) passedThrough(chunk.length);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
