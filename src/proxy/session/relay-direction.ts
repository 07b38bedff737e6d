/**
 * One direction of a relay: every chunk goes past the tap before it goes to the sink.
 *
 * ```
 *   source ──────────────────────────────► tap ──► unsent ──► sink
 *      └──► buffer, while anything waits ──┘  ▲       what must not be shown yet
 * ```
 *
 * With a buffer the source is read at once, whatever tap and sink do; without, it is paused while they are busy. A small chunk
 * that comes first in a turn of the event loop, when nothing waits, goes straight through: an echo. What a turn brings beside it goes
 * together at its end, so that a flood costs once per block what else it would cost once per chunk. A tap that wants to wait may take more
 * meanwhile (`gathers`): what it has answered for is delivered, while the rest waits.
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

/** Goes straight through at most: what a person types, or what a program draws once. More is a part of something longer. */
const MAX_ALONE_BYTES = 8 * 1024;
/** Two pieces that are together smaller go out in one write, which copies them. */
const MAX_CORKED_BYTES = 16 * 1024;
/**
 * Taken together at most. Where output is shown when it is durable, `cat` of text is relayed at 21 MB/s piece by piece, at 42
 * with 64 KiB and at 58 with this. Without a limit it is 90, in three times the memory: the blocks that lines are written into
 * are not used again beyond 256 KiB.
 */
const MAX_TAKEN_BYTES = 128 * 1024;
/** Goes past the tap in one turn of the event loop. Then what has come meanwhile is read, which takes far less time. */
const MAX_TURN_BYTES = 256 * 1024;
/** A sink that has so much to write is waited for, whatever the tap takes. */
const MAX_GATHERED_SINK_BYTES = 4 * 1024 * 1024;
/** What is not delivered is delivered all the same when it is more, or when nothing comes for so long. */
const MAX_UNSENT_BYTES = 128 * 1024;
const MAX_UNSENT_MS = 1_000;
/**
 * A source that had to wait has said all it had when it is silent for so long. What it was given by a process behind it, which also
 * had to wait, is on its way until that process and the source have had a processor.
 */
const SETTLED_MS = 2_000;
/** How often it is looked whether a sink that answers nothing is still waited for. */
const PACE_LOOK_MS = 1_000;
/** Answers that wait for their place; clients have one heartbeat under way. */
const MAX_ANSWERS = 16;

export interface DirectionOptions {
  readonly source: Duplex;
  readonly sink: Duplex;
  readonly tap: Tap | undefined;
  /** Called with what the tap threw; nothing is delivered from that chunk on. */
  readonly refuse: (error: unknown) => void;
  readonly openBuffer?: ((events: BufferEvents) => SessionBuffer) | undefined;
  /** The buffer holds all it may, and the source waits. */
  readonly beyond?: (() => void) | undefined;
  /** Set: no more is on its way to the sink than it takes in a moment, as far as it answers these. */
  readonly probes?: ClientProbes | undefined;
  /** Decides what becomes of a chunk. True: it is not delivered now; `forward` delivers it, if anything does. */
  readonly consider?: ((chunk: Uint8Array, tap: Tap) => boolean) | undefined;
  /** Bytes for the sink before its end, behind everything else that is delivered. @param pressed see `Direction` */
  readonly lastWords?: ((pressed: boolean) => Uint8Array | undefined) | undefined;
}

export class Direction {
  readonly #options: DirectionOptions;
  readonly #buffer: SessionBuffer | undefined;
  readonly #pace: ClientPace | undefined;
  #bytes = 0;
  /** Reasons to wait: the tap, the sink. */
  #holds = 0;
  #sinkFull = 0;
  #state: 'running' | 'stopped' | 'discarding' = 'running';
  #ended = false;
  #arrivals = 0;
  /** When something came, or the source was read on. */
  #lastMs = performance.now();
  #strained = false;
  /** Grows with everything that comes and with everything that lets go. */
  #stirs = 0;
  #turnBytes = 0;
  #turnAsked = false;
  #unsent: Uint8Array[] = [];
  #unsentBytes = 0;
  #unsentTimer: NodeJS.Timeout | undefined;
  #answers: Uint8Array[] = [];
  #paceTimer: NodeJS.Timeout | undefined;
  #pressed = false;
  /** The tap wanted the last chunk to wait, and took no more: what comes next waits once if it goes together. */
  #waited = false;
  readonly #awaited = new Awaited();
  /** The tap wanted the last chunk to wait, and took more. */
  #gathers = false;
  /** Bytes that went to the tap, and those of them that went to the sink. */
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

  /** Taken from the source. */
  get bytes(): number {
    return this.#bytes;
  }

  /** For how long nothing has come that could have. */
  get silentMs(): number {
    return this.#options.source.isPaused() ? 0 : performance.now() - this.#lastMs;
  }

  /** The source had to wait, for the buffer was full, and has not been silent for a while since. */
  get strained(): boolean {
    return this.#strained && this.silentMs < SETTLED_MS;
  }

