/** Recordings that are too long or too costly for a quick reading. The index reads such recordings in pieces. */
import { FairQueue } from '../../async/fair-queue.ts';

/** Result of reading a recording. `later`: the recording cannot be read now. */
export type Reading = 'read' | 'later' | 'costly';
/** Reads a recording in steps. Each step yields its work units. */
export type ReadingSteps = AsyncGenerator<number, Reading>;

interface Job {
  readonly id: string;
  readonly steps: ReadingSteps;
}

/** Fraction of the work that long recordings get while short recordings wait. */
const SHARE = 0.1;
/** Number of recordings that are read concurrently. Each of these recordings belongs to a different user. */
const MAX_JOBS = 8;

/** Long recordings of one indexer. */
export class LongRecordings {
  readonly #queue = new FairQueue<string>();
  /** Jobs for long recordings. Map keys: user of the recording. */
  readonly #jobs = new Map<string, Job>();
  /** Work units that long recordings may use while short recordings wait. */
  #credit = 0;

  /** True if there are long recordings to read. */
  get hasMore(): boolean {
    return this.#queue.size > 0 || this.#jobs.size > 0;
  }

  /** True if the next recording to read is a long recording, although short recordings wait. */
  get isDue(): boolean {
    return this.hasMore && this.#credit > 0;
  }

  *ids(): Generator<string> {
    yield* this.#queue;
    for (const { id } of this.#jobs.values()) yield id;
  }

  /** True if the recording is queued, and none of its pieces was read. */
  isQueued(id: string): boolean {
    return this.#queue.has(id);
  }

  add(id: string, owner: string): void {
    this.#queue.add(id, owner);
  }

  /** Adds a fraction of `work` to the credit for long recordings. @param work work units of a quick reading */
  earn(work: number): void {
    if (this.hasMore) this.#credit += work * SHARE;
  }

  /**
   * Reads one piece of a recording. Selects the user whose recordings needed the least work.
   *
   * @param read starts reading a recording
   * @returns the id of the recording if its last piece was read, otherwise undefined
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
