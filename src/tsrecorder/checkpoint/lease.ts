/**
 * Ownership of open sessions in a shared bucket, without locks and without conditional requests.
 *
 * Every recorder writes a signed lease to `.recorders/<name>` four times per lease duration. If the last write is older
 * than the lease duration, the recorder counts as lost. Another recorder may then replace the lease with a claim, which
 * contains the name of the claiming recorder. The claiming recorder waits, and checks that the claim still exists. A
 * recorder that finds a signed claim in place of its own lease chooses a new name and copies its sessions again. The
 * bucket then has two copies of these sessions, which is harmless. The age of a lease is the difference between two
 * timestamps of the store, so the clocks of recorders may differ.
 *
 * Anyone with write access to the bucket can write these objects, so only leases and claims with a trusted signature
 * are valid. Sessions under a name without a valid lease are never taken over. An attacker with write access can also
 * restore an earlier lease. For this reason, each lease contains a later time than the previous lease, and a recorder
 * is live only while these times advance. Each lease also contains the last published entry of the evidence log. Live
 * recorders therefore detect an older copy of that log.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { createSequence } from '../../async/sequence.ts';
import { BoundedMap } from '../../bounded-map.ts';
import type { LogHead } from '../evidence/log-entry.ts';
import { encodeStatement, readStatement } from '../evidence/statement.ts';
import type { PublicKey, SigningKey } from '../evidence/signing-key.ts';
import { replaceFile } from '../../directories.ts';
import type { Bucket } from '../store/bucket.ts';
import { createCheckCache, readObject } from './checkpoint.ts';
import { RECORDERS_FOLDER } from './segments.ts';

export interface LeaseOptions {
  readonly bucket: Bucket;
  /** Directory of the file that contains the name of this recorder. A restarted recorder keeps its name. */
  readonly spoolDirectory: string;
  readonly leaseMs: number;
  /** The evidence log of this recorder: name, signing key, and last published entry. */
  readonly evidence: {
    readonly log: string;
    readonly key: SigningKey;
    readonly published?: () => LogHead | undefined;
  };
  /** Public keys of the trusted recorders, including this recorder. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** `monotonicMs` returns the time of a monotonic clock, and `nowMs` the time since the epoch, in milliseconds. */
  readonly monotonicMs: () => number;
  readonly nowMs: () => number;
}

/** Log message of a recorder whose lease was claimed. */
export const LEASE_TAKEN =
  'another recorder claimed the sessions of this recorder in the bucket; they are copied again under a new name';

const NAME_FILE = 'recorder';
/** Maximum number of signed leases that one pass reads. */
const MAX_LEASES = 1000;
const READ_CONCURRENCY = 8;
/**
 * Maximum difference between the clocks of two recorders, in milliseconds. S3 servers reject requests from a client
 * whose clock is wrong by an hour.
 */
const MAX_CLOCK_DIFFERENCE_MS = 3_600_000;

const leaseSchema = z.strictObject({
  recorder: z.string(),
  /** Name of the author of the lease: the recorder itself, or another recorder that claims its sessions. */
  owner: z.string(),
  /** Evidence log of the owner. */
  log: z.string(),
  /** Last published entry of the evidence log: number and hash. */
  head: z.strictObject({ n: z.int().min(0), hash: z.string() }).exactOptional(),
  /** Milliseconds since the epoch. The owner increases this time with each lease under this name. */
  at: z.int().min(0),
});
type SignedLease = z.infer<typeof leaseSchema>;

/** A signed lease, and the time of its object in the store. */
interface Written {
  readonly name: string;
  readonly atMs: number;
  readonly lease: SignedLease;
}

/** Leases in the bucket at one moment. */
export interface Leases {
  /** Names of the live recorders, including this recorder. */
  readonly live: ReadonlySet<string>;
  /** Names with an expired lease or claim. */
  readonly lost: ReadonlySet<string>;
  /** All names with a signed lease or claim. */
  readonly signed: ReadonlySet<string>;
  /** Evidence logs of the live recorders, including this recorder. */
  readonly liveLogs: ReadonlySet<string>;
}

/** The lease of a recorder process. */
export class Lease {
  readonly #options: LeaseOptions;
  #name: string;
  #isNew: boolean;
  /** Time of the last lease or claim of this recorder. */
  #at = 0;
  /** Time of each claim of this recorder. Keys: name of the recorder whose sessions were claimed. */
  readonly #claimed = new Map<string, number>();
  /**
   * Latest time in each lease, and the monotonic time when this recorder first read that value. Keys: name and owner.
   */
  readonly #seen = new Map<string, { readonly at: number; readonly sinceMs: number }>();
  /** Newest entry of each evidence log, from all leases that this recorder read. Map keys: name of the log. */
  readonly #heads = new BoundedMap<LogHead>(MAX_LEASES);
  readonly #checked = createCheckCache<SignedLease | 'unproven' | undefined>();
  readonly #exclusively = createSequence();

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
   * @returns false if another recorder claimed the sessions of this recorder, or may have claimed them. This recorder
   * then has a new name
   * @throws TailcastError `STORE_FAILED`
   */
  renew(): Promise<boolean> {
    return this.#exclusively(() => this.#renew());
  }

