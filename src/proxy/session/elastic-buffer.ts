/**
 * A queue for bytes that were read from a connection and cannot be delivered yet: first in memory, then in a file.
 *
 * ```
 *   take ◄── front │ blocks of the file │ being written │ back ◄── push
 *            memory   ≤ diskBytes         memory          memory
 * ```
 *
 * While the file is empty, all bytes are in `front`. The buffer writes only complete blocks to the file, so sessions
 * with little output need no disk. It reuses a block of the file after reading it, and truncates the file when the file
 * is empty.
 *
 * All sessions of one user together get one share of the total memory and disk, see `Shares`. If the user has no memory
 * left, the buffer also moves `front` to the file. It then accepts more bytes until one block waits for the file.
 * Without this rule, many small buffers could fill the memory while their files stay empty.
 *
 * If `full` is true, the caller should stop reading, but the buffer accepts further bytes. If a write to the file
 * fails, its bytes stay in memory. If a read of the file fails, its bytes are lost, and the buffer calls `failed`.
 */
import { adoptBlock, BLOCK_BYTES, giveBlock } from '../../memory/block-pool.ts';
import { BlockQueue, type BlockAccount, type Taken } from '../../memory/block-queue.ts';
import type { OutputLimit } from '../../observe/events.ts';
import type { Shares } from '../../memory/shares.ts';
import type { SpillFile } from './spill-file.ts';

export interface ElasticLimits {
  /** Returns the maximum number of bytes in memory. Further bytes go to the file. Called repeatedly. */
  readonly memoryBytes: () => number;
  /** Maximum number of bytes in the file; 0 disables the file. */
  readonly diskBytes: number;
}

export interface ElasticOptions {
  readonly limits: ElasticLimits;
  /** Memory and disk of all buffers, which users share. */
  readonly memory: Shares;
  readonly disk: Shares;
  /** User of the session. */
  readonly user: string;
  readonly openFile: () => Promise<SpillFile>;
  /** Called when `take` can return bytes again. */
  readonly ready: () => void;
  /** Called when `full` becomes false. */
  readonly room: () => void;
  /**
   * Called when the buffer reaches a limit. Not called when the buffer is full only because the disk is slow.
   */
  readonly limitReached: (limit: OutputLimit) => void;
  /** Called when a write to the file failed. The buffer does not write to the file after that. */
  readonly fileLost: (error: unknown) => void;
  /** Called when a read of the file failed. The bytes in the file are lost. */
  readonly failed: (error: unknown) => void;
}

/** Maximum number of blocks that are written or read in parallel. */
const AT_A_TIME = 16;

/** The queue of one session. */
export class ElasticBuffer {
  readonly #options: ElasticOptions;
  readonly #account: BlockAccount;
  #front: BlockQueue;
  /** Numbers of the blocks in the file, oldest first. */
  #blocks: number[] = [];
  #writing = 0;
  #reading = 0;
  #back: BlockQueue;
  #file: Promise<SpillFile> | undefined;
  /** Size of the file in blocks. */
  #fileBlocks = 0;
  #free: number[] = [];
  #clearing = false;
  #fileLost = false;
  /** True if the last request for disk space was refused, because the user's share of the disk is used up. */
  #diskRefused = false;
  /** True if the last `take` returned nothing because the next bytes were not in memory. */
  #starved = false;
  #closed = false;
  #full = false;
  #reached: OutputLimit | undefined;

