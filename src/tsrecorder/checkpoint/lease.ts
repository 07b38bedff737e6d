/**
 * Ownership of open sessions in a shared bucket, without locks and without conditional requests.
 *
 * Every recorder writes a signed lease to `.recorders/<name>` four times per lease duration. If the last write is older
 * than the lease duration, the recorder is lost. Another recorder may then write its own name there as a claim, wait,
 * and check that the claim still exists. A recorder that finds a signed claim on its name chooses a new name and copies
 * its sessions again. The bucket then has two copies of the same streams, which is harmless. Ages are differences
 * between timestamps of the store.
 *
 * Every writer of the bucket can write these objects. Only leases and claims with a trusted signature are valid.
 * Sessions under a name without a valid lease are never taken over.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { encodeStatement, readStatement } from '../evidence/statement.ts';
import type { PublicKey, SigningKey } from '../evidence/signing-key.ts';
import { removeFile, syncDirectory, writeDurableFile } from '../files/durable-files.ts';
import type { Bucket } from '../store/bucket.ts';
import { readObject } from './checkpoint.ts';
import { RECORDERS_FOLDER } from './segments.ts';

export interface LeaseOptions {
  readonly bucket: Bucket;
  /** Directory of the file with the name. A restarted recorder keeps its name. */
  readonly spoolDirectory: string;
  readonly leaseMs: number;
  /** Name of the evidence log of this recorder, and its signing key. */
  readonly evidence: { readonly log: string; readonly key: SigningKey };
  /** Keys of the trusted recorders, including this one, by id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Milliseconds of a monotonic clock. */
  readonly monotonicMs: () => number;
}

const NAME_FILE = 'recorder';
/** Maximum number of leases that are read. */
const MAX_LEASES = 1000;

const leaseSchema = z.strictObject({
  recorder: z.string(),
  /** Author of the lease: the recorder itself, or the recorder that claims its sessions. */
  owner: z.string(),
  /** Evidence log of the owner. */
  log: z.string(),
});
type SignedLease = z.infer<typeof leaseSchema>;

/** Leases in the bucket at one moment. */
export interface Leases {
  /** Names of the live recorders, including this one. */
  readonly live: ReadonlySet<string>;
  /** Names with an expired lease or claim. */
  readonly lost: ReadonlySet<string>;
  /** All names with a signed lease or claim. */
  readonly signed: ReadonlySet<string>;
  /** Evidence logs of the live recorders, including this one. */
  readonly liveLogs: ReadonlySet<string>;
}

/** The lease of a recorder process. */
export class Lease {
  readonly #options: LeaseOptions;
  #name: string;
  #isNew: boolean;

  private constructor(options: LeaseOptions, name: string | undefined) {
    this.#options = options;
    this.#name = name ?? createName();
    this.#isNew = name === undefined;
  }

  /** Opens the lease without a request to the bucket. */
  static async open(options: LeaseOptions): Promise<Lease> {
    const text = await readFile(join(options.spoolDirectory, NAME_FILE), 'utf8').catch(() => '');
    const known = /^[0-9a-f]{16}$/.test(text) ? text : undefined;
    const lease = new Lease(options, known);
    if (known === undefined) await lease.#keepName();
    return lease;
  }

  /** Name of this recorder. */
  get name(): string {
    return this.#name;
  }

  /**
   * Renews the lease.
   * @returns false if another recorder had claimed the sessions of this one, which then has a new name
   * @throws TailcastError `STORE_FAILED`
   */
  async renew(): Promise<boolean> {
    const { leaseMs, monotonicMs } = this.#options;
    const startedAt = monotonicMs();
    const found = this.#isNew ? undefined : await this.#read(this.#name);
    // A claim without a trusted signature is invalid.
    const kept = this.#isNew || found === 'unproven' || found?.owner === this.#name;
    if (!kept) await this.#rename();
    await this.#write(this.#name, this.#name);
    this.#isNew = false;
    // The renewal was so slow that it may have overwritten a claim of another recorder.
    const slow = monotonicMs() - startedAt > leaseMs / 4;
    if (kept && slow) {
      await this.#rename();
      await this.#write(this.#name, this.#name);
      this.#isNew = false;
    }
    return kept && !slow;
  }

  /** Reads all leases. Must be called directly after {@link renew}. */
  async read(): Promise<Leases> {
    const written: { readonly name: string; readonly atMs: number; readonly lease: SignedLease }[] = [];
    let nowMs: number | undefined;
    let left = MAX_LEASES;
    for await (const { objects } of this.#options.bucket.list({ prefix: RECORDERS_FOLDER })) {
      for (const { name: object, modifiedAtMs: atMs } of objects) {
        const name = object.slice(RECORDERS_FOLDER.length);
        if (name === this.#name) nowMs = atMs;
        if (left === 0) continue;
        left -= 1;
        const lease = await this.#read(name);
        if (lease !== undefined && lease !== 'unproven') written.push({ name, atMs, lease });
      }
    }
    const ownLog = this.#options.evidence.log;
    const now = nowMs;
    const signed = new Set(written.map(({ name }) => name));
    if (now === undefined)
      return { live: new Set([this.#name]), lost: new Set(), signed, liveLogs: new Set([ownLog]) };
    const isFresh = (atMs: number): boolean => now - atMs < this.#options.leaseMs;
    const live = written.filter(({ name, atMs, lease }) => isFresh(atMs) && lease.owner === name);
    const lost = written.filter(({ name, atMs }) => name !== this.#name && !isFresh(atMs));
    return {
      live: new Set([this.#name, ...live.map(({ name }) => name)]),
      lost: new Set(lost.map(({ name }) => name)),
      signed,
      liveLogs: new Set([ownLog, ...live.map(({ lease }) => lease.log)]),
    };
  }

  /**
   * Claims the sessions of `name`, or renews the claim. The claim is valid if {@link isHeldBy} returns true after half
   * the lease duration.
   */
  claim(name: string): Promise<void> {
    return this.#write(name, this.#name);
  }

  async isHeldBy(name: string): Promise<boolean> {
    const lease = await this.#read(name);
    return lease !== undefined && lease !== 'unproven' && lease.owner === this.#name;
  }

  /** Removes the lease of a recorder without sessions. */
  forget(name: string): Promise<void> {
    return this.#options.bucket.remove(RECORDERS_FOLDER + name);
  }

  async #read(name: string): Promise<SignedLease | 'unproven' | undefined> {
    const text = await readObject(this.#options.bucket, RECORDERS_FOLDER + name);
    if (text === undefined) return undefined;
    const read = readStatement('lease', text, leaseSchema, this.#options.trusted);
    return 'problem' in read || read.value.recorder !== name ? 'unproven' : read.value;
  }

  #write(recorder: string, owner: string): Promise<void> {
    const { bucket, evidence } = this.#options;
    const lease: SignedLease = { recorder, owner, log: evidence.log };
    return bucket.put(
      RECORDERS_FOLDER + recorder,
      Buffer.from(encodeStatement('lease', lease, evidence.key)),
    );
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
