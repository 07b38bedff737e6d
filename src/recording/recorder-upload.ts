/**
 * The sink of one session's recording, as lines or as frames: bounded by the bytes the recorder has not acknowledged,
 * which are kept so that they can be sent again.
 *
 * ```
 *            ┌────── released by acks ──────┐┌────── kept, ≤ limit + one write ──────┐
 *  recording │ acknowledged                 ││ sent, not acknowledged                │
 *            └──────────────────────────────┘└───────────────────────────────────────┘
 *
 *   open ──finish──► finishing ──confirmed──► done
 *    │ ▲                │ ▲
 *  lost │ resumed      lost │ resumed
 *    ▼ │                ▼ │
 *   moving ────────────────────nobody took over────► lost ──leave──► delivered later
 * ```
 *
 * When the connection is lost, another recorder that can continue a session gets everything since the last
 * acknowledgement. What is kept is in a journal on disk as well, so that it outlives this process; while it cannot be,
 * or is not yet (`save-delay`), every writer waits for acknowledgements. Full queue: the writer waits; with no queue at
 * all it waits for every write, and nothing is shown that is not durable. Nobody takes over: every writer fails, `lost`
 * resolves, and what is kept goes to whoever delivers it later, with the lines that `leave` closes it with.
 */
import { errorText, TailcastError } from '../errors.ts';
import { createDeadline } from '../async/deadline.ts';
import { FrameBatch } from '../wire/recorder-api/upload-frame.ts';
import type { SessionJournal } from './journal/session-journal.ts';
import type { UploadRest } from './late-end.ts';
import { Preamble } from './preamble.ts';
import type { RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { RetainedBytes } from './retained-bytes.ts';
import { DelayRoom, SaveDelay } from './save-delay.ts';

export interface RecorderUpload {
  /** Address (`ip:port`) of the recorder that has the session now. */
  readonly address: string;
  readonly protocol: 'v2' | 'v1';
  /** True if annotation lines may be written. */
  readonly annotations: boolean;
  /** True if the upload consists of frames, false if it consists of asciicast lines. Constant. */
  readonly frames: boolean;
  /** Number of unacknowledged bytes, which are kept in memory. */
  readonly pendingBytes: number;
  /** True if each writer waits until its bytes are durable at the recorder. */
  readonly durableFirst: boolean;
  /** True if written bytes survive a crash of this process. The client must not see bytes that were not written. */
  readonly survives: boolean;
  /** True if a waiting writer may write more. */
  readonly gathers: boolean;
  /** Resolves when no recorder continues the recording. Never rejects. */
  readonly lost: Promise<Error>;
  /**
   * Writes complete asciicast lines or complete frames, and keeps a copy. If the unacknowledged bytes exceed the limit,
   * `write` returns a promise that resolves when they are below the limit again.
   * @param lines a string is always lines; bytes are frames or lines, as `frames` says, in one piece or several
   * @throws TailcastError `RECORDER_LOST`, also as a rejection
   */
  write(lines: string | Uint8Array | readonly Uint8Array[]): void | Promise<void>;
  /**
   * Returns the same promise as `write`, without writing.
   * @throws TailcastError `RECORDER_LOST`, also as a rejection
   */
  room(): void | Promise<void>;
  /**
   * Ends the upload. `confirmed`: the recorder has stored everything. `left`: the recorder was lost, and the
   * unacknowledged end becomes a late delivery.
   * @throws TailcastError `RECORDER_LOST`
   */
  end(): Promise<'confirmed' | 'left'>;
  /**
   * Ends a lost recording with these lines or frames. They and all other unacknowledged bytes become a late delivery,
   * if possible. Only the first call has an effect.
   */
  leave(lines: Uint8Array | readonly Uint8Array[]): void;
  /** Aborts the upload. A recorder that received no header stores nothing. */
  abort(): void;
}

/** Limits of one upload. */
export interface UploadLimits {
  /**
   * Maximum unacknowledged bytes before writers wait. With 0 each writer waits for its own bytes. At a recorder of the
   * reference, whose acknowledgements promise nothing, 0 means {@link DEFAULT_PENDING_BYTES}.
   */
  readonly maxPendingBytes: number;
  /** Maximum time without a new acknowledgement while writers wait. After it, the recorder counts as lost. */
  readonly stallWindowMs: number;
  /** Timeout of the confirmation after the last byte. */
  readonly finishTimeoutMs: number;
  /** Maximum number of consecutive connections that are lost without a new acknowledgement. */
  readonly maxFruitlessMoves: number;
}

export interface UploadDeps {
  /**
   * Finds a recorder that continues the session. Undefined if the recorder cannot be replaced.
   * @throws Error if no recorder continues the session
   */
  readonly move?: (intent: MoveIntent, from: RecorderConnection) => Promise<RecorderConnection>;
  /** Called when another connection continues the upload. */
  readonly moved?: (address: string, reason: Error) => void;
  /** Journal to which `write` appends unacknowledged bytes before it returns. */
  readonly journal?: SessionJournal;
  /** Memory budget for delayed journal writes, shared by all uploads. Without it the journal is written immediately. */
  readonly delayRoom?: DelayRoom;
  /** Takes the unacknowledged end and its journal. @returns true if it becomes a late delivery */
  readonly left?: (rest: UploadRest) => boolean;
}

/** Start of the next upload of a session. */
export type MoveIntent = Omit<UploadIntent, 'sessionId' | 'neighbours'>;

/** Default of {@link UploadLimits.maxPendingBytes}. */
export const DEFAULT_PENDING_BYTES = 8 * 1024 * 1024;

/** Creates an upload on an open connection, and owns the connection from then on. */
export function createUpload(
  first: RecorderConnection,
  options: UploadLimits,
  deps: UploadDeps = {},
): RecorderUpload {
  return new Upload(first, options, deps);
}

type State = 'open' | 'finishing' | 'done' | 'lost' | 'aborted';

class Upload implements RecorderUpload {
  readonly #options: UploadLimits;
  readonly #deps: UploadDeps;
  readonly #kept = new RetainedBytes();
  readonly #preamble: Preamble;
  readonly #lost = Promise.withResolvers<Error>();
  readonly #done = Promise.withResolvers<'confirmed' | 'left'>();
  readonly frames: boolean;
  #connection: RecorderConnection;
  /** Number of bytes of asciicast lines before the kept bytes. */
  #lineBytes = 0;
  /** False between the loss of a connection and the start of the next. */
  #connected = true;
  #state: State = 'open';
  /** Waiting writers, each with the offset after its bytes. */
  readonly #writers: { readonly end: number; readonly room: PromiseWithResolvers<void> }[] = [];
  #stall: ReturnType<typeof createDeadline> | undefined;
  #finish: ReturnType<typeof createDeadline> | undefined;
  #fruitless = 0;
  #part = 1;
  /** True after the unacknowledged end was passed to `left`. */
  #left = false;
  /** True if kept bytes could not be written to the journal. */
  #unsaved = false;
  readonly #delay: SaveDelay;
  /** Offset of the first byte that is not yet in the journal. */
  #delayedFrom = 0;

  constructor(connection: RecorderConnection, options: UploadLimits, deps: UploadDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#connection = connection;
    this.frames = connection.frames;
    this.#preamble = new Preamble(connection.frames);
    const expired = this.durableFirst ? undefined : (): void => this.#saveDelayed();
    this.#delay = new SaveDelay(deps.delayRoom ?? new DelayRoom(), expired, options.maxPendingBytes);
    // A caller that never calls `end` must not cause an unhandled rejection.
    this.#done.promise.catch(() => {});
    this.#listen(connection);
  }

  get address(): string {
    return this.#connection.address;
  }

  get protocol(): 'v2' | 'v1' {
    return this.#connection.protocol;
  }

  get annotations(): boolean {
    return this.#connection.annotations;
  }

  get pendingBytes(): number {
    return this.#kept.size;
  }

  get durableFirst(): boolean {
    return this.#options.maxPendingBytes === 0 && this.#connection.resumable;
  }

  get survives(): boolean {
    return this.durableFirst || (this.#connection.resumable && this.#deps.journal !== undefined);
  }

  get gathers(): boolean {
    return this.#delay.gathers;
  }

  get lost(): Promise<Error> {
    return this.#lost.promise;
  }

  write(lines: string | Uint8Array | readonly Uint8Array[]): void | Promise<void> {
    this.#requireOpen();
    const offset = this.#kept.end;
    const pieces = this.#keep(typeof lines === 'string' ? this.#encode(lines) : lines);
    if (!this.#preamble.isComplete) this.#preamble.push(Buffer.concat(pieces));
    if (this.#connected) for (const piece of pieces) this.#connection.send(piece);
    this.#save(offset, pieces);
    return this.room();
  }

  room(): void | Promise<void> {
    this.#requireOpen();
    if (this.#kept.size <= this.#limit) return undefined;
    this.#watchStall();
    const { end } = this.#kept;
    const last = this.#writers.at(-1);
    if (last?.end === end) return last.room.promise;
    const room = Promise.withResolvers<void>();
    room.promise.catch(() => {});
    this.#writers.push({ end, room });
    return room.promise;
  }

  end(): Promise<'confirmed' | 'left'> {
    if (this.#state === 'open') {
      this.#state = 'finishing';
      if (this.#connected) this.#finishConnection();
    }
    return this.#done.promise;
  }

  leave(lines: Uint8Array | readonly Uint8Array[]): void {
    if (this.#state !== 'lost' || this.#left) return;
    this.#keep(lines);
    this.#leave();
  }

  #keep(lines: Uint8Array | readonly Uint8Array[]): readonly Uint8Array[] {
    const pieces = lines instanceof Uint8Array ? [lines] : lines;
    return pieces.every(({ length }) => length === 0) ? [] : this.#kept.push(...pieces);
  }

  abort(): void {
    if (this.#state === 'done' || this.#state === 'lost' || this.#state === 'aborted') return;
    this.#kept.release(this.#kept.end, 0);
    this.#kept.disown();
    this.#close('aborted', new TailcastError('RECORDER_LOST', 'the upload was broken off'));
  }

  #encode(lines: string): Uint8Array {
    if (!this.frames) return Buffer.from(lines, 'utf8');
    const batch = new FrameBatch();
    batch.text(lines);
    return batch.take();
  }

  /**
   * Writes to the journal. With `durableFirst` the client sees only durable bytes, so the journal waits until the
   * recorder is lost.
   */
  #save(offset: number, pieces: readonly Uint8Array[]): void {
    const { journal } = this.#deps;
    if (this.durableFirst) {
      this.#delay.takes(this.#kept.end - offset);
      return;
    }
    if (journal === undefined || !this.#connection.resumable) return;
    const { active } = this.#delay;
    if (!active) this.#delayedFrom = offset;
    if (this.#mayDelay && this.#delay.takes(this.#kept.end - offset)) return;
    if (active) this.#saveDelayed();
    else this.#unsaved = !journal.append(offset, pieces, this.#preamble);
  }

  get #mayDelay(): boolean {
    return this.#deps.delayRoom !== undefined && this.#connected && !this.#unsaved;
  }

  /** Writes the delayed bytes to the journal now. */
  #saveDelayed(): void {
    if (!this.#delay.active || this.durableFirst) return;
    const from = Math.max(this.#delayedFrom, this.#kept.start);
    const saved = this.#deps.journal?.append(from, this.#kept.pieces(from), this.#preamble);
    this.#unsaved = saved !== true;
    this.#delay.end('written');
    this.#answerWriters();
  }

  get #limit(): number {
    const { maxPendingBytes } = this.#options;
    if (this.#unsaved || this.#delay.active) return 0;
    return maxPendingBytes === 0 && !this.durableFirst ? DEFAULT_PENDING_BYTES : maxPendingBytes;
  }

  #requireOpen(): void {
    if (this.#state !== 'open') throw new TailcastError('RECORDER_LOST', 'the upload is over');
  }

  #listen(connection: RecorderConnection): void {
    connection.attach({
      acknowledged: (offset, lineBytes = offset) => this.#acknowledged(offset, lineBytes),
      finished: () => this.#finished(),
      lost: (error) => this.#connectionLost(error),
    });
  }

  #acknowledged(offset: number, lineBytes: number): void {
    if (offset <= this.#kept.start) return;
    this.#lineBytes = lineBytes;
    this.#kept.release(offset, this.#kept.end - this.#connection.unwritten);
    this.#deps.journal?.acknowledged(offset, lineBytes);
    if (this.#kept.size === 0) this.#unsaved = false;
    this.#delay.keeps(this.#kept.end - Math.max(this.#delayedFrom, this.#kept.start));
    this.#fruitless = 0;
    this.#stall?.extend();
    this.#answerWriters();
  }

  /** Resolves each writer whose bytes are within the limit. */
  #answerWriters(): void {
    const most = this.#kept.start + this.#limit;
    while ((this.#writers[0]?.end ?? Infinity) <= most) this.#writers.shift()?.room.resolve();
    if (this.#writers.length > 0) return;
    this.#stall?.clear();
    this.#stall = undefined;
  }

  #watchStall(): void {
    const { stallWindowMs } = this.#options;
    this.#stall ??= createDeadline(stallWindowMs, () =>
      this.#breakOff(new Error(`nothing was acknowledged for ${stallWindowMs} ms`)),
    );
  }

  #finishConnection(): void {
    this.#connection.finish();
    this.#finish ??= createDeadline(this.#options.finishTimeoutMs, () =>
      this.#breakOff(new Error('the recorder did not confirm the upload')),
    );
  }

  #finished(): void {
    // A tailcast recorder acknowledges all bytes; other recorders may omit the last acknowledgement.
    if (this.#connection.resumable && this.#kept.size > 0) {
      this.#connectionLost(new Error('the recorder ended without acknowledging everything'));
      return;
    }
    this.#state = 'done';
    this.#clearTimers();
    this.#kept.release(this.#kept.end, this.#kept.end - this.#connection.unwritten);
    this.#kept.disown();
    this.#deps.journal?.remove();
    this.#done.resolve('confirmed');
  }

  /** Closes an open connection and treats it as lost. */
  #breakOff(error: Error): void {
    this.#connection.destroy();
    this.#connectionLost(error);
  }

  #connectionLost(error: Error): void {
    if (this.#state !== 'open' && this.#state !== 'finishing') return;
    this.#connected = false;
    this.#saveDelayed();
    this.#kept.disown();
    this.#clearTimers();
    this.#fruitless += 1;
    const { move } = this.#deps;
    if (move === undefined || !this.#connection.resumable) return this.#giveUp(error);
    if (this.#fruitless > this.#options.maxFruitlessMoves) return this.#giveUp(error);
    this.#part += 1;
    this.#deps.journal?.moved(this.#part);
    const offset = this.#lineBytes;
    const intent = {
      offset,
      frames: this.#kept.start,
      part: this.#part,
      preamble: this.#preamble.before(offset),
    };
    move(intent, this.#connection).then(
      (taker) => this.#resume(taker, error),
      (nobody: unknown) => this.#giveUp(new Error(`${errorText(error)}; ${errorText(nobody)}`)),
    );
  }

  #resume(next: RecorderConnection, reason: Error): void {
    if (this.#state !== 'open' && this.#state !== 'finishing') return next.destroy();
    this.#connection = next;
    this.#connected = true;
    this.#deps.moved?.(next.address, reason);
    for (const piece of this.#kept.pieces()) next.send(piece);
    if (this.#state === 'finishing') this.#finishConnection();
    // Waiting writers write nothing, so the stall timer must start here.
    if (this.#writers.length > 0) this.#watchStall();
    this.#listen(next);
  }

  #giveUp(cause: Error): void {
    // An upload that is finishing has its last line already; otherwise `leave` provides it.
    const left = this.#state === 'finishing' && this.#leave();
    if (left) this.#done.resolve('left');
    this.#close('lost', new TailcastError('RECORDER_LOST', errorText(cause), { cause }));
  }

  #leave(): boolean {
    this.#left = true;
    const offset = this.#kept.start;
    const { resumable, address: recorder } = this.#connection;
    const rest = {
      bytes: this.#kept.take(),
      offset,
      lineBytes: this.#lineBytes,
      preamble: this.#preamble,
      part: this.#part,
      resumable,
      recorder,
    };
    if (resumable) this.#deps.journal?.complete(rest);
    return this.#deps.left?.(rest) === true;
  }

  #close(state: 'lost' | 'aborted', error: TailcastError): void {
    this.#state = state;
    if (state === 'aborted') this.#deps.journal?.remove();
    this.#clearTimers();
    this.#connection.destroy();
    for (const { room } of this.#writers.splice(0)) room.reject(error);
    this.#done.reject(error);
    if (state === 'lost') this.#lost.resolve(error);
  }

  #clearTimers(): void {
    this.#delay.end('acknowledged');
    this.#stall?.clear();
    this.#stall = undefined;
    this.#finish?.clear();
    this.#finish = undefined;
  }
}
