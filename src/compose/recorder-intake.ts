/**
 * The component of a recorder that owns one spool. It accepts sessions, moves them to the store, and lists recordings.
 */
import { openSharedBucket, type SharedBucket } from '../tsrecorder/checkpoint/shared-bucket.ts';
import { openRecorderEvents, type RecorderEvents } from '../tsrecorder/events/recorder-events.ts';
import { openEvidence } from '../tsrecorder/evidence/open-evidence.ts';
import { resultKind } from '../wire/recorder-api/recording-status.ts';
import { trustOf } from '../tsrecorder/evidence/trust.ts';
import type { SessionEvidence } from '../tsrecorder/evidence/session-evidence.ts';
import { keysById, type PublicKey } from '../tsrecorder/evidence/signing-key.ts';
import { createGroupCommit } from '../tsrecorder/intake/group-commit.ts';
import { createFinisher, type Finisher } from '../tsrecorder/intake/finisher.ts';
import type { GroupCommit } from '../tsrecorder/intake/group-commit.ts';
import { Ingest } from '../tsrecorder/intake/ingest.ts';
import { createReceiveTimes } from '../tsrecorder/intake/receive-time.ts';
import {
  createRecorderMetrics,
  createUploadMeter,
  type RecorderMetrics,
} from '../tsrecorder/intake/recorder-metrics.ts';
import { Catalog } from '../tsrecorder/library/catalog.ts';
import { recordedOwner } from '../tsrecorder/library/recorded-owner.ts';
import type { RecorderSearch } from '../tsrecorder/search/recorder-search.ts';
import { freeSpaceOf, freeSpoolSpace } from '../tsrecorder/store/free-room.ts';
import { recordingId } from '../tsrecorder/store/key.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import type { SettledOptions } from './recorder-options.ts';

export interface Intake {
  readonly ingest: Ingest;
  readonly group: GroupCommit;
  readonly finisher: Finisher;
  readonly catalog: Catalog;
  readonly evidence: SessionEvidence;
  /** Public keys of trusted recorders, including this recorder. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly events: RecorderEvents;
  readonly metrics: RecorderMetrics;
  readonly issueTime: () => string;
  readonly shared: SharedBucket | undefined;
  /**
   * Returns the number of free bytes in the store or in the spool, whichever is less; 0 while the store exceeds its
   * size limit.
   */
  readonly freeBytes: () => Promise<number | undefined>;
  /** Returns the number of free bytes in the spool. */
  readonly freeSpoolBytes: () => Promise<number>;
  /**
   * Values that are set after the intake is open: the search index, which is notified about stored recordings, and the
   * result of the last retention run.
   */
  readonly listeners: {
    search?: RecorderSearch;
    /** True if the store exceeded its size limit in the last retention run. */ isOverQuota?: boolean;
  };
}

/** Opens the intake, and recovers the sessions of an earlier process from the spool. */
export async function openIntake(options: SettledOptions, store: RecordingStore): Promise<Intake> {
  const { spoolDirectory, limits, timing, log, clock, bucket } = options;
  const nowMs = (): number => clock.now();
  const metrics = createRecorderMetrics(options.registry, () => ({
    ...ingest.status(),
    waitingBytes: group.waitingBytes,
    unpublishedEntries: evidence.unpublished,
  }));
  const issueTime = createReceiveTimes(nowMs);
  const group = createGroupCommit({
    windowMs: timing.commitWindowMs,
    now: () => clock.monotonic(),
    onCycle(durationMs) {
      metrics.commitSeconds.observe(durationMs / 1000);
      ingest.resumeWaiting();
    },
  });
  const evidence = await openEvidence({
    ...timing,
    store,
    spoolDirectory,
    keyFile: options.evidenceKey,
    trusted: options.recorderKeys ?? [],
    nowMs,
    log,
    onFailure: () => metrics.publishFailures.inc(),
  });
  const trusted = trustedKeys(options, evidence);
  const retry = { retryMs: timing.storeRetryMs, maxRetryMs: timing.maxStoreRetryMs };
  const onRetry = (): void => metrics.storeRetries.inc();
  const finisher = createFinisher({ store, evidence, log, ...retry, onRetry });
  const listeners: Intake['listeners'] = {};
  const ingest: Ingest = new Ingest({
    spoolDirectory,
    group,
    finisher,
    evidence,
    meter: createUploadMeter(metrics),
    limits,
    ...timing,
    ...retry,
    now: nowMs,
    issueTime,
    log,
    onOutcome: ({ state, result }) => metrics.recordings.inc({ state, result: resultKind(result) }),
    onStored({ bytes, id, source }, stored) {
      metrics.storedBytes.inc(bytes);
      catalog.added(stored);
      for (const each of new Set([id, recordingId(stored.key)]))
        listeners.search?.stored(each, recordedOwner({ source }));
    },
  });
  const common = { store, spoolDirectory, log, metrics, evidence, trusted, nowMs };
  const events = await openRecorderEvents({
    ...common,
    layout: options.eventLayout,
    issueTime,
    periodMs: timing.eventBatchMs,
    retryMs: timing.storeRetryMs,
  });
  const monotonicMs = (): number => clock.monotonic();
  const shared =
    bucket === undefined
      ? undefined
      : await openSharedBucket({ ...timing, ...common, events, bucket, ingest: () => ingest, monotonicMs });
  const catalog = openCatalog(options, store, { live: () => ingest.live(), shared, listeners, trusted });
  await ingest.recover();
  shared?.start();
  catalog.prepare(log);
  const freeBytes = async (): Promise<number | undefined> => {
    const free = await freeSpaceOf(store, spoolDirectory);
    return listeners.isOverQuota === true ? 0 : free;
  };
  const freeSpoolBytes = (): Promise<number> => freeSpoolSpace(spoolDirectory);
  const parts = { ingest, group, finisher, catalog, evidence, trusted, events };
  return { ...parts, metrics, issueTime, shared, freeBytes, freeSpoolBytes, listeners };
}

/** Returns the public keys of this recorder and of the recorders in the settings. */
function trustedKeys(
  { recorderKeys = [] }: SettledOptions,
  { key }: SessionEvidence,
): ReadonlyMap<string, PublicKey> {
  return keysById([...recorderKeys, key.public]);
}

function openCatalog(
  { timing, limits, clock, searchText }: SettledOptions,
  store: RecordingStore,
  {
    live,
    shared,
    listeners,
    trusted,
  }: {
    readonly live: Ingest['live'];
    readonly shared: SharedBucket | undefined;
    readonly listeners: Intake['listeners'];
    readonly trusted: Intake['trusted'];
  },
): Catalog {
  return new Catalog({
    store,
    ...(shared === undefined ? {} : { remote: () => shared.remote() }),
    live,
    trustOf: (sidecar, key, bytes) => trustOf(sidecar, key, bytes, trusted),
    refreshMs: timing.listRefreshMs,
    maxCached: limits.maxCachedRecordings,
    now: () => clock.monotonic(),
    ...(searchText === undefined ? {} : { index: () => listeners.search }),
  });
}
