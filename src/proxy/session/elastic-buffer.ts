/**
 * Keeps, in order, what has been taken off a connection and cannot be passed on yet: in memory, then in a file.
 *
 * ```
 *   take ◄── front │ blocks of the file │ being written │ back ◄── push
 *            memory   ≤ diskBytes         memory          memory
 * ```
 *
 * While the file is empty everything is in front. Only whole blocks are written, so a trickle costs no disk. A block is free
 * again when it has been read, and the file is emptied when nothing is in it.
 *
 * `full` asks the caller to read no more; what it pushes all the same is kept. A file that cannot be written is done
 * without: what was to go there stays in memory. What cannot be read back is lost, and `failed` says so.
 */
import { adoptBlock, BLOCK_BYTES, giveBlock } from '../../memory/block-pool.ts';
import { BlockQueue, type Taken } from '../../memory/block-queue.ts';
import type { ElasticBudget } from './elastic-budget.ts';
import type { SpillFile } from './spill-file.ts';

export interface ElasticLimits {
  /** What may wait in memory before the file is used. Asked again and again. */
  readonly memoryBytes: () => number;
  /** 0: there is no file. */
  readonly diskBytes: number;
}

export interface ElasticOptions {
  readonly limits: ElasticLimits;
  readonly budget: ElasticBudget;
  readonly openFile: () => Promise<SpillFile>;
  /** `take` has something again. */
  readonly ready: () => void;
  /** It is not `full` any more. */
  readonly room: () => void;
  /** It is full, and no disk that is quicker would change that. */
  readonly beyond: () => void;
  /** Nothing goes to the file from now on. */
  readonly fileLost: (error: unknown) => void;
  /** What was in the file cannot be had back. */
  readonly failed: (error: unknown) => void;
}

/** Blocks that are written, or read, at the same time. */
const AT_A_TIME = 16;

export class ElasticBuffer {
  readonly #options: ElasticOptions;
  #front: BlockQueue;
  /** Written, oldest first. */
  #blocks: number[] = [];
  #writing = 0;
  #reading = 0;
  #back: BlockQueue;
  #file: Promise<SpillFile> | undefined;
  /** Blocks the file has room for now, and those of them that hold nothing. */
  #fileBlocks = 0;
  #free: number[] = [];
  #clearing = false;
  #fileLost = false;
  /** The files of all sessions together took all they may when it was last asked. */
  #diskRefused = false;
  #closed = false;
  #full = false;
  #beyond = false;

  constructor(options: ElasticOptions) {
    this.#options = options;
    this.#front = new BlockQueue(options.budget);
    this.#back = new BlockQueue(options.budget);
  }

  /** Bytes that wait. */
  get size(): number {
    return this.#memory + (this.#blocks.length + this.#reading) * BLOCK_BYTES;
  }

  get onDisk(): number {
    return this.#blocks.length * BLOCK_BYTES;
  }

  /** No more should be read. */
  get full(): boolean {
    return this.#full;
  }

  /** Keeps a chunk. @returns whether it was copied; else nobody may write into it any more */
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
      this.#spill();
    }
    this.#judge();
    return copied;
  }

  /**
   * Takes at most `max` bytes out; undefined while they are on their way, or when nothing waits.
   * @param together as many as there are, copied; else what lies together, see `BlockQueue`
   */
  take(max: number, together = false): Taken | undefined {
    if (this.#front.size === 0) this.#promote();
    if (this.#front.size === 0) {
      this.#fetch();
      return undefined;
    }
    const taken = together ? { bytes: this.#front.takeCopy(max), spent: undefined } : this.#front.take(max);
    this.#diskRefused = false;
    this.#fetch();
    this.#judge();
    return taken;
  }

  /** Drops what waits. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const { budget } = this.#options;
    budget.forget(this.#look);
    this.#front.clear();
    this.#back.clear();
    this.#blocks = [];
    budget.releaseDisk(this.#fileBlocks * BLOCK_BYTES);
    this.#fileBlocks = 0;
    this.#file?.then((file) => file.close()).catch(() => {});
  }

  get #memory(): number {
    return this.#front.size + this.#writing * BLOCK_BYTES + this.#back.size;
  }

  get #fileIdle(): boolean {
    return this.#blocks.length === 0 && this.#writing === 0 && this.#reading === 0;
  }

  #memoryLimit(): number {
    const { limits, budget } = this.#options;
    const limit = limits.memoryBytes();
    return budget.scarce ? Math.min(limit, BLOCK_BYTES) : limit;
  }

  /** Whether the file could take another block. */
  #mayGrow(): boolean {
    const { limits } = this.#options;
    const used = this.#blocks.length + this.#writing + this.#reading;
    return !this.#fileLost && (used + 1) * BLOCK_BYTES <= limits.diskBytes && !this.#diskRefused;
  }

  #takeBlock(): number | undefined {
    if (!this.#mayGrow()) return undefined;
    const free = this.#free.pop();
    if (free !== undefined) return free;
    this.#diskRefused = !this.#options.budget.takeDisk(BLOCK_BYTES);
    if (this.#diskRefused) return undefined;
    this.#fileBlocks += 1;
    return this.#fileBlocks - 1;
  }

  /** What waits behind an empty file need not go through it. */
  #promote(): void {
    if (!this.#fileIdle || this.#back.size === 0) return;
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
        const { budget } = this.#options;
        this.#writing = 0;
        budget.release(batch.length * BLOCK_BYTES);
        for (const { bytes } of batch) giveBlock(bytes);
        if (this.#closed) return;
        for (const { block } of batch) this.#blocks.push(block);
        this.#fetch();
        this.#spill();
        this.#judge();
      },
      (error: unknown) => {
        this.#writing = 0;
        if (this.#closed) return this.#options.budget.release(batch.length * BLOCK_BYTES);
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
    const { scarce } = this.#options.budget;
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

  /** Gives the disk back when nothing is on it. */
  #tidy(): void {
    if (this.#free.length < this.#fileBlocks || this.#writing > 0 || this.#clearing) return;
    this.#clearing = true;
    void this.#clear();
  }

  async #clear(): Promise<void> {
    try {
      await (await this.#file)?.clear();
      if (this.#closed) return;
      this.#options.budget.releaseDisk(this.#fileBlocks * BLOCK_BYTES);
      this.#fileBlocks = 0;
      this.#free = [];
    } catch {
      // space that stays with the file until it is closed stays on the account, too
    } finally {
      this.#clearing = false;
    }
    this.#spill();
  }

  /** Sets `full`, and tells of room. */
  #judge(): void {
    const before = this.#full;
    const { budget } = this.#options;
    const waits = this.#back.size + this.#writing * BLOCK_BYTES;
    const limit = this.#memoryLimit();
    this.#full = this.#mayGrow()
      ? waits >= Math.max(2 * BLOCK_BYTES, budget.scarce ? 0 : limit)
      : this.#memory >= limit;
    if (budget.exhausted && this.#memory > 0) {
      this.#full = true;
      budget.whenRoom(this.#look);
    }
    const wasBeyond = this.#beyond;
    this.#beyond = this.#full && (budget.exhausted || !this.#mayGrow());
    if (this.#closed) return;
    if (this.#beyond && !wasBeyond) this.#options.beyond();
    if (before && !this.#full) this.#options.room();
  }

  readonly #look = (): void => {
    if (this.#closed) return;
    this.#diskRefused = false;
    this.#spill();
    this.#judge();
  };
}
