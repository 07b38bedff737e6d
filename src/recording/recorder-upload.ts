/**
 * Upload of one recording to a recorder, and to another recorder if the first is lost. The upload retains
 * unacknowledged bytes, so that it can send them again. `delivery-window.ts` decides when the client may see the
 * output.
 *
 * ```
 *            ┌─── released by acknowledgements ───┐┌── retained, ≤ window + one write ──┐
 *  recording │ acknowledged                       ││ sent, not acknowledged             │
 *            └────────────────────────────────────┘└────────────────────────────────────┘
 *
 *   open ──finish──► finishing ──confirmed──► done
 *    │ ▲                │ ▲
 *  lost │ resumed      lost │ resumed
 *    ▼ │                ▼ │
 *   moving ────────── no recorder continues ────────► lost ──leave──► late delivery
 * ```
 *
 * If the connection is lost, another recorder that supports continued sessions gets all unacknowledged bytes.
 * If no recorder continues the session, all writers fail, and `lost` resolves. The retained bytes and the
 * lines passed to `leave` then become a late delivery.
 */
import { errorText, TailcastError } from '../errors.ts';
import { createDeadline } from '../async/deadline.ts';
import { DeliveryWindow, type DeliveryPolicy, type UploadMemory } from './delivery-window.ts';
import { EventBatch } from './event-batch.ts';
import type { SessionOrder } from '../wire/recorder-api/session-order.ts';
import type { SessionJournal } from './journal/session-journal.ts';
import type { UploadRest } from './late-end.ts';
import type { RecorderConnection, UploadIntent } from './recorder-connection.ts';
import { RetainedBytes } from './retained-bytes.ts';

/** Limits of one upload. */
export interface UploadLimits {
  /**
   * Maximum number of unacknowledged bytes before writers wait. With 0, each writer waits until its own bytes are
   * acknowledged. For a recorder of the reference, 0 means {@link DEFAULT_PENDING_BYTES}, because its acknowledgements
   * do not prove that bytes are durable.
   */
  readonly maxPendingBytes: number;
  /**
   * Maximum time without a new acknowledgement while writers wait. After that, the recorder counts as lost.
   */
  readonly stallWindowMs: number;
  /** Timeout of the confirmation after the last byte. */
  readonly finishTimeoutMs: number;
  /** Maximum number of consecutive connections that are lost without a new acknowledgement. */
  readonly maxFruitlessMoves: number;
}

export interface UploadDeps {
  /**
   * Finds a recorder that continues the session. Without this function, a lost recorder cannot be replaced.
   * @throws Error if no recorder continues the session
   */
  readonly move?: (intent: MoveIntent, from: RecorderConnection) => Promise<RecorderConnection>;
  /** Called when another connection continues the upload. */
  readonly moved?: (address: string, reason: Error) => void;
  /** Journal for unacknowledged bytes; `delivery-window.ts` decides when they are written. */
  readonly journal?: SessionJournal;
  /** Memory that all uploads share. If absent, each write goes to the journal immediately. */
  readonly memory?: UploadMemory;
  /** User of the session. Default: the user with the empty name. */
  readonly user?: string;
  /**
   * Called with the unacknowledged tail and its journal after the recorder was lost.
   * @returns true if the tail becomes a late delivery
   */
  readonly left?: (rest: UploadRest) => boolean;
}

/** Position and header values of the next upload of a session. */
export type MoveIntent = Omit<UploadIntent, 'sessionId' | 'neighbours' | 'orders'>;

/** Default of {@link UploadLimits.maxPendingBytes}. */
export const DEFAULT_PENDING_BYTES = 8 * 1024 * 1024;

type State = 'open' | 'finishing' | 'done' | 'lost' | 'aborted';

/** Upload of one recording. */
export class RecorderUpload {
  readonly #options: UploadLimits;
  readonly #deps: UploadDeps;
  readonly #retained: RetainedBytes;
  readonly #window: DeliveryWindow;
  readonly #lost = Promise.withResolvers<Error>();
  readonly #done = Promise.withResolvers<'confirmed' | 'left'>();
  #connection: RecorderConnection;
  #follow: ((order: SessionOrder) => void) | undefined;
  /** Number of bytes of asciicast lines before the retained bytes. */
  #lineBytes = 0;
  /** False from the loss of a connection until the next connection is open. */
  #connected = true;
  #state: State = 'open';
  #finish: ReturnType<typeof createDeadline> | undefined;
  #fruitless = 0;
  #part = 1;
  /** True after the unacknowledged tail was passed to `left`. */
  #left = false;

