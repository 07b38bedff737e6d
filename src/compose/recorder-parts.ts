/** Assembles a recorder: store, spool, intake and listeners. */
import { hash } from 'node:crypto';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { openReviews, type Reviews } from '../tsrecorder/evidence/reviews.ts';
import type { Alerts } from '../tsrecorder/search/alerts/alerts.ts';
import type { Catalog } from '../tsrecorder/library/catalog.ts';
import { forgetRemoved } from '../tsrecorder/playback/forget-removed.ts';
import type { PlayIndexes } from '../tsrecorder/playback/play-indexes.ts';
import { openSpoolIndexes } from '../tsrecorder/playback/spool-indexes.ts';
import { startRetention, type Retention } from '../tsrecorder/retention/retention-run.ts';
import { indexDirectory, RecorderSearch } from '../tsrecorder/search/recorder-search.ts';
import { createSearchMetrics } from '../tsrecorder/search/search-metrics.ts';
import { createHeaderReception } from '../tailnet/proxied-listener.ts';
import { addApi } from '../tsrecorder/serving/api.ts';
import { createCursors } from '../tsrecorder/serving/cursors.ts';
import { createHosts } from '../tsrecorder/serving/hosts.ts';
import { openListeners, type Listeners } from '../tsrecorder/serving/listeners.ts';
import { createLiveSockets } from '../tsrecorder/serving/live-socket.ts';
import { createUploads } from '../tsrecorder/serving/uploads.ts';
import { createViewerAccess } from '../tsrecorder/serving/viewer-access.ts';
import { takeSpool } from '../tsrecorder/spool/spool-lock.ts';
import { placeSpool } from '../tsrecorder/spool/spool-place.ts';
import { createArchiveStore } from '../tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../tsrecorder/store/disk.ts';
import { createS3Store, S3_LISTING } from '../tsrecorder/store/s3.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import { openRecorderAlerts } from './recorder-alerts.ts';
import { openIntake, type Intake } from './recorder-intake.ts';
import {
  settleOptions,
  SYSTEM_CLOCK,
  type RecorderOptions,
  type SettledOptions,
} from './recorder-options.ts';

export interface RunningRecorder extends Omit<Listeners, 'close'> {
  readonly catalog: Catalog;
  /** Ends uploads with an error frame, and stops listening. The uploads are stored, or stay in the spool. */
  close(): Promise<void>;
}

/**
 * Starts a recorder: recovers the sessions that an earlier process left in the spool, then listens.
 *
 * @throws TailcastError `CONFIG_INVALID` if the spool directory is in use, `STORE_FAILED` if the store is not writable;
 *   a system error if the address is not available
 */
export async function createRecorder(given: RecorderOptions): Promise<RunningRecorder> {
  const { directory, log } = given;
  const inner = given.store ?? (await openStore(given));
  const options = settleOptions(given, given.spoolDirectory ?? (await placeSpool(directory, log)));
  const { spoolDirectory } = options;
  const store = createArchiveStore(inner, options.archive, given.sealKeys);
  const unlock = await takeSpool(spoolDirectory);
  try {
    const intake = await openIntake(options, store);
    const maxBytes = options.limits.maxPlayIndexBytes;
    const playIndexes = await openSpoolIndexes(spoolDirectory, { store, log, maxBytes });
    const { evidence, trusted } = intake;
    const reviews = openReviews({ store, key: evidence.key, trusted, nowMs: () => options.clock.now() });
    return await serve(options, store, { ...intake, playIndexes, reviews }, unlock);
  } catch (error) {
    await unlock();
    throw error;
  }
}

async function openStore({
  bucket,
  directory,
  log,
  clock = SYSTEM_CLOCK,
}: RecorderOptions): Promise<RecordingStore> {
  if (bucket === undefined) {
    const onRefused = (name: string): void =>
      log.error({ name }, 'the store contains a link or a special file, which is not read');
    return createDiskStore(directory, { onRefused });
  }
  return createS3Store({ ...S3_LISTING, bucket, nowMs: () => clock.now() });
}

interface Parts extends Intake {
  readonly playIndexes: PlayIndexes;
  readonly reviews: Reviews;
}

