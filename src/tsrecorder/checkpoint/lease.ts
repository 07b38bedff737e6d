/**
 * Which recorder owns which open sessions in a shared bucket, without locks and without conditional requests.
 *
 * Every recorder writes `.recorders/<name>` again and again. One that has not done so for a lease is lost; another one
 * may then claim what it left by writing its own name there, wait, and look whether the claim still stands. A recorder
 * that finds itself claimed takes another name and begins anew: its sessions are then in the bucket twice, which does no
 * harm, because both are copies of one stream. Ages are differences of times that the store gave.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TailcastError } from '../../errors.ts';
import { removeFile, syncDirectory, writeDurableFile } from '../files/durable-files.ts';
import type { Bucket } from '../store/bucket.ts';
import { RECORDERS_FOLDER } from './segments.ts';

export interface LeaseOptions {
  readonly bucket: Bucket;
  /** The name is kept there, so that a restarted recorder finds its own. */
  readonly spoolDirectory: string;
  readonly leaseMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonicMs: () => number;
}

const NAME_FILE = 'recorder';

/** One per recorder process. */
export class Lease {
  readonly #options: LeaseOptions;
  #name: string;
  #isNew: boolean;

  private constructor(options: LeaseOptions, name: string | undefined) {
    this.#options = options;
    this.#name = name ?? createName();
    this.#isNew = name === undefined;
  }

  /** Asks nothing of the bucket. */
  static async open(options: LeaseOptions): Promise<Lease> {
    const text = await readFile(join(options.spoolDirectory, NAME_FILE), 'utf8').catch(() => '');
    const known = /^[0-9a-f]{16}$/.test(text) ? text : undefined;
    const lease = new Lease(options, known);
    if (known === undefined) await lease.#keepName();
    return lease;
  }

  /** Of this recorder. */
  get name(): string {
    return this.#name;
  }

  /**
   * Says that this recorder lives.
   *
   * @returns false when another had claimed what this one left: it has a new name now.
   * @throws TailcastError `STORE_FAILED`
   */
  async renew(): Promise<boolean> {
    const { leaseMs, monotonicMs } = this.#options;
    const startedAt = monotonicMs();
    const kept = this.#isNew || (await this.#owner(this.#name)) === this.#name;
    if (!kept) await this.#rename();
    await this.#write(this.#name, this.#name);
    this.#isNew = false;
    // so slow that the claim of another may have come and been overwritten
    const slow = monotonicMs() - startedAt > leaseMs / 4;
    if (kept && slow) {
      await this.#rename();
      await this.#write(this.#name, this.#name);
      this.#isNew = false;
    }
    return kept && !slow;
  }

  /**
   * Names that own something and have not been written for a lease, this one's excluded. To be asked right after
   * {@link renew}.
   *
   * @param owners names that own sessions.
   */
  async lost(owners: ReadonlySet<string>): Promise<readonly string[]> {
    const writtenAt = new Map<string, number>();
    for await (const { objects } of this.#options.bucket.list({ prefix: RECORDERS_FOLDER })) {
      for (const { name, modifiedAtMs } of objects) {
        writtenAt.set(name.slice(RECORDERS_FOLDER.length), modifiedAtMs);
      }
    }
    const now = writtenAt.get(this.#name);
    if (now === undefined) return [];
    return [...owners].filter((owner) => {
      const at = writtenAt.get(owner);
      return owner !== this.#name && (at === undefined || now - at >= this.#options.leaseMs);
    });
  }

  /** Claims, or confirms a claim on, what `name` left. It stands if {@link holds} says so half a lease later. */
  claim(name: string): Promise<void> {
    return this.#write(name, this.#name);
  }

  async holds(name: string): Promise<boolean> {
    return (await this.#owner(name)) === this.#name;
  }

  /** Nothing is left of `name`. */
  forget(name: string): Promise<void> {
    return this.#options.bucket.remove(RECORDERS_FOLDER + name);
  }

  async #owner(name: string): Promise<string | undefined> {
    try {
      const content = await Array.fromAsync(this.#options.bucket.get(RECORDERS_FOLDER + name));
      return Buffer.concat(content).toString().trim();
    } catch (error) {
      if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
      throw error;
    }
  }

  #write(name: string, owner: string): Promise<void> {
    return this.#options.bucket.put(RECORDERS_FOLDER + name, Buffer.from(`${owner}\n`));
  }

  async #rename(): Promise<void> {
    this.#name = createName();
    this.#isNew = true;
    await this.#keepName();
  }

  async #keepName(): Promise<void> {
    const { spoolDirectory } = this.#options;
    const path = join(spoolDirectory, NAME_FILE);
    await removeFile(path);
    await writeDurableFile(path, [Buffer.from(this.#name)]);
    await syncDirectory(spoolDirectory);
  }
}

function createName(): string {
  return randomBytes(8).toString('hex');
}