  constructor(connection: RecorderConnection, options: UploadLimits, deps: UploadDeps = {}) {
    this.#options = options;
    this.#deps = deps;
    this.#connection = connection;
    this.#retained = new RetainedBytes(connection.frames);
    const policy = policyOf(connection, options, deps);
    const { stallWindowMs: stallMs, maxPendingBytes } = options;
    this.#window = new DeliveryWindow({
      policy,
      bytes: policy === 'window0' ? 0 : maxPendingBytes || DEFAULT_PENDING_BYTES,
      retained: this.#retained,
      journal: deps.journal,
      memory: deps.memory,
      user: deps.user ?? '',
      stallMs,
      stalled: () => this.#breakOff(new Error(`nothing was acknowledged for ${stallMs} ms`)),
    });
    // Prevents an unhandled rejection if the caller never calls `end`.
    this.#done.promise.catch(() => {});
    this.#listen(connection);
  }

  /** Address (`ip:port`) of the current recorder. */
  get address(): string {
    return this.#connection.address;
  }

  get protocol(): 'v2' | 'v1' {
    return this.#connection.protocol;
  }

  /** Number of unacknowledged bytes. The upload keeps these bytes in memory. */
  get pendingBytes(): number {
    return this.#retained.size;
  }

  /** Policy that decides when the client may see output. Never changes. */
  get policy(): DeliveryPolicy {
    return this.#window.policy;
  }

  /** True if a caller may write more before the promise of its last write resolves. */
  get acceptsMore(): boolean {
    return this.#window.acceptsMore;
  }

  /**
   * Resolves with the reason when the recorder is lost and no other recorder continues the recording. Never
   * rejects.
   */
  get lost(): Promise<Error> {
    return this.#lost.promise;
  }

  /** Sets the receiver of the recorder's orders. Orders that arrive earlier are dropped and not confirmed. */
  onOrder(follow: (order: SessionOrder) => void): void {
    this.#follow = follow;
  }

  /**
   * Sends complete asciicast lines or complete frames to the recorder, and retains a copy.
   * @param events a string of lines, or the bytes of a batch from `createBatch`, in one piece or several
   * @returns a promise if the client must not see the output of these events yet, see `delivery-window.ts`
   * @throws TailcastError `RECORDER_LOST`, also as a rejection
   */
  write(events: string | Uint8Array | readonly Uint8Array[]): void | Promise<void> {
    this.#requireOpen();
    const offset = this.#retained.end;
    const pieces = this.#retain(typeof events === 'string' ? this.#encode(events) : events);
    if (this.#connected) for (const piece of pieces) this.#connection.send(piece);
    return this.#window.admit(offset, pieces);
  }

  /**
   * Writes nothing. Returns a promise if the client must not see the output of the last `write` yet.
   * @throws TailcastError `RECORDER_LOST`, also as a rejection
   */
  whenShown(): void | Promise<void> {
    this.#requireOpen();
    return this.#window.whenShown();
  }

  /** Creates an empty batch of frames or of asciicast lines. */
  createBatch(): EventBatch {
    return new EventBatch(this.#connection);
  }

  /**
   * Ends the upload. `confirmed`: the recorder has stored the complete recording. `left`: the recorder was
   * lost, and the unacknowledged tail of the recording becomes a late delivery.
   * @throws TailcastError `RECORDER_LOST`
   */
  end(): Promise<'confirmed' | 'left'> {
    if (this.#state === 'open') {
      this.#state = 'finishing';
      if (this.#connected) this.#finishConnection();
    }
    return this.#done.promise;
  }

  /**
   * Adds the last lines or frames of a recording whose recorder was lost. If possible, all unacknowledged
   * bytes become a late delivery. Only the first call has an effect.
   */
  leave(lines: Uint8Array | readonly Uint8Array[]): void {
    if (this.#state !== 'lost' || this.#left) return;
    this.#retain(lines);
    this.#leave();
  }

  #retain(bytes: Uint8Array | readonly Uint8Array[]): readonly Uint8Array[] {
    return bytes instanceof Uint8Array ? this.#retained.push(bytes) : this.#retained.push(...bytes);
  }

  /** Aborts the upload. A recorder that received no header stores nothing. */
  abort(): void {
    if (this.#state === 'done' || this.#state === 'lost' || this.#state === 'aborted') return;
    this.#retained.release(this.#retained.end, 0);
    this.#retained.disown();
    this.#close('aborted', new TailcastError('RECORDER_LOST', 'the upload was broken off'));
  }

  #encode(lines: string): readonly Uint8Array[] {
    const batch = this.createBatch();
    batch.lines(lines);
    return batch.takePieces();
  }

  #requireOpen(): void {
    if (this.#state !== 'open') throw new TailcastError('RECORDER_LOST', 'the upload is over');
  }

  #listen(connection: RecorderConnection): void {
    connection.attach({
      acknowledged: (offset, lineBytes = offset) => this.#acknowledged(offset, lineBytes),
      ordered: (order) => this.#follow?.(order),
      finished: () => this.#finished(),
      lost: (error) => this.#connectionLost(error),
    });
  }

  #acknowledged(offset: number, lineBytes: number): void {
    if (offset <= this.#retained.start) return;
    this.#lineBytes = lineBytes;
    this.#retained.release(offset, this.#retained.end - this.#connection.unwritten);
    this.#fruitless = 0;
    this.#window.acknowledged(offset, lineBytes);
  }

  #finishConnection(): void {
    this.#connection.finish();
    this.#finish ??= createDeadline(this.#options.finishTimeoutMs, () =>
      this.#breakOff(new Error('the recorder did not confirm the upload')),
    );
  }

  #finished(): void {
    // Other recorders may omit the last acknowledgement, so only a tailcast recorder is required to
    // acknowledge all bytes.
    if (this.#connection.resumable && this.#retained.size > 0) {
      this.#connectionLost(new Error('the recorder ended without acknowledging everything'));
      return;
    }
    this.#state = 'done';
    this.#window.close();
    this.#stopFinish();
    this.#retained.release(this.#retained.end, this.#retained.end - this.#connection.unwritten);
    this.#retained.disown();
    this.#deps.journal?.remove();
    this.#done.resolve('confirmed');
  }

  /** Closes a connection and handles it like a lost connection. */
  #breakOff(error: Error): void {
    this.#connection.destroy();
    this.#connectionLost(error);
  }

  #connectionLost(error: Error): void {
    if (this.#state !== 'open' && this.#state !== 'finishing') return;
    this.#connected = false;
    this.#window.detached();
    this.#retained.disown();
    this.#stopFinish();
    this.#fruitless += 1;
    const { move } = this.#deps;
    if (move === undefined || !this.#connection.resumable) return this.#giveUp(error);
    if (this.#fruitless > this.#options.maxFruitlessMoves) return this.#giveUp(error);
    this.#part += 1;
    this.#deps.journal?.moved(this.#part);
    const offset = this.#lineBytes;
    const intent = {
      offset,
      frames: this.#retained.start,
      part: this.#part,
      preamble: this.#retained.preamble.before(offset),
    };
    move(intent, this.#connection).then(
      (connection) => this.#resume(connection, error),
      (failure: unknown) => this.#giveUp(new Error(`${errorText(error)}; ${errorText(failure)}`)),
    );
  }

  #resume(next: RecorderConnection, reason: Error): void {
    if (this.#state !== 'open' && this.#state !== 'finishing') return next.destroy();
    this.#connection = next;
    this.#connected = true;
    this.#deps.moved?.(next.address, reason);
    for (const piece of this.#retained.pieces()) next.send(piece);
    if (this.#state === 'finishing') this.#finishConnection();
    this.#window.attached();
    this.#listen(next);
  }

  #giveUp(cause: Error): void {
    // In state `finishing`, the last lines are already written. In other states, `leave` adds the last lines later.
    const left = this.#state === 'finishing' && this.#leave();
    if (left) this.#done.resolve('left');
    this.#close('lost', new TailcastError('RECORDER_LOST', errorText(cause), { cause }));
  }

  #leave(): boolean {
    this.#left = true;
    const offset = this.#retained.start;
    const { resumable, address: recorder } = this.#connection;
    const rest = {
      bytes: this.#retained.take(),
      offset,
      lineBytes: this.#lineBytes,
      preamble: this.#retained.preamble,
      part: this.#part,
      resumable,
      recorder,
    };
    const journal = resumable ? this.#deps.journal : undefined;
    const saved = journal === undefined ? rest : { ...rest, journaled: journal.complete(rest) };
    return this.#deps.left?.(saved) === true;
  }

  #close(state: 'lost' | 'aborted', error: TailcastError): void {
    this.#state = state;
    if (state === 'aborted') this.#deps.journal?.remove();
    this.#stopFinish();
    this.#connection.destroy();
    this.#window.lost(error);
    this.#done.reject(error);
    if (state === 'lost') this.#lost.resolve(error);
  }

  #stopFinish(): void {
    this.#finish?.clear();
    this.#finish = undefined;
  }
}

function policyOf(
  { resumable }: RecorderConnection,
  { maxPendingBytes }: UploadLimits,
  { journal }: UploadDeps,
): DeliveryPolicy {
  if (!resumable) return 'bestEffort';
  if (maxPendingBytes === 0) return 'window0';
  return journal === undefined ? 'bestEffort' : 'window';
}