  /** Something that came is not delivered yet, or may not have been read. */
  get behind(): boolean {
    if (this.#state !== 'running') return false;
    const { source } = this.#options;
    return this.#holds > 0 || this.#waiting > 0 || this.#unsentBytes > 0 || source.readableLength > 0;
  }

  /** The source had to wait, and since then there was no turn of the event loop in which nothing came. */
  get pressed(): boolean {
    return this.#pressed;
  }

  start(head: Uint8Array): void {
    const { source, sink } = this.#options;
    source.pause();
    source.on('data', this.#arrive);
    source.once('end', this.endSource);
    // it answers no more
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
   * Nothing more comes from the source: the sink is ended when it has what was taken. A socket says that it has ended
   * even while it is paused, with a chunk still in the hands of the tap.
   */
  readonly endSource = (): void => {
    this.#ended = true;
    this.#endSink();
  };

  /** The sink is gone: what still comes is read, considered and dropped, so that the source can end. */
  discard(): void {
    if (this.#state === 'stopped') return;
    this.#state = 'discarding';
    this.#rounds.drop();
    this.#buffer?.bytes.close();
    clearTimeout(this.#unsentTimer);
    clearTimeout(this.#paceTimer);
    this.#options.source.resume();
  }

  /** Resolves after a whole turn of the event loop: whether nothing came in it, nothing can be on its way, and everything is delivered. */
  async quiet(): Promise<boolean> {
    const before = this.#stirs;
    // The system is asked what there is to read between the two.
    await nextTurn();
    await nextTurn();
    return this.#stirs === before && !this.behind && !this.strained;
  }

  /** Hands the sink bytes that are not from the source, at the next place where frames may stand. */
  answer(bytes: readonly Uint8Array[]): void {
    this.#answers.push(...bytes);
    this.#answers.splice(0, this.#answers.length - MAX_ANSWERS);
    this.#sendAnswers();
  }

  /** The sink has answered the probe with this number: see `ClientPace`. */
  reached(probe: number): void {
    const wasFull = this.#pace?.full === true;
    this.#pace?.reached(probe);
    if (wasFull && !this.#blocked) this.#askTurn();
  }

  /** Delivers a chunk of the source that was kept back. */
  forward(chunk: Uint8Array): void {
    const { sink } = this.#options;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    this.#write([chunk]);
  }

  /**
   * The sink is gone, and what comes is still looked at: a heartbeat is answered as long as the other direction delivers, however long
   * that takes. kubectl waits 61 s for an answer.
   */
  get #stillConsiders(): boolean {
    const { consider, tap } = this.#options;
    return this.#state === 'discarding' && consider !== undefined && tap !== undefined;
  }

  /**
   * Nothing can go past the tap now. What the tap gathers need not wait for the sink: while that takes what was gathered before, a part of
   * the next wait passes.
   */
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
      // the sink looks at it, nobody knows how long
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

  /** After the source had to wait: until nothing comes any more, or it has to wait again. */
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

  /** Looks again whether the sink may be waited for: it need not say anything. */
  #askSoon(): void {
    this.#paceTimer ??= setTimeout(() => {
      this.#paceTimer = undefined;
      this.#pump();
    }, PACE_LOOK_MS);
  }

  /** Takes out of the buffer what may be taken in this turn. */
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

  /** What goes past the tap together: the rest of what may be taken in this turn, block by block. */
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
    // what says nothing to the tap goes with what waits
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

  /** What a tap thinks of a chunk that goes nowhere ends nothing. */
  readonly #refuse = (error: unknown): void => {
    if (!this.#stillConsiders) this.#options.refuse(error);
  };

  #deliver(chunks: readonly Uint8Array[], until?: TapPlace): void {
    const { sink, tap, consider } = this.#options;
    if (this.#state === 'stopped') return;
    // only what comes without a buffer is considered, and that comes alone
    if (tap !== undefined && chunks.some((chunk) => consider?.(chunk, tap) === true)) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    for (const chunk of chunks) {
      this.#unsent.push(chunk);
      this.#unsentBytes += chunk.length;
    }
    const { unsentBytes = 0, conclusionBytes = 0 } = until ?? tap ?? {};
    this.#send(this.#pressed ? Math.max(unsentBytes, conclusionBytes) : unsentBytes, until);
  }

  /** Delivers all but the last `keep` bytes. @param until the tap has seen more than that */
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
    // the tap has seen more than was delivered while it holds a chunk
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

  /** Without a buffer, what came while a tap held a chunk back is taken together: it waits once for the recorder then. */
  #takeWaiting(): void {
    const { source } = this.#options;
    if (this.#state !== 'running' || this.#holds > 0 || this.#buffer !== undefined) return;
    // hands it to `#arrive`
    source.read(Math.min(source.readableLength, MAX_TAKEN_BYTES));
  }

  #endSink(): void {
    const { sink, lastWords } = this.#options;
    if (!this.#ended || this.#holds > 0 || this.#waiting > 0) return;
    if (this.#state !== 'running' || sink.writableEnded || sink.destroyed) return;
    const words = lastWords?.(this.#pressed);
    clearTimeout(this.#unsentTimer);
    // a part of a frame, or a word that nothing has proved
    if (words === undefined) for (const piece of this.#unsent) sink.write(piece);
    this.#unsent = [];
    this.#unsentBytes = 0;
    if (words === undefined) sink.end();
    else sink.end(words);
  }
}

/** A chunk is garbage once it was passed on, unless its memory is used again. */
function countGarbage(chunk: Uint8Array): void {
  if (!isPooled(chunk) && !isLent(chunk)) passedThrough(chunk.length);
}

/** Takes the last `bytes` of `pieces` off them. */
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
