/** Puts a recorder together: store, spool, ingest, catalogue, and the port they are reached on. */
import { Registry } from 'prom-client';
import type { Logger } from '../observe/logger.ts';
import type { IndexedText } from '../search/moments.ts';
import { addApi, type ApiOptions } from './serving/api.ts';
import { createCatalog, type Catalog } from './library/catalog.ts';
import { openSharedBucket, type SharedBucket } from './checkpoint/shared-bucket.ts';
import { makeDirectory } from './files/durable-files.ts';
import { openEvidence } from './evidence/open-evidence.ts';
import type { SessionEvidence } from './evidence/session-evidence.ts';
import { openRecorderEvents, type EventLayout, type RecorderEvents } from './events/recorder-events.ts';
import { createFinisher } from './intake/finisher.ts';
import { roomFor } from './store/free-room.ts';
import { createCommits } from './intake/commits.ts';
import { createCursors } from './serving/cursors.ts';
import { createHosts } from './serving/hosts.ts';
import { openListeners, type ListenAddress } from './serving/listeners.ts';
import { Ingest } from './intake/ingest.ts';
import { closeUploads, settleLeftSpools, type SpoolParts } from './intake/left-spools.ts';
import { createLiveSockets } from './serving/live-socket.ts';
import { statusOf } from './intake/recorder-status.ts';
import { createReceiveTimes } from './intake/receive-time.ts';
import { createRecorderMetrics, createUploadMeter, type RecorderMetrics } from './intake/recorder-metrics.ts';
import {
  DEFAULT_LIMITS,
  DEFAULT_TIMING,
  SYSTEM_CLOCK,
  type RecorderClock,
  type RecorderLimits,
  type RecorderTiming,
} from './recorder-limits.ts';
import { startRetention } from './retention/retention-run.ts';
import type { RetentionPolicy } from './retention/retention.ts';
import { createSiblings, mergeRemotes, slotDirectory, type SpoolSlot } from './intake/siblings.ts';
import { indexDirectory, openRecorderSearch, type RecorderSearch } from './search/recorder-search.ts';
import { forgetRemoved } from './playback/forget-removed.ts';
import type { PlayIndexes } from './playback/play-indexes.ts';
import { openSpoolIndexes } from './playback/spool-indexes.ts';
import { lockSpool } from './spool/spool-lock.ts';
import { placeSpool } from './spool/spool-place.ts';
import { createArchiveStore, type ArchiveFormat } from './store/archive-store.ts';
import type { Bucket } from './store/bucket.ts';
import { createDiskStore } from './store/disk.ts';
import { createS3Store, S3_LISTING } from './store/s3.ts';
import type { RecordingStore } from './store/store.ts';
import { createUploads, type IdentifyUploader, type Uploads } from './serving/uploads.ts';
import { createViewerAccess, type IdentifyViewer } from './serving/viewer-access.ts';
import type { ViewRule } from './serving/viewing.ts';

const PING_MS = 30_000;

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
   * Uploads that are not in the store yet; one recorder process each. Best on the file system of `directory`, where an
   * upload moves into the store without being copied. Default: see `spool-place.ts`.
   */
  readonly spoolDirectory?: string;
  /** When several processes share `spoolDirectory`: which this one is. Default: it is alone. */
  readonly slot?: SpoolSlot;
  /**
   * Private key that signs the evidence. Default: one in the spool directory. Made if missing.
   */
  readonly evidenceKey?: string;
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
  readonly searchText?: IndexedText;
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
  /** Another store than the directory, e.g. one that fails in a test. */
  readonly store?: RecordingStore;
}

export interface Recorder {
  /** Where uploads are taken. */
  readonly address: ListenAddress;
  /** The same: `http://host:port` */
  readonly url: string;
  /** Where viewers are served: the same, unless they have a listener of their own. */
  readonly readUrl: string;
  readonly catalog: Catalog;
  /** Ends uploads with an error frame, brings them into the store or leaves them in the spool, and stops listening. */
  close(): Promise<void>;
}

/**
 * Starts a recorder: finds the spools of an earlier process, then listens.
 *
 * @throws TailcastError `CONFIG_INVALID` when the spool directory is in use, `STORE_FAILED` when the store cannot be
 *   written to; a system error when the address cannot be used.
 */
export async function createRecorder(given: RecorderOptions): Promise<Recorder> {
  const store = createArchiveStore(given.store ?? (await openStore(given)), given.archive ?? 'plain');
  const place =
    given.spoolDirectory === undefined
      ? await placeSpool(given.directory, given.log)
      : { directory: given.spoolDirectory, left: undefined };
  const options = settle(given, place.directory);
  const slot = options.slot ?? { number: 0, of: 1 };
  const spoolDirectory = slotDirectory(options.spoolDirectory, slot);
  await makeDirectory(spoolDirectory);
  const unlock = await lockSpool(spoolDirectory);
  try {
    const parts = await startIngest(options, store, spoolDirectory);
    const left = slot.number === 0 ? settleOthers(options, store, slot.of, place.left) : Promise.resolve();
    const maxBytes = options.limits.maxPlayIndexBytes;
    const spools = Array.from({ length: slot.of }, (_, number) =>
      slotDirectory(options.spoolDirectory, { number }),
    );
    const { log } = options;
    const playIndexes = await openSpoolIndexes(spoolDirectory, { store, log, maxBytes, spools });
    return await listen(options, store, { ...parts, playIndexes }, async () => {
      await left;
      await unlock();
    });
  } catch (error) {
    await unlock();
    throw error;
  }
}

