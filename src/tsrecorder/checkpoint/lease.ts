/**
 * Which recorder owns which open sessions in a shared bucket, without locks and without conditional requests.
 *
 * Every recorder writes a signed lease to `.recorders/<name>` four times in a lease. A recorder is lost if its last lease
 * is older than that; another one may then claim what it left by writing its own name there, wait, and look whether the
 * claim still stands. A recorder that finds a signed claim on its name takes another name and copies its sessions anew:
 * they are then in the bucket twice, which does no harm, because both are copies of one stream. Ages are differences of
 * times that the store gave.
 *
 * Everybody with write access to the bucket can write these objects, so only leases and claims that a trusted key signed
 * count. A name without such a lease is not lost: nobody takes over what is below it.
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
  /** The name is kept there, so that a restarted recorder finds its own. */
  readonly spoolDirectory: string;
  readonly leaseMs: number;
  /** Name of the evidence log of this recorder, and the key that signs it. */
  readonly evidence: { readonly log: string; readonly key: SigningKey };
  /** The keys of the recorders that count, by id; this recorder's own is one of them. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Milliseconds of a monotonic clock. */
  readonly monotonicMs: () => number;
}

const NAME_FILE = 'recorder';
/** Maximum number of leases that are read. */
const MAX_LEASES = 1000;

const leaseSchema = z.strictObject({
  recorder: z.string(),
  /** The recorder that wrote it: the same, or the one that claims what the other left. */
  owner: z.string(),
  /** Evidence log of the owner. */
  log: z.string(),
});
type SignedLease = z.infer<typeof leaseSchema>;

/** The leases in the bucket at one moment. */
export interface Leases {
  /** Names of the recorders that live, this one's included. */
  readonly live: ReadonlySet<string>;
  /** Names whose signed lease, or the signed claim on it, is older than a lease. */
  readonly lost: ReadonlySet<string>;
  /** All names with a signed lease or claim. */
  readonly signed: ReadonlySet<string>;
  /** Evidence logs of the recorders that live, this one's included. */
  readonly liveLogs: ReadonlySet<string>;
}

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
    const found = this.#isNew ? undefined : await this.#read(this.#name);
    // what no trusted key signed is no claim
    const kept = this.#isNew || found === 'unproven' || found?.owner === this.#name;
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

  /** Reads all leases. To be called right after {@link renew}. */
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

  /** Claims, or confirms a claim on, what `name` left. It stands if {@link holds} says so half a lease later. */
  claim(name: string): Promise<void> {
    return this.#write(name, this.#name);
  }

  async holds(name: string): Promise<boolean> {
    const lease = await this.#read(name);
    return lease !== undefined && lease !== 'unproven' && lease.owner === this.#name;
  }

  /** Nothing is left of `name`. */
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
