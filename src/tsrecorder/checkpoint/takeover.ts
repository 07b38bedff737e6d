/**
 * Stores sessions that a lost recorder left in the shared bucket. `lease.ts` decides which recorder takes a session
 * over, and `prove.ts` checks the session. Unproven sessions stay in the bucket: no recorder signs or removes them.
 */
import { errorReason, errorText, TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { checkSigned } from '../evidence/verify-recording.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { parseRecordingId, recordingId, type RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import { LEASE_TAKEN, type Lease, type LeaseOptions, type Leases } from './lease.ts';
import { createSignedCheck, versionOf, type SignedCheck } from './checkpoint.ts';
import { proveSession, type Distrust, type EndedSession, type ProvenSession } from './prove.ts';
import { rebuildSpool } from './rebuild.ts';
import {
  listOpenSessions,
  removeFolder,
  segmentsBytes,
  sessionFolder,
  type OpenSession,
} from './segments.ts';

/** An unproven session in the bucket, and the reason why it is unproven. */
export interface UntrustedSession extends Distrust {
  readonly recording: string;
  /** Name prefix of the session in the bucket. */
  readonly folder: string;
}

export interface TakeoverOptions extends Omit<LeaseOptions, 'evidence' | 'nowMs'> {
  readonly store: RecordingStore;
  readonly lease: Lease;
  /** Evidence log of this recorder. `publish` writes all entries to the store. */
  readonly evidence: Pick<SessionEvidence, 'log' | 'publish' | 'witnessed'>;
  readonly live: () => readonly LiveRecording[];
  /** Adopts a rebuilt spool. Resolves when the recording is in the store. */
  readonly adopt: (key: RecordingKey) => Promise<void>;
  readonly log: Logger;
  readonly onAdopted: () => void;
  /** Called after each pass with all unproven sessions. */
  readonly onUntrusted: (sessions: readonly UntrustedSession[]) => void;
}

/**
 * Time after which an unproven session is checked again, in lease durations. The evidence log of the lost recorder may
 * be published late.
 */
const REMEMBERED_LEASES = 4;
const NO_LEASE = 'its recorder has no signed lease in the bucket';

const NOT_STORED = 'its recorder stored it, and the store does not have that recording';

/**
 * Cached reason why a session is unproven. The cache entry is valid for `REMEMBERED_LEASES` lease durations, or until
 * an object of the session changes.
 */
interface Remembered {
  readonly version: string;
  readonly atMs: number;
  readonly distrust: Distrust;
}

type Proven = ProvenSession & { readonly session: OpenSession };

/** Data of one pass. */
interface Look {
  readonly sessions: readonly OpenSession[];
  readonly leases: Leases;
  /** Ids of the open sessions of this recorder. */
  readonly open: ReadonlySet<string>;
  readonly untrusted: UntrustedSession[];
}

/**
 * Creates a function that makes one pass: it renews the lease of this recorder, checks the sessions of this recorder
 * and of lost recorders, and stores the proven sessions that no live recorder owns.
 */
export function createTakeover(options: TakeoverOptions): () => Promise<void> {
  const takeover = new Takeover(options);
  return () => takeover.look();
}

class Takeover {
  readonly #options: TakeoverOptions;
  readonly #checks: () => SignedCheck;
  /** Folders of the sessions that are being stored. */
  readonly #adopting = new Set<string>();
  /** Names that this recorder has claimed, and the time of each claim. */
  readonly #claims = new Map<string, number>();
  /** Reasons why sessions are unproven. Map keys: folder of the session. */
  readonly #distrusted = new Map<string, Remembered>();

  constructor(options: TakeoverOptions) {
    this.#options = options;
    this.#checks = createSignedCheck(options.bucket, options.trusted);
  }

  async look(): Promise<void> {
    const { bucket, lease, log, live } = this.#options;
    if (!(await lease.renew())) log.warn(LEASE_TAKEN);
    const sessions = await listOpenSessions(bucket, this.#checks());
    const leases = await lease.read();
    const open = new Set(live().map(({ key }) => recordingId(key)));
    const look: Look = { sessions, leases, open, untrusted: [] };
    const byOwner = Map.groupBy(sessions, ({ recorder }) => recorder);
    for (const [owner, left] of byOwner) {
      const isOwn = owner === lease.name;
      if (!isOwn && leases.live.has(owner)) continue;
      await this.#takeFrom(owner, left, look);
    }
    for (const owner of [...this.#claims.keys()].filter((name) => !byOwner.has(name))) {
      if (await lease.isHeldBy(owner)) await lease.forget(owner);
      this.#claims.delete(owner);
    }
    // Remove the lease of a lost recorder without sessions, because there is nothing to take over.
    for (const owner of leases.lost) if (!byOwner.has(owner)) await lease.forget(owner);
    this.#forgetClosed(sessions);
    this.#options.onUntrusted(look.untrusted);
  }

  /**
   * Handles the sessions of one owner.
   * @param left open sessions of the owner. The owner is this recorder, or a recorder that is not live
   */
  async #takeFrom(owner: string, left: readonly OpenSession[], look: Look): Promise<void> {
    const { lease } = this.#options;
    const proven: Proven[] = [];
    for (const session of left) {
      const found = await this.#separately(session, look, () => this.#proven(session, look));
      if (found !== undefined) proven.push(found);
    }
    const others = proven.filter(({ checkpoint }) => owner !== lease.name && !this.#isOwn(checkpoint.log));
    const isLost = look.leases.lost.has(owner) || this.#claims.has(owner);
    const canTakeOver = others.length > 0 && isLost && (await this.#holdsClaim(owner));
    if (others.length === 0) this.#claims.delete(owner);
    for (const each of proven) {
      if (!others.includes(each) || canTakeOver)
        await this.#separately(each.session, look, () => this.#settle(each, look));
      else if (!look.leases.signed.has(owner))
        look.untrusted.push(untrustedOf(each.session, { trust: 'unverified', reason: NO_LEASE }));
    }
  }

  /** Runs a step of one session. Unreadable objects of this session do not stop the takeover of other sessions. */
  async #separately<T>(session: OpenSession, look: Look, step: () => Promise<T>): Promise<T | undefined> {
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof TailcastError) || error.code === 'STORE_FAILED') throw error;
      look.untrusted.push(untrustedOf(session, { trust: 'unverified', reason: errorReason(error) }));
      return undefined;
    }
  }

  #isOwn(log: string): boolean {
    return log === this.#options.evidence.log;
  }

  /** Returns the session with its verified statement if it is proven and may be taken over; otherwise undefined. */
  async #proven(session: OpenSession, look: Look): Promise<Proven | undefined> {
    const { bucket, lease } = this.#options;
    const folder = sessionFolder(session.recorder, session.key);
    const isOpen = look.open.has(recordingId(session.key));
    if (isOpen && session.recorder === lease.name) return undefined;
    const found = await this.#prove(session);
    if ('reason' in found) {
      look.untrusted.push(untrustedOf(session, found));
      return undefined;
    }
    if ('storedAs' in found) {
      const key = parseRecordingId(found.storedAs);
      if (key !== undefined && (await this.#isStored(key, 0))) await removeFolder(bucket, folder);
      else look.untrusted.push(untrustedOf(session, { trust: 'unverified', reason: NOT_STORED }));
      return undefined;
    }
    const { log } = found.checkpoint;
    if (isOpen) {
      // The folder has an earlier name of this recorder. Remove the folder after the copies under the current name are
      // signed.
      const isCopied = look.sessions.some(
        ({ recorder, key, proof }) =>
          recorder === lease.name && proof !== undefined && recordingId(key) === recordingId(session.key),
      );
      if (this.#isOwn(log) && isCopied) await removeFolder(bucket, folder);
      return undefined;
    }
    // Skip a session whose recorder is live under a new name, because that recorder still owns the session.
    if (!this.#isOwn(log) && look.leases.liveLogs.has(log)) return undefined;
    return { ...found, session };
  }

  async #prove(session: OpenSession): Promise<ProvenSession | EndedSession | Distrust> {
    const { evidence, leaseMs, monotonicMs } = this.#options;
    const folder = sessionFolder(session.recorder, session.key);
    const version = versionOfSession(session);
    const known = this.#distrusted.get(folder);
    if (known?.version === version && monotonicMs() - known.atMs < REMEMBERED_LEASES * leaseMs)
      return known.distrust;
    // Publish the evidence log first. Its end entries prevent this recorder from taking over sessions that it has
    // already finished.
    await evidence.publish();
    const found = await proveSession(session, this.#options);
    if ('reason' in found) this.#distrust(session, found);
    return found;
  }

  #distrust(session: OpenSession, distrust: Distrust): void {
    const folder = sessionFolder(session.recorder, session.key);
    const atMs = this.#options.monotonicMs();
    this.#distrusted.set(folder, { version: versionOfSession(session), atMs, distrust });
  }

  /** Stores a session without a live owner. */
  async #settle(proven: Proven, look: Look): Promise<void> {
    const { bucket, log, spoolDirectory, onAdopted, adopt } = this.#options;
    const { session, checkpoint } = proven;
    const { bytes } = checkpoint.cast;
    const folder = sessionFolder(session.recorder, session.key);
    const id = recordingId(session.key);
    if (this.#adopting.has(folder)) return;
    if (await this.#isStored(session.key, bytes)) {
      await removeFolder(bucket, folder);
      return;
    }
    log.warn(
      { recording: id, recorder: session.recorder, bytes },
      'session of a lost recorder is taken over',
    );
    this.#adopting.add(folder);
    try {
      const distrust = await rebuildSpool(bucket, session, proven, spoolDirectory);
      if (distrust !== undefined) {
        this.#adopting.delete(folder);
        this.#distrust(session, distrust);
        look.untrusted.push(untrustedOf(session, distrust));
        return;
      }
    } catch (error) {
      this.#adopting.delete(folder);
      throw error;
    }
    onAdopted();
    void adopt(session.key)
      .then(() => removeFolder(bucket, folder))
      .catch((error: unknown) => log.warn({ recording: id, error: errorText(error) }, 'segments stay behind'))
      .finally(() => this.#adopting.delete(folder));
  }

  /** True if the store has at least `bytes` bytes of a recording, and a trusted key has signed them. */
  async #isStored(key: RecordingKey, bytes: number): Promise<boolean> {
    const { store, trusted } = this.#options;
    if ((await store.stat(key, 'cast')) === undefined) return false;
    const checked = await checkSigned(store, key, { trusted: true, byId: trusted }).catch(
      (error: unknown) => {
        if (error instanceof TailcastError && error.code === 'ARCHIVE_DAMAGED') return undefined;
        throw error;
      },
    );
    if (checked === undefined) return false;
    const { evidence, findings, signature } = checked;
    if (!evidence || findings.some(({ severity }) => severity === 'fault')) return false;
    return (signature?.evidence.cast.bytes ?? -1) >= bytes;
  }

  /** Claims the sessions of `name`, or renews the claim. Returns true if the claim is valid. */
  async #holdsClaim(name: string): Promise<boolean> {
    const { lease, leaseMs, monotonicMs } = this.#options;
    const since = this.#claims.get(name);
    if (since !== undefined && !(await lease.isHeldBy(name))) {
      this.#claims.delete(name);
      return false;
    }
    await lease.claim(name);
    if (since === undefined) this.#claims.set(name, monotonicMs());
    return since !== undefined && monotonicMs() - since >= leaseMs / 2;
  }

  #forgetClosed(sessions: readonly OpenSession[]): void {
    const folders = new Set(sessions.map(({ recorder, key }) => sessionFolder(recorder, key)));
    for (const folder of this.#distrusted.keys()) if (!folders.has(folder)) this.#distrusted.delete(folder);
  }
}

function untrustedOf({ recorder, key }: OpenSession, { trust, reason }: Distrust): UntrustedSession {
  return { recording: recordingId(key), folder: sessionFolder(recorder, key), trust, reason };
}

/** Returns a text that identifies the versions of all objects of the session. */
function versionOfSession({ proof, cast, notes }: OpenSession): string {
  const statement = proof === undefined ? '' : versionOf(proof);
  return [statement, segmentsBytes(cast), segmentsBytes(notes)].join(' ');
}
