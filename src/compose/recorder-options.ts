/** Options of a recorder: storage, identities, limits, timeouts and clocks. */
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
  /** Listen address. Port 0 selects a free port. */
  readonly listen: ListenAddress;
  /**
   * Separate listen address for viewers; `listen` then accepts only uploads. Default: `listen` serves uploads and
   * viewers.
   */
  readonly readListen?: ListenAddress;
  /** Additional listen address for viewers whose connections start with a PROXY header. Default: none. */
  readonly proxyListen?: ListenAddress;
  /**
   * Directory of the store, in the layout of the reference (Tailscale's tsrecorder). Created if missing. With
   * `bucket`, this path only determines the default location of the spool.
   */
  readonly directory: string;
  /** Bucket as the store instead of the directory. Several recorders may use the same bucket. */
  readonly bucket?: Bucket;
  /**
   * Directory of uploads that are not in the store yet. Each recorder needs its own spool directory. If the spool is on
   * the file system of `directory`, finished uploads are moved to the store without a copy. Default: see
   * `spool-place.ts`.
   */
  readonly spoolDirectory?: string;
  /** File of the private key that signs the evidence. Created if missing. Default: a file in the spool directory. */
  readonly evidenceKey?: string;
  /**
   * Public keys of other recorders with the same store, which this recorder trusts in addition to its own key.
   * Default: none.
   */
  readonly recorderKeys?: readonly PublicKey[];
  /** Directory of the built player. Default: no player. */
  readonly playerDirectory?: string;
  /**
   * Host names under which the player page and the API are served, in addition to loopback and the address of the
   * connection.
   */
  readonly hostNames?: readonly string[];
  /** Identifies uploaders. Returns the tailnet node that has the address, or a refusal. */
  readonly identify: IdentifyUploader;
  /** Identifies viewers. Default: every viewer is accepted without identification. */
  readonly identifyViewer?: IdentifyViewer;
  /** Rules for viewers; see `viewing.ts`. Default: every viewer may see all recordings. */
  readonly viewers?: readonly ViewRule[];
  /** Tags and stable node IDs of trusted gateways, whose portal may name the viewer. Default: none. */
  readonly trustedGateways?: readonly string[];
  /** Retention policy. Default: keep everything. */
  readonly retention?: RetentionPolicy;
  /**
   * Kind of text that the search index contains. Default: no index and no catalogue, so each request for a list of
   * recordings reads the complete store.
   */
  readonly searchText?: RecorderSearchOptions['text'];
  /** True if viewers may search. Default: true if there is a catalogue. */
  readonly isSearchable?: boolean;
  /** OpenSearch server for the search index. Default: the index consists of files in the spool. */
  readonly searchServer?: Omit<ServerIndex, 'which' | 'owner'>;
  /** Alert rules for incoming sessions. Alerts need an index. Default: none. */
  readonly alerts?: AlertSettings & Pick<AlertsOptions, 'onStep' | 'retry'>;
  /** Layout of uploaded events in the store. Default: batches. */
  readonly eventLayout?: EventLayout;
  readonly limits?: Partial<RecorderLimits>;
  readonly timing?: Partial<RecorderTiming>;
  readonly log: Logger;
  readonly clock?: RecorderClock;
  /** Registry of the metrics. */
  readonly registry?: Registry;
  /** Format of new recordings. Default: plain. */
  readonly archive?: ArchiveFormat;
  /** Keys that decrypt sealed recordings. If `archive` is a sealed format, the keys also encrypt new recordings. */
  readonly sealKeys?: SealKeys;
  /** Store to use instead of the directory, for example a failing store in a test. */
  readonly store?: RecordingStore;
}

const DEFAULT_LIMITS = {
  /** Maximum size of one session, in bytes, in total for all its connections. */
  maxSessionBytes: 16 * 1024 ** 3,
  /** Maximum length of a line in a cast, in bytes. */
  maxLineBytes: 64 * 1024 ** 2,
  /**
   * Maximum number of received bytes of one session that are not yet written to disk. At the limit, the recorder stops
   * reading the upload. NOTE: a limit of 8 MiB delayed acknowledgements, and large outputs reached the user at only
   * 75 % of the speed that 2 MiB gives.
   */
  maxPendingBytes: 2 * 1024 ** 2,
  /** Maximum number of received bytes that are not yet written to disk, for all sessions together. */
  maxTotalPendingBytes: 32 * 1024 ** 2,
  /**
   * Maximum size of the long lines that are in memory, in bytes, for all sessions together. One tailnet node may use at
   * most half of the bytes that other nodes leave free.
   */
  maxLongLineBytes: 128 * 1024 ** 2,
  /**
   * Maximum number of sessions that are open, resumable or not yet in the store. One tailnet node may use at most
   * half of the slots that other nodes leave free.
   */
  maxSessions: 4000,
  /**
   * Maximum number of connections per listener. One address may use at most half of the connections that other
   * addresses leave free.
   */
  maxConnections: 20_000,
  /** Maximum number of live views. One viewer may use at most half of the slots that other viewers leave free. */
  maxViewers: 500,
  maxEventBytes: 16 * 1024 ** 2,
  /**
   * Maximum number of bytes of events in memory. The events of one tailnet node may use about half of the bytes that
   * other nodes leave free.
   */
  maxTotalEventBytes: 64 * 1024 ** 2,
  /** Minimum free space for a new session in store and spool, and for an event in the spool, in bytes. */
  minFreeBytes: 64 * 1024 ** 2,
  /** Size of HTTP/2 flow control windows, in bytes. */
  streamWindowBytes: 1024 ** 2,
  connectionWindowBytes: 16 * 1024 ** 2,
  /** Maximum number of recordings whose descriptions are cached in memory. */
  maxCachedRecordings: 10_000,
  /** Maximum size of the play indexes in the spool, in bytes. Play indexes let the player seek. */
  maxPlayIndexBytes: 1024 ** 3,
};