/** The options with everything that has a default: it is merged here and nowhere else. */
interface SettledOptions extends RecorderOptions {
  readonly limits: RecorderLimits;
  readonly timing: RecorderTiming;
  readonly clock: RecorderClock;
  readonly spoolDirectory: string;
}

function settle(options: RecorderOptions, spoolDirectory: string): SettledOptions {
  return {
    ...options,
    spoolDirectory,
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    timing: { ...DEFAULT_TIMING, ...options.timing },
    clock: options.clock ?? SYSTEM_CLOCK,
  };
}

/** Brings into the store what processes have left that there are no more. */
function settleOthers(
  options: SettledOptions,
  store: RecordingStore,
  count: number,
  earlier: string | undefined,
): Promise<void> {
  const { bucket: _, ...alone } = options;
  // nobody comes to continue anything there
  const timing = { ...options.timing, resumeGraceMs: 0 };
  return settleLeftSpools({
    spool: options.spoolDirectory,
    count,
    earlier,
    limitMs: options.timing.maxStoreRetryMs,
    log: options.log,
    open: (directory) => startIngest({ ...alone, timing, registry: new Registry() }, store, directory),
  });
}

async function openStore({
  bucket,
  directory,
  clock = SYSTEM_CLOCK,
}: RecorderOptions): Promise<RecordingStore> {
  if (bucket === undefined) return createDiskStore(directory);
  return createS3Store({ ...S3_LISTING, bucket, nowMs: () => clock.now() });
}

interface IngestParts extends SpoolParts {
  readonly catalog: Catalog;
  readonly evidence: SessionEvidence;
  readonly events: RecorderEvents;
  readonly metrics: RecorderMetrics;
  readonly issueTime: () => string;
  readonly shared: SharedBucket | undefined;
  /** Room for more: in the store and in the spool. */
  readonly freeBytes: () => Promise<number | undefined>;
  /** Told of what is stored, once the recorder listens. */
  readonly told: { search?: RecorderSearch };
}

interface ServedParts extends IngestParts {
  readonly playIndexes: PlayIndexes;
}

async function startIngest(
  options: SettledOptions,
  store: RecordingStore,
  spoolDirectory: string,
): Promise<IngestParts> {
  const { limits, timing } = options;
  const { log, clock } = options;
  const metrics = createRecorderMetrics(options.registry, () => statusOf(ingest, group, evidence));
  const issueTime = createReceiveTimes(() => clock.now());
  const group = createCommits(timing.commitWindowMs, clock, metrics, () => ingest.resumeWaiting());
  const evidence = await startEvidence(options, store, spoolDirectory, metrics);
  const retry = { retryMs: timing.storeRetryMs, maxRetryMs: timing.maxStoreRetryMs };
  const finisher = createFinisher({
    store,
    evidence,
    log,
    ...retry,
    onRetry: () => metrics.storeRetries.inc(),
  });
  const told: IngestParts['told'] = {};
  const ingest: Ingest = new Ingest({
    spoolDirectory,
    group,
    finisher,
    evidence,
    meter: createUploadMeter(metrics),
    limits,
    resumeGraceMs: timing.resumeGraceMs,
    ...retry,
    now: () => clock.now(),
    issueTime,
    log,
    onOutcome: ({ state }) => metrics.recordings.inc({ state }),
    onStored({ bytes, id }) {
      metrics.storedBytes.inc(bytes);
      catalog.changed();
      told.search?.stored(id);
    },
  });
  const events = await openRecorderEvents({
    store,
    spoolDirectory,
    evidence,
    layout: options.eventLayout ?? 'batch',
    issueTime,
    nowMs: () => clock.now(),
    periodMs: timing.eventBatchMs,
    retryMs: timing.storeRetryMs,
    log,
    onFailure: () => metrics.eventBatchFailures.inc(),
  });
  const shared =
    options.bucket === undefined
      ? undefined
      : await openSharedBucket({
          ...timing,
          bucket: options.bucket,
          store,
          spoolDirectory,
          ingest: () => ingest,
          monotonicMs: () => clock.monotonic(),
          log,
          metrics,
        });
  const catalog: Catalog = openCatalog(options, store, () => ingest.live(), shared);
  await ingest.recover();
  shared?.start();
  if ((options.viewers ?? []).length > 0) catalog.readScopes(log);
  const freeBytes = (): Promise<number | undefined> => roomFor(store, spoolDirectory);
  return { ingest, group, finisher, catalog, evidence, events, metrics, issueTime, shared, freeBytes, told };
}

