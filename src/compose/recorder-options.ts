/** What a recorder is made of, how much it takes, how long it waits, and by which clocks. */
import type { Registry } from 'prom-client';
import type { ListenAddress } from '../listen.ts';
import type { Logger } from '../observe/logger.ts';
import type { AlertSettings, AlertsOptions } from '../tsrecorder/search/alerts/alerts.ts';
import type { PublicKey } from '../tsrecorder/evidence/signing-key.ts';
import type { EventLayout } from '../tsrecorder/events/recorder-events.ts';
import type { RetentionPolicy } from '../tsrecorder/retention/retention.ts';
import type { ServerIndex } from '../tsrecorder/search/opensearch/server-index.ts';
import type { RecorderSearchOptions } from '../tsrecorder/search/recorder-search.ts';
import type { IdentifyUploader } from '../tsrecorder/serving/uploads.ts';
import type { IdentifyViewer } from '../tsrecorder/serving/viewer-access.ts';
import type { ViewRule } from '../tsrecorder/serving/viewing.ts';
import type { ArchiveFormat } from '../tsrecorder/store/archive-store.ts';
import type { SealKeys } from '../tsrecorder/store/seal-keys.ts';
import type { Bucket } from '../tsrecorder/store/bucket.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';

export interface RecorderOptions {
  /** Port 0 takes a free one. */
  readonly listen: ListenAddress;
  /** Where viewers are served instead, so that `listen` takes uploads alone. Default: `listen` serves both. */
  readonly readListen?: ListenAddress;
  /** The store, in the layout of the reference. Created if missing. With `bucket` only the place of the spool. */
  readonly directory: string;
  /** The store instead of the directory; other recorders may share it. */
  readonly bucket?: Bucket;
  /**
   * Uploads that are not in the store yet; each recorder has its own. Best on the file system of `directory`, where an
   * upload moves into the store without being copied. Default: see `spool-place.ts`.
   */
  readonly spoolDirectory?: string;
  /**
   * Private key that signs the evidence. Default: one in the spool directory. Made if missing.
   */
  readonly evidenceKey?: string;
  /** Keys of the other recorders that share the store. Default: only the key of this recorder counts. */
  readonly recorderKeys?: readonly PublicKey[];
  /** The built player; none if missing. */
  readonly playerDirectory?: string;
  /** Host names under which page and API answer, beside loopback and the address of the connection. */
  readonly hostNames?: readonly string[];
  /** Who uploads: the tailnet's answer for the address, or a refusal. */
  readonly identify: IdentifyUploader;
  /** Who reads. Default: nobody is asked, and everybody may. */
  readonly identifyViewer?: IdentifyViewer;
  /** Who may see what; see `viewing.ts`. Default: everybody everything. */
  readonly viewers?: readonly ViewRule[];
  /** Tags and stable node IDs of gateways that may say who looks through their portal. Default: none. */
  readonly trustedGateways?: readonly string[];
  /** What is kept. Default: everything. */
  readonly retention?: RetentionPolicy;
  /** Which text of recordings can be searched. Default: there is no index. */
  readonly searchText?: RecorderSearchOptions['text'];
  /** Who has the index. Default: files in the spool. */
  readonly searchServer?: Omit<ServerIndex, 'which' | 'owner'>;
  /** What is watched for in sessions that come in, where there is an index. Default: nothing. */
  readonly alerts?: AlertSettings & Pick<AlertsOptions, 'onStep' | 'retry'>;
  /** How uploaded events are kept. Default: batches. */
  readonly eventLayout?: EventLayout;
  readonly limits?: Partial<RecorderLimits>;
  readonly timing?: Partial<RecorderTiming>;
  readonly log: Logger;
  readonly clock?: RecorderClock;
  /** Where metrics are registered. */
  readonly registry?: Registry;
  /** How new recordings are kept. Default: plain. */
  readonly archive?: ArchiveFormat;
  /** Open what is sealed, and seal it where `archive` says so. */
  readonly sealKeys?: SealKeys;
  /** Another store than the directory, e.g. one that fails in a test. */
  readonly store?: RecordingStore;
}

export interface RecorderLimits {
  /** One session, all its connections together. */
  readonly maxSessionBytes: number;
  /** One line of a cast. */
  readonly maxLineBytes: number;
  /**
   * Bytes of one session that may wait for the disk before its uploader has to. NOTE: measured: with 8 MiB a flood is acknowledged in fewer,
   * later pieces: its gateway waits, and it is shown at 0.75x of the rate.
   */
  readonly maxPendingBytes: number;
  /** The same for all sessions together. */
  readonly maxTotalPendingBytes: number;
  /** Maximum number of sessions that are open, can be continued or wait for the store. One node may have as many as are free. */
  readonly maxSessions: number;
  /** Maximum number of connections per listener. One address may have as many as are free. */
  readonly maxConnections: number;
  /** Maximum number of live views. One viewer may have as many as are free. */
  readonly maxViewers: number;
  readonly maxEventBytes: number;
  /** Maximum bytes of events in memory. Events of one node may take as many bytes as are free. */
  readonly maxTotalEventBytes: number;
  /** Free space in the store below which no new session begins. */
  readonly minFreeBytes: number;
  /** HTTP/2 flow control windows. */
  readonly streamWindowBytes: number;
  readonly connectionWindowBytes: number;
  /** Descriptions of recordings kept in memory. */
  readonly maxCachedRecordings: number;
  /** Derived data that lets the player begin anywhere, on disk in the spool. */
  readonly maxPlayIndexBytes: number;
}

