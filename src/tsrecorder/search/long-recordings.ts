/** Recordings that are too long or too costly for a quick reading: read piece by piece, between others. */
import { FairQueue } from '../../async/fair-queue.ts';

/** What became of a recording that was to be read; `later`: it cannot be read now. */
export type Reading = 'read' | 'later' | 'costly';
/** A reading whose steps give the work units that they took. */
export type ReadingSteps = AsyncGenerator<number, Reading>;

interface Job {
  readonly id: string;
  readonly steps: ReadingSteps;
}

/** Work of these recordings in proportion to the work of others, while others wait. */
const SHARE = 0.1;
/** Recordings that are read at a time, each of another user. */
const MAX_JOBS = 8;

/** One per indexer. */
export class LongRecordings {
  readonly #queue = new FairQueue<string>();
  /** By recorded user. */
  readonly #jobs = new Map<string, Job>();
  /** Work units that may be used while others wait. */
  #credit = 0;

  /** True if there is anything to read. */
  get isLeft(): boolean {
    return this.#queue.size > 0 || this.#jobs.size > 0;
  }

  /** True if one of these comes before a recording that waits for a quick reading. */
  get isDue(): boolean {
    return this.isLeft && this.#credit > 0;
  }

  *ids(): Generator<string> {
    yield* this.#queue;
    for (const { id } of this.#jobs.values()) yield id;
  }

  /** True if its reading has not begun. */
  isQueued(id: string): boolean {
    return this.#queue.has(id);
  }

  add(id: string, owner: string): void {
    this.#queue.add(id, owner);
  }

  /** Work units that a quick reading has taken. */
  earn(work: number): void {
    if (this.isLeft) this.#credit += work * SHARE;
  }

  /**
   * Reads one more piece, of the user whose recordings have cost least.
   *
   * @param read begins to read a recording
   * @returns the recording if it has been read
   */
  async advance(read: (id: string) => ReadingSteps): Promise<string | undefined> {
    const owner = this.#nextOwner();
    if (owner === undefined) return undefined;
    const job = this.#jobs.get(owner) ?? this.#begin(owner, read);
    if (job === undefined) return undefined;
    const step = await job.steps.next();
    if (step.done !== true) {
      this.#queue.charge(owner, step.value);
      this.#credit -= step.value;
      return undefined;
    }
    this.#jobs.delete(owner);
    if (!this.isLeft) this.#credit = 0;
    return step.value === 'read' ? job.id : undefined;
  }

  /** Stops reading: files are closed, and the process forgets what it has read. */
  async drop(isDropped: (id: string) => boolean): Promise<void> {
    for (const [owner, { id, steps }] of this.#jobs) {
      if (!isDropped(id)) continue;
      this.#jobs.delete(owner);
      await steps.return('later').catch(() => undefined);
    }
  }

  /** Forgets all of them. */
  async clear(): Promise<void> {
    await this.drop(() => true);
    this.#queue.clear();
    this.#credit = 0;
  }

  #nextOwner(): string | undefined {
    let next = this.#jobs.size < MAX_JOBS ? this.#queue.first((owner) => !this.#jobs.has(owner)) : undefined;
    for (const owner of this.#jobs.keys())
      if (next === undefined || this.#queue.costOf(owner) < this.#queue.costOf(next)) next = owner;
    return next;
  }

  #begin(owner: string, read: (id: string) => ReadingSteps): Job | undefined {
    const id = this.#queue.take((each) => each === owner);
    if (id === undefined) return undefined;
    const job = { id, steps: read(id) };
    this.#jobs.set(owner, job);
    return job;
  }
}