/** Starts the listeners, which run until `close`. */
async function serve(
  options: SettledOptions,
  store: RecordingStore,
  parts: Parts,
  unlock: () => Promise<void>,
): Promise<RunningRecorder> {
  const { catalog, evidence, events, metrics, freeBytes } = parts;
  const { limits, timing, log, clock } = options;
  const nowMs = (): number => clock.now();
  const hosts = createHosts(options.hostNames);
  const access = createViewerAccess({
    identify: options.identifyViewer,
    rules: options.viewers,
    trustedGateways: options.trustedGateways,
    record: (event) => events.record(event),
    nowMs,
    timeoutMs: timing.identifyTimeoutMs,
    recheckMs: timing.recheckMs,
  });
  const alerts = await openRecorderAlerts(options, store, parts);
  const search = openSearch(options, parts, alerts);
  if (search !== undefined) parts.listeners.search = search;
  const viewers = createLiveSockets({ ...limits, ...timing, catalog, access, hosts, log });
  const listeners = await openListeners({
    ...limits,
    ...timing,
    upload: options.listen,
    read: options.readListen,
    proxied: options.proxyListen,
    proxyHeaders: (handOver) => createHeaderReception(handOver, log),
    uploads: createUploads({
      ...parts,
      ...limits,
      ...timing,
      putEvent: (key, content) => events.put(key, content).then(() => alerts?.eventStored(content)),
      identify: options.identify,
      log,
    }),
    viewers: {
      routes: (app) =>
        addApi(app, {
          ...parts,
          access,
          hosts,
          store,
          search: events.search,
          index: search,
          isSearchable: options.isSearchable ?? true,
          key: evidence.key,
          nowMs,
          cursors: createCursors(evidence.key.secret('cursors')),
          log,
          playerDirectory: options.playerDirectory,
        }),
      upgrade: (request, socket, head) => viewers.upgrade(request, socket, head),
    },
    freeBytes,
    metrics,
    log,
  }).catch(async (error: unknown) => {
    // NOTE: the index process and timers must be closed, because they would keep the recorder running.
    viewers.close();
    await closeSearch(parts, search, alerts);
    await closeLogs(parts);
    throw error;
  });
  const retention = applyRetention(options, store, parts, alerts);
  return {
    ...listeners,
    catalog,
    async close() {
      viewers.close();
      await retention.close();
      await closeUploads(parts);
      await closeSearch(parts, search, alerts);
      await listeners.close(timing.closeGraceMs);
      await closeLogs(parts);
      await unlock();
    },
  };
}

/** Ends all uploads, and stores as many of them as possible. */
async function closeUploads({ ingest, group, finisher }: Parts): Promise<void> {
  await ingest.close();
  await group.flush();
  await finisher.close();
}

async function closeSearch(
  { shared }: Parts,
  search: RecorderSearch | undefined,
  alerts: Alerts | undefined,
): Promise<void> {
  await search?.close();
  await alerts?.close();
  await shared?.close();
}

async function closeLogs({ playIndexes, events, evidence }: Parts): Promise<void> {
  await playIndexes.close();
  await events.close();
  await evidence.close();
}

function openSearch(
  { searchText, searchServer, spoolDirectory, registry, log, clock }: SettledOptions,
  { ingest, catalog, trusted }: Parts,
  alerts: Alerts | undefined,
): RecorderSearch | undefined {
  const metrics = createSearchMetrics(registry);
  if (searchText === undefined) return undefined;
  return new RecorderSearch({
    index:
      searchServer === undefined
        ? indexDirectory(spoolDirectory)
        : { ...searchServer, owner: ownerOf(spoolDirectory) },
    text: searchText,
    // Recorders that share an index server may trust different keys, so a shared index is not rebuilt if the keys
    // differ.
    ...(searchServer === undefined ? { trusted: namesOf(trusted) } : {}),
    catalog,
    live: () => ingest.live(),
    ...(alerts === undefined ? {} : { watch: alerts }),
    now: () => clock.monotonic(),
    metrics,
    log,
  });
}

/** Returns a digest that identifies a set of keys. */
function namesOf(keys: ReadonlyMap<string, unknown>): string {
  return hash('sha256', [...keys.keys()].toSorted().join('\n')).slice(0, 16);
}

/** Returns the id of this recorder among the recorders that write to the same index. Stable across restarts. */
function ownerOf(spoolDirectory: string): string {
  return hash('sha256', `${hostname()}\0${resolve(spoolDirectory)}`).slice(0, 16);
}

function applyRetention(
  { retention, timing, log, clock }: SettledOptions,
  store: RecordingStore,
  { evidence, trusted, catalog, metrics, playIndexes, listeners }: Parts,
  alerts: Alerts | undefined,
): Retention {
  return startRetention({
    store,
    evidence,
    trusted,
    policy: retention,
    nowMs: () => clock.now(),
    everyMs: timing.retentionMs,
    log,
    onApplied({ remove, overQuota }) {
      for (const { reason } of remove) metrics.removed.inc({ reason });
      metrics.overQuota.set(overQuota ? 1 : 0);
      listeners.isOverQuota = overQuota;
      if (remove.length > 0) {
        const ids = remove.map(({ id }) => id);
        catalog.removed();
        listeners.search?.removed(ids);
        alerts?.removed(ids);
      }
      forgetRemoved(playIndexes, remove, log);
    },
    onUnprovenHolds: (count) => metrics.unprovenHolds.set(count),
    onFailure: () => metrics.retentionFailures.inc(),
  });
}
