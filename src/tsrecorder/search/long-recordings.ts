/** Recordings that are too long or too costly for a quick reading. The index reads them in pieces. */
import { FairQueue } from '../../async/fair-queue.ts';

/** Result of reading a recording. `later`: it cannot be read now. */
export type Reading = 'read' | 'later' | 'costly';
/** A reading whose steps return their work in units. */
export type ReadingSteps = AsyncGenerator<number, Reading>;

interface Job {
  readonly id: string;
  readonly steps: ReadingSteps;
}

/** Share of the work for these recordings while others wait. */
const SHARE = 0.1;
/** Number of recordings that are read at once, each of another user. */
const MAX_JOBS = 8;

/** Long recordings of one indexer. */
export class LongRecordings {
  readonly #queue = new FairQueue<string>();
  /** Jobs by recorded user. */
  readonly #jobs = new Map<string, Job>();
  /** Work units that may be used while others wait. */
  #credit = 0;

  /** True if recordings are left. */
  get hasMore(): boolean {
    return this.#queue.size > 0 || this.#jobs.size > 0;
  }

  /** True if a long recording is read next, before short ones. */
  get isDue(): boolean {
    return this.hasMore && this.#credit > 0;
  }

  *ids(): Generator<string> {
    yield* this.#queue;
    for (const { id } of this.#jobs.values()) yield id;
  }

  /** Returns true if its reading has not started. */
  isQueued(id: string): boolean {
    return this.#queue.has(id);
  }

  add(id: string, owner: string): void {
    this.#queue.add(id, owner);
  }

  /** Adds the work units of a quick reading to the credit. */
  earn(work: number): void {
    if (this.hasMore) this.#credit += work * SHARE;
  }

  /**
   * Reads one piece, for the user whose recordings cost least so far.
   *
   * @param read starts reading a recording
   * @returns the recording if it is complete
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
    if (!this.hasMore) this.#credit = 0;
    return step.value === 'read' ? job.id : undefined;
  }

  /** Stops reading these recordings, and closes their files. */
  async drop(isDropped: (id: string) => boolean): Promise<void> {
    for (const [owner, { id, steps }] of this.#jobs) {
      if (!isDropped(id)) continue;
      this.#jobs.delete(owner);
      await steps.return('later').catch(() => undefined);
    }
  }

  /** Drops all recordings. */
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
