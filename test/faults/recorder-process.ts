/** A recorder process that tests kill: `node recorder-process.ts <json>`. Prints its URL. */
import { createLogger, createSilentLogger } from '../../src/observe/logger.ts';
import type { RecorderTiming } from '../../src/compose/recorder-options.ts';
import { createRecorder } from '../../src/compose/recorder-parts.ts';
import { S3Bucket } from '../../src/tsrecorder/store/s3-bucket.ts';
import { S3_DEFAULTS } from '../../src/tsrecorder/store/s3-client.ts';

export interface RecorderPlan {
  readonly port: number;
  readonly directory: string;
  readonly spoolDirectory: string;
  /** Signing key that all recorders of a bucket share, so that they trust each other. */
  readonly evidenceKey?: string;
  readonly s3?: {
    readonly endpoint: string;
    readonly region: string;
    readonly bucket: string;
    readonly prefix: string;
    readonly partBytes?: number;
  };
  readonly timing: Partial<RecorderTiming>;
}

const plan = JSON.parse(process.argv[2] ?? '{}') as RecorderPlan;
const bucket =
  plan.s3 === undefined
    ? undefined
    : new S3Bucket({ ...S3_DEFAULTS, ...plan.s3, pathStyle: true, requestTimeoutMs: 2000 }, () => Date.now());
const recorder = await createRecorder({
  listen: { host: '127.0.0.1', port: plan.port },
  directory: plan.directory,
  spoolDirectory: plan.spoolDirectory,
  ...(plan.evidenceKey === undefined ? {} : { evidenceKey: plan.evidenceKey }),
  ...(bucket === undefined ? {} : { bucket }),
  identify: async () => ({ kind: 'accepted', nodeId: 'nGATE1CNTRL', nodeName: 'gateway.tail1.ts.net' }),
  log: process.env['FAULTS_LOG'] === undefined ? createSilentLogger() : createLogger({ level: 'info' }),
  limits: { minFreeBytes: Number(process.env['FAULTS_MIN_FREE'] ?? 0) },
  timing: plan.timing,
});
process.stdout.write(`${recorder.url}\n`);
process.on('SIGTERM', () => {
  void recorder.close().then(() => {
    bucket?.close();
    process.exit(0);
  });
});
