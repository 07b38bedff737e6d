/**
 * Queue of parsed bytes between the tap and the sink of one direction. Offsets count from the first byte of
 * the direction.
 *
 * ```
 *   sink ◄── │ ready │ ready │ held │ held, waits │ … │ held, waits │ ◄── add
 *                            ▲ release            ▲ acknowledged
 * ```
 *
 * - *held* bytes must not be delivered yet. Some of them wait for an acknowledgement of the recorder, or for the end of
 *   a pause. Others are an incomplete frame or an unproved exit status. A {@link Wait} applies to all bytes that were
 *   added before it.
 * - *ready* bytes may be delivered. The sink gets them in rounds; the next round starts when the sink has written the
 *   previous round. A TLS socket joins and encrypts all pending writes before it sends any of them. Without rounds, the
 *   socket would process megabytes at once, which do not fit into the CPU caches. The cache misses cost 0.15 ms of CPU
 *   time per MB of output.
 */
import type { Writable } from 'node:stream';
import { dropBlocks, giveBlock } from '../../memory/block-pool.ts';
import { Fifo } from '../../memory/fifo.ts';
import type { OutputMark } from '../../recording/tap.ts';

/** Size of a round, in bytes: the maximum that the tap reads in one turn of the event loop. */
const ROUND_BYTES = 256 * 1024;

type Written = (error?: Error | null) => void;

/**
 * A wait for an acknowledgement of the recorder, or for the end of a pause. It covers the bytes before the offset
 * `end`. `mark` is the state of the tap at that offset.
 */
export interface Wait {
  end: number;
  mark: OutputMark;
  /** True if this wait, or a later wait, was acknowledged. */
  isOver: boolean;
}

export class DeliveryQueue {
  readonly #sink: Writable;
  readonly #held = new Fifo<Uint8Array>();
  /** Offset of the first held byte. */
  #heldStart = 0;
  /** Offset after the last byte. */
  #end = 0;
  readonly #waits = new Fifo<Wait>();
  readonly #ready = new Fifo<{ readonly piece: Uint8Array; readonly written: Written | undefined }>();
  /**
   * Blocks of memory whose bytes are in the queue. A block returns to the pool when the sink has written the
   * bytes before `end`.
   */
  readonly #loans: { readonly end: number; readonly block: Buffer }[] = [];

  constructor(sink: Writable) {
    this.#sink = sink;
  }

  get end(): number {
    return this.#end;
  }

  get heldBytes(): number {
    return this.#end - this.#heldStart;
  }

  /** True if bytes wait for the recorder. */
  get isWaiting(): boolean {
    return this.#waits.length > 0;
  }

  /** Adds parsed bytes. */
  add(chunks: readonly Uint8Array[]): void {
    for (const chunk of chunks) {
      this.#held.push(chunk);
      this.#end += chunk.length;
    }
  }

  /** Returns the block to the pool when the bytes before `end` are written. */
  lend(block: Buffer, end: number): void {
    this.#loans.push({ block, end });
  }

  /**
   * Adds a wait for all bytes in the queue.
   * @param isNew false to extend the last wait to the newest bytes instead
   */
  wait(mark: OutputMark, isNew: boolean): Wait {
    const { last } = this.#waits;
    if (!isNew && last !== undefined) return Object.assign(last, { end: this.#end, mark });
    const wait = { end: this.#end, mark, isOver: false };
    this.#waits.push(wait);
    return wait;
  }

  /**
   * Ends this wait and all earlier waits.
   * @returns false if this wait had already ended, because a later wait was acknowledged
   */
  acknowledge(wait: Wait): boolean {
    if (wait.isOver) return false;
    for (let ended: Wait | undefined; ended !== wait;) {
      ended = this.#waits.shift();
      if (ended === undefined) return false;
      ended.isOver = true;
    }
    return true;
  }

  /** Makes the held bytes before `end` ready. @returns the number of bytes and pieces that became ready */
  release(end: number): { readonly bytes: number; readonly pieces: number } {
    const start = this.#heldStart;
    const released: Uint8Array[] = [];
    while (this.#heldStart < end) {
      const piece = this.#held.first;
      if (piece === undefined) break;
      const part = piece.subarray(0, end - this.#heldStart);
      if (part.length === piece.length) this.#held.shift();
      else this.#held.replaceFirst(piece.subarray(part.length));
      released.push(part);
      this.#heldStart += part.length;
    }
    this.#addReady(released);
    return { bytes: this.#heldStart - start, pieces: released.length };
  }

  /** Adds bytes of the gateway, such as heartbeat responses, after the ready bytes. */
  insert(pieces: readonly Uint8Array[]): void {
    this.#addReady(pieces);
  }

  /**
   * Writes the next round, if the sink accepts one.
   * @returns true if all ready bytes are written and the sink accepts more
   */
  goOn(): boolean {
    while (this.#ready.length > 0 && !this.#sink.writableNeedDrain) {
      if (!this.#hand(ROUND_BYTES)) return false;
    }
    return !this.#sink.writableNeedDrain;
  }

  /** Writes all ready bytes without rounds, so that the caller can write to the sink afterwards. */
  finish(): void {
    this.#hand(Infinity);
  }

  /** Drops the held bytes. */
  dropHeld(): void {
    this.#held.clear();
    this.#heldStart = this.#end;
  }

  /** Drops all bytes because the sink is closed. */
  drop(): void {
    this.dropHeld();
    this.#ready.clear();
    dropBlocks(this.#loans.splice(0).length);
  }

  #addReady(pieces: readonly Uint8Array[]): void {
    const end = this.#heldStart;
    const settle: Written | undefined =
      this.#loans.length === 0 ? undefined : (error) => this.#settle(end, error);
    for (const [index, piece] of pieces.entries())
      this.#ready.push({ piece, written: index === pieces.length - 1 ? settle : undefined });
  }

  /** @returns false if the sink is closed */
  #hand(most: number): boolean {
    const sink = this.#sink;
    if (sink.writableEnded || sink.destroyed) return false;
    for (let bytes = 0; bytes < most;) {
      const next = this.#ready.shift();
      if (next === undefined) break;
      bytes += next.piece.length;
      sink.write(next.piece, next.written);
    }
    return true;
  }

  /**
   * Returns blocks to the pool after a write. Blocks of a failed write are not reused, because the socket may
   * still read from them.
   */
  #settle(end: number, error: Error | null | undefined): void {
    if (error instanceof Error) dropBlocks(this.#loans.splice(0).length);
    while ((this.#loans[0]?.end ?? Infinity) <= end) {
      const loan = this.#loans.shift();
      if (loan !== undefined) giveBlock(loan.block);
    }
  }
}