  constructor(options: ElasticOptions) {
    this.#options = options;
    const { memory, user } = options;
    this.#account = {
      keep: (bytes) => memory.keep(user, bytes),
      release: (bytes) => memory.give(user, bytes),
    };
    this.#front = new BlockQueue(this.#account);
    this.#back = new BlockQueue(this.#account);
  }

  /** Number of queued bytes. */
  get size(): number {
    return this.#memory + (this.#blocks.length + this.#reading) * BLOCK_BYTES;
  }

  get onDisk(): number {
    return this.#blocks.length * BLOCK_BYTES;
  }

  /** True if the caller should stop reading. */
  get full(): boolean {
    return this.#full;
  }

  /** Queues a chunk. @returns true if the chunk was copied; if false, the caller must not change the chunk */
  push(chunk: Uint8Array): boolean {
    if (this.#closed || chunk.length === 0) return true;
    const size = this.#front.size + chunk.length;
    let copied = true;
    if (this.#fileIdle && this.#back.size === 0 && size <= this.#memoryLimit())
      copied = this.#front.push(chunk);
    else {
      this.#back.copy(chunk);
      const block = adoptBlock(chunk);
      if (block !== undefined) giveBlock(block);
    }
    this.#yieldFront();
    this.#spill();
    this.#judge();
    return copied;
  }

  /**
   * Removes and returns at most `max` bytes. Returns undefined if the queue is empty, or while the next bytes
   * are being read from the file.
   * @param together if true, copies bytes of several blocks into one buffer; if false, returns bytes of only one
   * block, see `BlockQueue`
   */
  take(max: number, together = false): Taken | undefined {
    if (this.#front.size === 0) this.#promote();
    this.#starved = this.#front.size === 0;
    if (this.#starved) {
      this.#fetch();
      return undefined;
    }
    const taken = together ? { bytes: this.#front.takeCopy(max), spent: undefined } : this.#front.take(max);
    this.#diskRefused = false;
    this.#fetch();
    this.#judge();
    return taken;
  }

  /** Drops all bytes. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const { memory, disk, user } = this.#options;
    memory.forget(user, this.#look);
    disk.forget(user, this.#look);
    this.#front.clear();
    this.#back.clear();
    this.#blocks = [];
    disk.give(user, this.#fileBlocks * BLOCK_BYTES);
    this.#fileBlocks = 0;
    this.#file?.then((file) => file.close()).catch(() => {});
  }

  get #memory(): number {
    return this.#front.size + this.#writing * BLOCK_BYTES + this.#back.size;
  }

  get #fileIdle(): boolean {
    return this.#blocks.length === 0 && this.#writing === 0 && this.#reading === 0;
  }

  /** True if the user's share of the memory is used up. */
  get #exhausted(): boolean {
    const { memory, user } = this.#options;
    return memory.spaceOf(user) === 0;
  }

  get #scarce(): boolean {
    const { memory, user } = this.#options;
    return memory.isScarceFor(user);
  }

  #memoryLimit(): number {
    const limit = this.#options.limits.memoryBytes();
    return this.#scarce ? Math.min(limit, BLOCK_BYTES) : limit;
  }

  /** Returns true if the file may grow by a block. */
  #mayGrow(): boolean {
    const { limits } = this.#options;
    const used = this.#blocks.length + this.#writing + this.#reading;
    return !this.#fileLost && (used + 1) * BLOCK_BYTES <= limits.diskBytes && !this.#diskRefused;
  }

  #takeBlock(): number | undefined {
    if (!this.#mayGrow()) return undefined;
    const free = this.#free.pop();
    if (free !== undefined) return free;
    const { disk, user } = this.#options;
    this.#diskRefused = !disk.take(user, BLOCK_BYTES);
    if (this.#diskRefused) return undefined;
    this.#fileBlocks += 1;
    return this.#fileBlocks - 1;
  }

  /** Moves `back` to `front` if the file is empty. */
  #promote(): void {
    if (!this.#fileIdle || this.#back.size === 0) return;
    [this.#front, this.#back] = [this.#back, this.#front];
  }

  /**
   * Moves `front` to `back` if the user has no memory left, so that `front` is written to the file. If the file is not
   * empty, `front` must stay, because it precedes the file.
   */
  #yieldFront(): void {
    if (this.#front.size === 0 || !this.#fileIdle || !this.#mayGrow() || !this.#exhausted) return;
    this.#front.copy(...this.#back.views());
    this.#back.clear();
    [this.#front, this.#back] = [this.#back, this.#front];
  }

  #spill(): void {
    if (this.#writing > 0 || this.#clearing || this.#closed) return;
    const batch: { readonly block: number; readonly bytes: Buffer }[] = [];
    while (batch.length < AT_A_TIME && this.#back.size >= BLOCK_BYTES) {
      this.#writing = batch.length;
      const block = this.#takeBlock();
      const bytes = block === undefined ? undefined : this.#back.takeBlock();
      if (block === undefined || bytes === undefined) break;
      batch.push({ block, bytes });
    }
    this.#writing = batch.length;
    if (batch.length === 0) return;
    this.#file ??= this.#options.openFile();
    const writes = this.#file.then((file) =>
      Promise.all(batch.map(({ block, bytes }) => file.write(block, bytes))),
    );
    writes.then(
      () => {
        this.#writing = 0;
        this.#account.release(batch.length * BLOCK_BYTES);
        for (const { bytes } of batch) giveBlock(bytes);
        if (this.#closed) return;
        for (const { block } of batch) this.#blocks.push(block);
        if (this.#starved) this.#fetch();
        this.#spill();
        this.#judge();
      },
      (error: unknown) => {
        this.#writing = 0;
        if (this.#closed) return this.#account.release(batch.length * BLOCK_BYTES);
        this.#fileLost = true;
        this.#back.unshiftBlocks(batch.map(({ bytes }) => bytes));
        for (const { block } of batch) this.#free.push(block);
        this.#options.fileLost(error);
        this.#judge();
        this.#options.ready();
      },
    );
  }

  #fetch(): void {
    if (this.#closed || this.#reading > 0 || this.#blocks.length === 0) return;
    const scarce = this.#scarce;
    if (this.#front.size >= (scarce ? 1 : 2 * BLOCK_BYTES)) return;
    const some = this.#blocks.splice(0, scarce ? 1 : AT_A_TIME);
    this.#reading = some.length;
    const reads = this.#file?.then((file) => Promise.all(some.map((block) => file.read(block))));
    reads?.then(
      (pieces) => {
        this.#reading = 0;
        if (this.#closed) return;
        for (const piece of pieces) this.#front.pushBlock(piece);
        this.#free.push(...some);
        this.#diskRefused = false;
        this.#tidy();
        this.#spill();
        this.#judge();
        this.#options.ready();
      },
      (error: unknown) => {
        this.#reading = 0;
        if (!this.#closed) this.#options.failed(error);
      },
    );
  }

  /** Truncates the file when it is empty. */
  #tidy(): void {
    if (this.#free.length < this.#fileBlocks || this.#writing > 0 || this.#clearing) return;
    this.#clearing = true;
    void this.#clear();
  }

  async #clear(): Promise<void> {
    try {
      await (await this.#file)?.clear();
      if (this.#closed) return;
      const { disk, user } = this.#options;
      const blocks = this.#fileBlocks;
      this.#fileBlocks = 0;
      this.#free = [];
      disk.give(user, blocks * BLOCK_BYTES);
    } catch {
      // If truncation fails, the file occupies its space until it is closed, so `disk` still counts that space.
    } finally {
      this.#clearing = false;
    }
    this.#spill();
  }

  /** Updates `full`, and calls `limitReached` or `room`. */
  #judge(): void {
    if (this.#closed) return;
    const wasFull = this.#full;
    const { memory, disk, user, limitReached, room } = this.#options;
    const exhausted = this.#exhausted;
    const mayGrow = this.#mayGrow();
    this.#full = mayGrow
      ? this.#back.size + this.#writing * BLOCK_BYTES >= this.#maxWaiting(exhausted)
      : this.#memory >= (exhausted ? 1 : this.#memoryLimit());
    if (this.#full && exhausted) memory.whenSpace(user, this.#look);
    // The buffer waits for disk space even if it is not full. Otherwise it would request disk space again only after a
    // `take`.
    if (this.#diskRefused) disk.whenSpace(user, this.#look);
    const before = this.#reached;
    this.#reached = this.#full && (exhausted || !mayGrow) ? this.#limitOf(exhausted) : undefined;
    if (this.#reached !== undefined && this.#reached !== before) limitReached(this.#reached);
    if (wasFull && !this.#full) room();
  }

  #limitOf(exhausted: boolean): OutputLimit {
    if (this.#diskRefused) return 'userDisk';
    return exhausted ? 'userMemory' : 'session';
  }

  /** Returns the number of bytes that may wait for the file. */
  #maxWaiting(exhausted: boolean): number {
    if (exhausted) return BLOCK_BYTES;
    return this.#scarce ? 2 * BLOCK_BYTES : Math.max(2 * BLOCK_BYTES, this.#memoryLimit());
  }

  readonly #look = (): void => {
    if (this.#closed) return;
    this.#diskRefused = false;
    this.#spill();
    this.#judge();
  };
}