  async #renew(): Promise<boolean> {
    const { leaseMs, monotonicMs } = this.#options;
    const startedAt = monotonicMs();
    const found = this.#isNew ? undefined : await this.#read(this.#name);
    // Ignore a claim without a trusted signature, because it is invalid.
    const kept = this.#isNew || found === 'unproven' || found?.owner === this.#name;
    if (typeof found === 'object') this.#at = Math.max(this.#at, found.at);
    if (!kept) await this.#rename();
    await this.#write(this.#name, this.#name);
    this.#isNew = false;
    // Choose a new name after a slow renewal, because it may have overwritten a claim of another recorder.
    const slow = monotonicMs() - startedAt > leaseMs / 4;
    if (kept && slow) {
      await this.#rename();
      await this.#write(this.#name, this.#name);
      this.#isNew = false;
    }
    return kept && !slow;
  }

  /** Reads all leases. Call {@link renew} immediately before this method. */
  async read(): Promise<Leases> {
    const written: Written[] = [];
    let nowMs: number | undefined;
    for await (const { objects } of this.#options.bucket.list({ prefix: RECORDERS_FOLDER })) {
      await forEachConcurrent(objects, READ_CONCURRENCY, async (object) => {
        const name = object.name.slice(RECORDERS_FOLDER.length);
        if (name === this.#name) nowMs = object.modifiedAtMs;
        if (written.length >= MAX_LEASES) return;
        const lease = await this.#checked(object, () => this.#read(name));
        if (typeof lease !== 'object') return;
        written.push({ name, atMs: object.modifiedAtMs, lease });
        this.#rememberHead(lease);
      });
    }
    const ownLog = this.#options.evidence.log;
    const now = nowMs;
    const signed = new Set(written.map(({ name }) => name));
    const oldest = this.#options.nowMs() - this.#options.leaseMs - MAX_CLOCK_DIFFERENCE_MS;
    for (const [id, seen] of this.#seen) if (seen.at < oldest) this.#seen.delete(id);
    const fresh = new Set(written.filter((each) => this.#advances(each)));
    if (now === undefined)
      return { live: new Set([this.#name]), lost: new Set(), signed, liveLogs: new Set([ownLog]) };
    const isFresh = (each: Written): boolean => fresh.has(each) && now - each.atMs < this.#options.leaseMs;
    const live = written.filter((each) => isFresh(each) && each.lease.owner === each.name);
    const lost = written.filter((each) => each.name !== this.#name && !isFresh(each));
    return {
      live: new Set([this.#name, ...live.map(({ name }) => name)]),
      lost: new Set(lost.map(({ name }) => name)),
      signed,
      liveLogs: new Set([ownLog, ...live.map(({ lease }) => lease.log)]),
    };
  }

  /**
   * Returns the newest entry of an evidence log that a lease contained since this process started. If the entry is no
   * longer in the log, an attacker restored an older copy of the log.
   */
  headOf(log: string): LogHead | undefined {
    return this.#heads.get(log);
  }

  #rememberHead({ log, head }: SignedLease): void {
    const known = this.#heads.get(log) ?? { log, n: -1, hash: '' };
    this.#heads.set(log, head === undefined || head.n <= known.n ? known : { log, ...head });
  }

  /**
   * True if the time in a lease advanced within the last lease duration. A lease with an earlier time does not count,
   * because an attacker may have restored it.
   */
  #advances({ name, lease: { owner, at } }: Written): boolean {
    const { leaseMs, monotonicMs, nowMs } = this.#options;
    if (at < nowMs() - leaseMs - MAX_CLOCK_DIFFERENCE_MS || at > nowMs() + MAX_CLOCK_DIFFERENCE_MS)
      return false;
    const id = `${name} ${owner}`;
    const known = this.#seen.get(id);
    const seen = known === undefined || known.at < at ? { at, sinceMs: monotonicMs() } : known;
    this.#seen.set(id, seen);
    return monotonicMs() - seen.sinceMs < leaseMs;
  }

  /**
   * Claims the sessions of `name`, or renews the claim. After a claim, wait half the lease duration, and then call
   * {@link isHeldBy}: the claim is valid if it returns true.
   */
  async claim(name: string): Promise<void> {
    await this.#write(name, this.#name);
    this.#claimed.set(name, this.#at);
  }

  async isHeldBy(name: string): Promise<boolean> {
    const lease = await this.#read(name);
    return typeof lease === 'object' && lease.owner === this.#name && lease.at === this.#claimed.get(name);
  }

  /** Removes the lease of a recorder without sessions. */
  forget(name: string): Promise<void> {
    this.#claimed.delete(name);
    return this.#options.bucket.remove(RECORDERS_FOLDER + name);
  }

  async #read(name: string): Promise<SignedLease | 'unproven' | undefined> {
    const text = await readObject(this.#options.bucket, RECORDERS_FOLDER + name);
    if (text === undefined) return undefined;
    const read = readStatement('lease', text, leaseSchema, this.#options.trusted);
    return 'problem' in read || read.value.recorder !== name ? 'unproven' : read.value;
  }

  #write(recorder: string, owner: string): Promise<void> {
    const { bucket, evidence, nowMs } = this.#options;
    this.#at = Math.max(this.#at + 1, Math.floor(nowMs()));
    const { log } = evidence;
    const published = evidence.published?.();
    const head = published === undefined ? {} : { head: { n: published.n, hash: published.hash } };
    const lease: SignedLease = { recorder, owner, log, ...head, at: this.#at };
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

  #keepName(): Promise<void> {
    return replaceFile(join(this.#options.spoolDirectory, NAME_FILE), this.#name);
  }
}

function createName(): string {
  return randomBytes(8).toString('hex');
}