export interface RecorderTiming {
  /** Longest time that received bytes wait for the next fsync. */
  readonly commitWindowMs: number;
  /** Longest silence between two ack frames. */
  readonly idleAckMs: number;
  /** How long a cut upload that named its session may be continued. */
  readonly resumeGraceMs: number;
  readonly identifyTimeoutMs: number;
  /** Maximum time from the start of an upload to the end of its header line. */
  readonly headerTimeoutMs: number;
  /** Maximum time for the body of an event. */
  readonly eventTimeoutMs: number;
  /** For the first bytes of a connection and for the head of a request. */
  readonly headTimeoutMs: number;
  /** How long a connection without a request stays open. */
  readonly idleTimeoutMs: number;
  /** How late recordings of other writers to the same store show in a list. */
  readonly listRefreshMs: number;
  /** Pause after the store has failed; doubles up to `maxStoreRetryMs`. */
  readonly storeRetryMs: number;
  readonly maxStoreRetryMs: number;
  /** How long an entry of the evidence log waits at most before it is published, while the store works. */
  readonly publishMs: number;
  /** How often the log says how much of the sessions that grew is durable, and of all that are open. */
  readonly markMs: number;
  readonly markAllMs: number;
  /** How often the ends of other recorders' logs are written down. */
  readonly witnessMs: number;
  /** How long a batch of events takes more. */
  readonly eventBatchMs: number;
  /** How often the retention policy is applied. */
  readonly retentionMs: number;
  /** How long `close` waits for connections before it cuts them. */
  readonly closeGraceMs: number;
  /** How late an added byte of an open session is copied to a shared bucket: what the loss of this machine loses. */
  readonly checkpointMs: number;
  /** How long a recorder may be silent before another one takes over what it left in the bucket, or was about to tell. */
  readonly leaseMs: number;
  /** How old an unfinished multipart upload in the bucket is when it is given up. */
  readonly staleUploadMs: number;
  /** How often live views are asked whether they are still there. */
  readonly pingMs: number;
}

const DEFAULT_LIMITS: RecorderLimits = {
  maxSessionBytes: 16 * 1024 ** 3,
  maxLineBytes: 64 * 1024 ** 2,
  maxPendingBytes: 2 * 1024 ** 2,
  maxTotalPendingBytes: 32 * 1024 ** 2,
  maxSessions: 4000,
  maxConnections: 20_000,
  maxViewers: 500,
  maxEventBytes: 16 * 1024 ** 2,
  maxTotalEventBytes: 64 * 1024 ** 2,
  minFreeBytes: 64 * 1024 ** 2,
  streamWindowBytes: 1024 ** 2,
  connectionWindowBytes: 16 * 1024 ** 2,
  maxCachedRecordings: 10_000,
  maxPlayIndexBytes: 1024 ** 3,
};

const DEFAULT_TIMING: RecorderTiming = {
  commitWindowMs: 50,
  idleAckMs: 5000,
  resumeGraceMs: 60_000,
  identifyTimeoutMs: 5000,
  headerTimeoutMs: 10_000,
  eventTimeoutMs: 30_000,
  headTimeoutMs: 10_000,
  idleTimeoutMs: 30_000,
  listRefreshMs: 1000,
  storeRetryMs: 1000,
  maxStoreRetryMs: 60_000,
  publishMs: 5000,
  markMs: 5000,
  markAllMs: 3_600_000,
  witnessMs: 3_600_000,
  eventBatchMs: 60_000,
  retentionMs: 3_600_000,
  closeGraceMs: 2000,
  checkpointMs: 10_000,
  leaseMs: 60_000,
  staleUploadMs: 86_400_000,
  pingMs: 30_000,
};

/** Clocks of the recorder. */
export interface RecorderClock {
  /** Milliseconds since the epoch, with a fraction if there is one. */
  now(): number;
  /** Milliseconds that never go back. */
  monotonic(): number;
}

export const SYSTEM_CLOCK: RecorderClock = {
  // finer by chance than the clock is: recorders that share a store must not want the same key in the same millisecond
  now: () => Date.now() + Math.random(),
  monotonic: () => performance.now(),
};

const DEFAULTS = {
  archive: 'plain',
  identifyViewer: async () => ({ node: '', nodeId: '' }),
  viewers: [],
  trustedGateways: [],
  hostNames: [],
  retention: {},
  eventLayout: 'batch',
  clock: SYSTEM_CLOCK,
} as const satisfies Partial<RecorderOptions>;

/** The options with everything that has a default. */
export type SettledOptions = RecorderOptions &
  Required<Pick<RecorderOptions, keyof typeof DEFAULTS | 'spoolDirectory'>> & {
    readonly limits: RecorderLimits;
    readonly timing: RecorderTiming;
  };

/** Merges the defaults: here and nowhere else. */
export function settleOptions(given: RecorderOptions, spoolDirectory: string): SettledOptions {
  return {
    ...DEFAULTS,
    ...given,
    spoolDirectory,
    limits: { ...DEFAULT_LIMITS, ...given.limits },
    timing: { ...DEFAULT_TIMING, ...given.timing },
  };
}
