/** Recorders with one bucket in memory and without timers. The test calls each step, and sets the time. */
import { randomBytes } from 'node:crypto';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createCopies, type Copies } from '../../../src/tsrecorder/checkpoint/copies.ts';
import { Lease } from '../../../src/tsrecorder/checkpoint/lease.ts';
import { createRemoteSessions } from '../../../src/tsrecorder/checkpoint/remote-sessions.ts';
import { createTakeover, type UntrustedSession } from '../../../src/tsrecorder/checkpoint/takeover.ts';
import {
  openSessionEvidence,
  type SessionEvidence,
} from '../../../src/tsrecorder/evidence/session-evidence.ts';
import { trustOf } from '../../../src/tsrecorder/evidence/trust.ts';
import { generateSigningKey, type SigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { createGroupCommit } from '../../../src/tsrecorder/intake/group-commit.ts';
import { createFinisher } from '../../../src/tsrecorder/intake/finisher.ts';
import { Ingest } from '../../../src/tsrecorder/intake/ingest.ts';
import { createReceiveTimes } from '../../../src/tsrecorder/intake/receive-time.ts';
import type { Upload } from '../../../src/tsrecorder/intake/upload-connection.ts';
import { Catalog } from '../../../src/tsrecorder/library/catalog.ts';
import { createArchiveStore } from '../../../src/tsrecorder/store/archive-store.ts';
import { createS3Store } from '../../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { FROM_START } from '../../../src/wire/recorder-api/upload-headers.ts';
import { HEADER, STORED_HEADER, UPLOADER } from '../recorder-rig.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

export const LEASE_MS = 1000;
const NEVER_MS = 2 ** 30;

/** A session as its gateway sees it. */
export interface SiteSession {
  readonly token: string;
  /** The expected cast up to the last acknowledgement. */
  readonly cast: () => string;
  write(line: string): Promise<void>;
  end(): Promise<void>;
  readonly id: () => string;
}

export interface SiteRecorder {
  readonly key: SigningKey;
  readonly evidence: SessionEvidence;
  readonly lease: Lease;
  readonly ingest: Ingest;
  readonly catalog: Catalog;
  readonly copies: Copies;
  /** Sessions that the last takeover pass has classified as untrusted. */
  readonly untrusted: () => readonly UntrustedSession[];
  /** Runs one takeover pass and waits until the store has the sessions. */
  look(): Promise<void>;
  begin(token: string): Promise<SiteSession>;
}

export interface Site {
  readonly bucket: MemoryBucket;
  readonly store: RecordingStore;
  readonly keys: readonly SigningKey[];
  wait(ms: number): void;
  nowMs(): number;
  /** @param number index of the recorder's key; all recorders trust all keys */
  recorder(number: number): Promise<SiteRecorder>;
}

export function createTakeoverSite(recorders = 2): Site {
  let nowMs = Date.parse('2026-07-29T10:44:42Z');
  const bucket = createMemoryBucket(() => nowMs);
  const keys = Array.from({ length: recorders }, () => generateSigningKey());
  const trusted = new Map(keys.map((key) => [key.public.id, key.public] as const));
  const inBucket = createS3Store({ bucket, nowMs: () => nowMs, recentMs: 0, fullListMs: 0 });
  const store = createArchiveStore(inBucket, 'plain');
  const log = createSilentLogger();

  async function recorder(number: number): Promise<SiteRecorder> {
    const key = keys[number]!;
    const spoolDirectory = await mkdtemp(join(tmpdir(), 'takeover-'));
    const monotonicMs = (): number => nowMs;
    const evidence = await openSessionEvidence({
      store,
      path: join(spoolDirectory, 'log'),
      key,
      trusted: keys.map((each) => each.public),
      randomId: () => randomBytes(16).toString('hex'),
      nowMs: () => nowMs,
      log,
      publishMs: NEVER_MS,
      witnessMs: 0,
      markMs: NEVER_MS,
      markAllMs: NEVER_MS,
      onFailure: () => undefined,
    });
    const group = createGroupCommit({ windowMs: 0, now: () => performance.now() });
    const retry = { retryMs: NEVER_MS, maxRetryMs: NEVER_MS };
    const finisher = createFinisher({ store, evidence, log, ...retry, onRetry: () => undefined });
    const ingest = new Ingest({
      spoolDirectory,
      group,
      finisher,
      evidence,
      meter: { synced: () => undefined, durable: () => undefined },
      limits: {
        maxSessionBytes: 2 ** 30,
        maxLineBytes: 2 ** 20,
        maxPendingBytes: 2 ** 20,
        maxSessions: 100,
        maxTotalPendingBytes: 2 ** 25,
        maxLongLineBytes: 2 ** 25,
      },
      headerTimeoutMs: NEVER_MS,
      resumeGraceMs: NEVER_MS,
      ...retry,
      now: () => nowMs,
      issueTime: createReceiveTimes(() => nowMs),
      log,
      onOutcome: () => undefined,
      onStored: () => undefined,
    });
    const lease = await Lease.open({
      bucket,
      spoolDirectory,
      leaseMs: LEASE_MS,
      evidence,
      trusted,
      monotonicMs,
      nowMs: monotonicMs,
    });
    const live = (): ReturnType<Ingest['live']> => ingest.live();
    const copies = createCopies({
      bucket,
      recorder: () => lease.name,
      evidence,
      live,
      log,
      onBytes: () => undefined,
      onFailure: () => undefined,
    });
    let untrusted: readonly UntrustedSession[] = [];
    let adopting: Promise<void>[] = [];
    const look = createTakeover({
      bucket,
      store,
      lease,
      evidence,
      trusted,
      spoolDirectory,
      live,
      adopt(of) {
        const adopted = ingest.adopt(of);
        adopting.push(adopted);
        return adopted;
      },
      leaseMs: LEASE_MS,
      monotonicMs,
      log,
      onAdopted: () => undefined,
      onUntrusted: (sessions) => (untrusted = sessions),
    });
    const distrustOf = (folder: string): UntrustedSession | undefined =>
      untrusted.find((session) => session.folder === folder);
    const catalog = new Catalog({
      store,
      live,
      remote: createRemoteSessions(bucket, () => lease.name, trusted, distrustOf),
      refreshMs: 0,
      maxCached: 100,
      trustOf: (sidecar, name, bytes) => trustOf(sidecar, name, bytes, trusted),
      now: monotonicMs,
    });
    return {
      key,
      evidence,
      lease,
      ingest,
      catalog,
      copies,
      untrusted: () => untrusted,
      async look() {
        await look();
        await Promise.all(adopting);
        adopting = [];
      },
      begin: (token) => beginSession(ingest, token),
    };
  }

  return { bucket, store, keys, wait: (ms) => (nowMs += ms), nowMs: () => nowMs, recorder };
}

async function beginSession(ingest: Ingest, token: string): Promise<SiteSession> {
  const { nodeId, nodeName } = UPLOADER;
  const origin = { nodeId, nodeName, address: '100.64.0.1', protocol: 'v2', token } as const;
  const before = new Set(ingest.live().map(({ recording }) => recording.id));
  let waiting = Promise.withResolvers<void>();
  let sent = 0;
  let cast = STORED_HEADER;
  const upload: Upload = await ingest.begin(origin, FROM_START, {
    waits: true,
    durable: () => {
      if (upload.durableBytes >= sent) waiting.resolve();
    },
    drain: () => undefined,
    failed: (error) => waiting.reject(error),
  });
  const push = async (text: string): Promise<void> => {
    waiting = Promise.withResolvers();
    sent += Buffer.byteLength(text);
    upload.push(Buffer.from(text));
    await waiting.promise;
  };
  await push(HEADER);
  const id = ingest.live().find(({ recording }) => !before.has(recording.id))!.recording.id;
  return {
    token,
    cast: () => cast,
    async write(line) {
      cast += line;
      await push(line);
    },
    async end() {
      await upload.end();
    },
    id: () => id,
  };
}