function openCatalog(
  options: SettledOptions,
  store: RecordingStore,
  live: Ingest['live'],
  shared: SharedBucket | undefined,
): Catalog {
  const { clock } = options;
  return createCatalog({
    store,
    remote: mergeRemotes([
      createSiblings(options.spoolDirectory, options.slot?.number ?? 0, store),
      ...(shared === undefined ? [] : [() => shared.remote()]),
    ]),
    live,
    refreshMs: options.timing.listRefreshMs,
    maxCached: options.limits.maxCachedRecordings,
    now: () => clock.monotonic(),
  });
}

function startEvidence(
  { log, evidenceKey, clock, ...options }: SettledOptions,
  store: RecordingStore,
  spoolDirectory: string,
  metrics: RecorderMetrics,
): Promise<SessionEvidence> {
  return openEvidence({
    ...options.timing,
    store,
    spoolDirectory,
    keySpool: options.spoolDirectory,
    keyFile: evidenceKey,
    nowMs: () => clock.now(),
    log,
    onFailure: () => metrics.publishFailures.inc(),
  });
}

/** What is told to those who ask for recordings. */
function openSearch(
  options: SettledOptions,
  store: RecordingStore,
  { ingest, catalog }: IngestParts,
): RecorderSearch | undefined {
  const { searchText, log, clock } = options;
  if (searchText === undefined) return undefined;
  return openRecorderSearch({
    directory: indexDirectory(options.spoolDirectory),
    text: searchText,
    mayWrite: (options.slot?.number ?? 0) === 0,
    store,
    catalog,
    live: () => ingest.live(),
    now: () => clock.monotonic(),
    log,
  });
}

function apiOf(
  options: SettledOptions,
  store: RecordingStore,
  { catalog, evidence, events, freeBytes, told, playIndexes }: ServedParts,
  shared: Pick<ApiOptions, 'access' | 'hosts'>,
): ApiOptions {
  const { log, playerDirectory, clock } = options;
  const nowMs = (): number => clock.now();
  const sessionSearch = told.search;
  const cursors = createCursors(evidence.key.secret('cursors'));
  return {
    ...shared,
    catalog,
    store,
    search: events.search,
    sessionSearch,
    playIndexes,
    ownKey: evidence.key.public,
    nowMs,
    cursors,
    freeBytes,
    log,
    playerDirectory,
  };
}

function uploadsOf(options: SettledOptions, parts: ServedParts): Uploads {
  const { ingest, events, freeBytes, issueTime, metrics } = parts;
  return createUploads({
    ...options.limits,
    ...options.timing,
    ingest,
    putEvent: (key, content) => events.put(key, content),
    freeBytes,
    identify: options.identify,
    issueTime,
    log: options.log,
    metrics,
  });
}

async function listen(
  options: SettledOptions,
  store: RecordingStore,
  parts: ServedParts,
  unlock: () => Promise<void>,
): Promise<Recorder> {
  const { ingest, group, finisher, catalog, evidence, events, metrics } = parts;
  const { shared, freeBytes, playIndexes } = parts;
  const { limits, timing } = options;
  const { log, clock } = options;
  const hosts = createHosts(options.hostNames ?? []);
  const { maxViewers } = limits;
  const access = createViewerAccess({
    identify: options.identifyViewer ?? (async () => ({ node: '', nodeId: '' })),
    rules: options.viewers ?? [],
    trustedGateways: options.trustedGateways ?? [],
    record: (event) => events.record(event),
    nowMs: () => clock.now(),
    timeoutMs: timing.identifyTimeoutMs,
  });
  const search = openSearch(options, store, parts);
  if (search !== undefined) parts.told.search = search;
  const viewers = createLiveSockets({ catalog, access, hosts, log, maxViewers, pingMs: PING_MS });
  const listeners = await openListeners({
    ...limits,
    ...timing,
    upload: options.listen,
    read: options.readListen,
    uploads: uploadsOf(options, parts),
    viewers: {
      routes: (app) => addApi(app, apiOf(options, store, parts, { access, hosts })),
      upgrade: (request, socket, head) => viewers.upgrade(request, socket, head),
    },
    freeBytes,
    metrics,
    log,
  });
  const retention = startRetention({
    store,
    evidence,
    // one process removes for all of them
    policy: (options.slot?.number ?? 0) === 0 ? (options.retention ?? {}) : {},
    nowMs: () => clock.now(),
    everyMs: timing.retentionMs,
    log,
    onApplied({ remove, overQuota }) {
      for (const { reason } of remove) metrics.removed.inc({ reason });
      metrics.overQuota.set(overQuota ? 1 : 0);
      if (remove.length > 0) catalog.changed();
      if (remove.length > 0) search?.removed(remove.map(({ id }) => id));
      forgetRemoved(parts.playIndexes, remove, log);
    },
    onFailure: () => metrics.retentionFailures.inc(),
  });
  const { address, url, readUrl } = listeners;
  return {
    address,
    url,
    readUrl,
    catalog,
    async close() {
      viewers.close();
      await retention.close();
      await closeUploads({ ingest, group, finisher });
      await search?.close();
      await shared?.close();
      await listeners.close(timing.closeGraceMs);
      await playIndexes.close();
      await events.close();
      await evidence.close();
      await unlock();
    },
  };
}
