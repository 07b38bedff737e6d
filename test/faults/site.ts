/** Starts the recorders and gateways of a scenario, which share one store, and opens this store as an auditor does. */
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { RecorderTiming } from '../../src/compose/recorder-options.ts';
import { readCheckpoint } from '../../src/tsrecorder/checkpoint/checkpoint.ts';
import { listOpenSessions } from '../../src/tsrecorder/checkpoint/segments.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { recordingId } from '../../src/tsrecorder/store/key.ts';
import { createS3Store, S3_LISTING } from '../../src/tsrecorder/store/s3.ts';
import { S3Bucket } from '../../src/tsrecorder/store/s3-bucket.ts';
import { S3_DEFAULTS } from '../../src/tsrecorder/store/s3-client.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import {
  startGateway,
  startRecorder,
  within,
  type GatewayProcess,
  type RecorderProcess,
} from './processes.ts';
import type { GatewayPlan } from './gateway-process.ts';
import type { RecorderPlan } from './recorder-process.ts';
import type { S3Shim } from './s3-shim.ts';
import type { SessionReport } from './workload.ts';

/** Random generator and store of a scenario. */
export interface Stage {
  readonly random: () => number;
  /** Bucket of an S3 server behind a shim. Undefined if the store is a directory. */
  readonly s3: { readonly shim: S3Shim; readonly region: string; readonly bucket: string } | undefined;
}

export type Scenario = (stage: Stage) => Promise<void>;

export const SESSIONS = [1, 2, 3, 4, 5, 6] as const;
export const TIMING: Partial<RecorderTiming> = {
  resumeGraceMs: 60_000,
  storeRetryMs: 100,
  maxStoreRetryMs: 1000,
  listRefreshMs: 0,
  checkpointMs: 1000,
  leaseMs: 4000,
  closeGraceMs: 100,
};
/** Maximum time until all recordings are visible after a restart. */
export const VISIBLE_MS = 60_000;

/** Minimum part size of an upload to S3. */
export const S3_PART_BYTES = 5 * 1024 ** 2;

export interface Site extends AsyncDisposable {
  /** Starts a gateway or a recorder. Closing the site kills the process. */
  gateway(plan: GatewayPlan): GatewayProcess;
  recorder(machine: string, port?: number, timing?: Partial<RecorderTiming>): Promise<RecorderProcess>;
  readonly folder: string;
  /** Path of the private key that all recorders share, so that they trust each other. */
  readonly evidenceKey: string;
  /** The store as an auditor reads it. */
  store(): Promise<RecordingStore>;
  /**
   * Returns the number of upload bytes in the signed copies of each open session, by recording id. Empty if the store
   * is a directory.
   */
  signedBytes(): Promise<ReadonlyMap<string, number>>;
}

let sites = 0;

export function openSite({ s3 }: Stage): Site {
  const folder = mkdtempSync(join(tmpdir(), 'tcfault-'));
  const running: { kill(): Promise<void> }[] = [];
  sites += 1;
  const prefix = `run-${process.pid}-${sites}/`;
  const buckets: S3Bucket[] = [];
  function openBucket({ shim, region, bucket: name }: NonNullable<Stage['s3']>): S3Bucket {
    const settings = { endpoint: shim.endpoint, region, bucket: name, prefix, pathStyle: true };
    const bucket = new S3Bucket({ ...S3_DEFAULTS, ...settings }, () => Date.now());
    buckets.push(bucket);
    return bucket;
  }
  const evidenceKey = join(folder, 'evidence-key.pem');
  const { privateKey } = generateKeyPairSync('ed25519');
  writeFileSync(evidenceKey, privateKey.export({ format: 'pem', type: 'pkcs8' }));
  return {
    folder,
    evidenceKey,
    async store() {
      if (s3 === undefined) return createDiskStore(join(folder, 'store'), { readOnly: true });
      return createS3Store({ ...S3_LISTING, bucket: openBucket(s3), nowMs: () => Date.now() });
    },
    async signedBytes() {
      const signed = new Map<string, number>();
      if (s3 === undefined) return signed;
      const bucket = openBucket(s3);
      const key = (await loadSigningKey(evidenceKey, false)).public;
      for (const session of await listOpenSessions(bucket)) {
        const read = await readCheckpoint(bucket, session, new Map([[key.id, key]]));
        if ('value' in read) signed.set(recordingId(session.key), read.value.bodyBytes);
      }
      return signed;
    },
    gateway(plan) {
      const gateway = startGateway(plan);
      running.push(gateway);
      return gateway;
    },
    async recorder(machine, port = 0, timing = {}) {
      const plan: RecorderPlan = {
        port,
        directory: join(folder, 'store'),
        spoolDirectory: join(folder, machine),
        evidenceKey,
        timing: { ...TIMING, ...timing },
        ...(s3 === undefined
          ? {}
          : {
              s3: {
                endpoint: s3.shim.endpoint,
                region: s3.region,
                bucket: s3.bucket,
                prefix,
                partBytes: S3_PART_BYTES,
              },
            }),
      };
      const recorder = await startRecorder(plan);
      running.push(recorder);
      return recorder;
    },
    async [Symbol.asyncDispose]() {
      if (s3 !== undefined) s3.shim.rate = 0;
      for (const program of running) await program.kill();
      for (const bucket of buckets) bucket.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Waits until every session has started, and then until a random moment shortly afterwards. */
export async function somewhere(stage: Stage, reports: () => readonly SessionReport[]): Promise<void> {
  await allBegun(20_000, SESSIONS.length, reports);
  await delay(stage.random() * 600);
}

/** Waits until a recorder has data of every session. @throws Error with the number of sessions that have data */
export async function allBegun(
  timeoutMs: number,
  count: number,
  reports: () => readonly SessionReport[],
): Promise<void> {
  await within('all sessions have begun', timeoutMs, async () => {
    const begun = reports().filter(({ acked }) => acked > 0).length;
    if (begun < count) throw new Error(`${begun} of ${count} have`);
    return true;
  });
}