export type RecorderLimits = Readonly<typeof DEFAULT_LIMITS>;

const DEFAULT_TIMING = {
  /** Maximum time between the receipt of bytes and their fsync. */
  commitWindowMs: 50,
  /** Maximum time between two acknowledgement frames. */
  idleAckMs: 5000,
  /** Time in which the gateway can resume an interrupted upload that has a session id. */
  resumeGraceMs: 60_000,
  identifyTimeoutMs: 5000,
  /** Maximum time from the start of an upload to the end of its header line. */
  headerTimeoutMs: 10_000,
  /** Maximum time for the body of an event. */
  eventTimeoutMs: 30_000,
  /** Maximum time for the first bytes of a connection, and for the head of a request. */
  headTimeoutMs: 10_000,
  /** Maximum idle time of a connection without a request. */
  idleTimeoutMs: 30_000,
  /** Maximum delay until the list of recordings contains new recordings of other recorders with the same store. */
  listRefreshMs: 1000,
  /** Delay before the first retry after a store error. The delay doubles up to `maxStoreRetryMs`. */
  storeRetryMs: 1000,
  maxStoreRetryMs: 60_000,
  /** Maximum delay until an entry of the evidence log is copied to the store, if the store is available. */
  publishMs: 5000,
  /**
   * Interval at which the recorder writes to its evidence log the durable lengths of sessions that have grown. No entry
   * is written if no session has grown.
   */
  markMs: 5000,
  /** Interval at which the recorder writes the durable lengths of all open sessions to its evidence log. */
  markAllMs: 3_600_000,
  /** Interval at which the recorder writes the heads of other recorders' evidence logs to its own evidence log. */
  witnessMs: 3_600_000,
  /** Time for which a batch collects events before the batch is stored. */
  eventBatchMs: 60_000,
  /** Interval at which the retention policy is applied. */
  retentionMs: 3_600_000,
  /** Time after which `close` destroys connections that are still open. */
  closeGraceMs: 2000,
  /**
   * Maximum delay until new bytes of an open session are copied to a shared bucket. If this machine is lost, bytes
   * after the last copy are lost.
   */
  checkpointMs: 10_000,
  /** Time without a lease renewal after which another recorder takes over the sessions and alerts of a recorder. */
  leaseMs: 60_000,
  /** Age at which unfinished multipart uploads in the bucket are aborted. */
  staleUploadMs: 86_400_000,
  /** Interval of pings to live views. */
  pingMs: 30_000,
  /** Interval at which the access of viewers of running sessions is checked again. */
  recheckMs: 15_000,
};

/** Time limits and intervals of a recorder, all in milliseconds. */
export type RecorderTiming = Readonly<typeof DEFAULT_TIMING>;

/** Wall clock and monotonic clock of the recorder. */
export interface RecorderClock {
  /** Milliseconds since the epoch, possibly with a fraction. */
  now(): number;
  /** Milliseconds of a monotonic clock. */
  monotonic(): number;
}

/** The clocks of this machine. */
export const SYSTEM_CLOCK: RecorderClock = {
  // The random fraction makes recorders that share a store choose different object keys in the same millisecond.
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

/** The options with all defaults applied. */
export type SettledOptions = RecorderOptions &
  Required<Pick<RecorderOptions, keyof typeof DEFAULTS | 'spoolDirectory'>> & {
    readonly limits: RecorderLimits;
    readonly timing: RecorderTiming;
  };

/** Applies all defaults, so that other modules need none. */
export function settleOptions(given: RecorderOptions, spoolDirectory: string): SettledOptions {
  return {
    ...DEFAULTS,
    ...given,
    spoolDirectory,
    limits: { ...DEFAULT_LIMITS, ...given.limits },
    timing: { ...DEFAULT_TIMING, ...given.timing },
  };
}
