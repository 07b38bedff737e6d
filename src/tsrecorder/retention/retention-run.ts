/**
 * Executes a retention plan. A recording is removed only after the evidence-log entry about its removal is in the
 * store. Held recordings are not removed.
 */
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import {
  createLoggedHolds,
  forgetHold,
  hasNewHold,
  readHolds,
  type HoldChange,
  type HoldProof,
  type Holds,
  type LoggedHold,
  type LoggedHolds,
} from '../evidence/holds.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { forgetReview } from '../evidence/reviews.ts';
import { keysById, type PublicKey } from '../evidence/signing-key.ts';
import { batchPrefix, batchTime, MAX_BATCH_BYTES, readBatch } from '../evidence/signed-batch.ts';
import { readSessions, readSignedSidecar } from '../evidence/signed-recording.ts';
import { parseSignedSidecar } from '../evidence/signed-sidecar.ts';
import { createDescriber } from '../library/describe-stored.ts';
import {
  isTooOld,
  planRetention,
  type FindUsers,
  type KeptRecording,
  type PlannedRemoval,
  type RetentionChanges,
  type RetentionPlan,
  type RetentionPolicy,
  type SignedUser,
} from './retention.ts';
import { ALERTS_FOLDER, recordingOfAlertMark } from '../store/alert-marks.ts';
import { parseRecordingId, parseTime, recordingId, type RecordingKey } from '../store/key.ts';
import type { ObjectStat, RecordingStore } from '../store/store.ts';
import { createLoopTurns } from '../../async/loop-turns.ts';
import { unlessAborted } from '../../async/with-timeout.ts';

/**
 * Maximum time from the start of a recording until it is in the store, in milliseconds. After this time, the alert
 * marks of a missing recording are removed.
 */
const NEVER_STORED_MS = 366 * 86_400_000;
/** Maximum number of recordings whose size or user is read concurrently. */
const READ_CONCURRENCY = 8;
/** Maximum number of recordings whose user is cached between two runs, about 150 bytes each. */
const MAX_KNOWN_USERS = 200_000;

/** Maximum number of recordings whose removal is logged before the first of them is removed. */
const REMOVAL_BATCH = 100;

/** Maximum number of unproven holds that one run writes to the process log. */
const MAX_REPORTED = 20;
/**
 * Maximum number of bytes by which the counted size of an archive may exceed the size of its content. The extra bytes
 * are the header and the seek table.
 */
const MAX_ARCHIVE_EXTRA = 4096;

const UNPROVEN_HOLD =
  'a recording is kept because its hold has no signed statement: sign a hold or a release with tailcast retention';
/** Maximum number of log entries about recordings without a trusted signature that one run removes. */
const MAX_UNVERIFIED_ENTRIES = 1000;
const REMOVED_UNVERIFIED =
  'recordings without a trusted signature were removed; the evidence log has entries about at most ' +
  `${MAX_UNVERIFIED_ENTRIES} of them`;
const REMOVED_UNVERIFIED_EVENTS =
  'batches of events without a trusted signature were removed; the evidence log has no entries about their removal';
const OVER_QUOTA =
  'new sessions are refused: recordings that are held or younger than --min-retention-days exceed ' +
  '--max-store-bytes; release holds or raise the limit';

export interface RetentionOptions {
  readonly store: RecordingStore;
  readonly evidence: Pick<SessionEvidence, 'removing' | 'removingDocuments' | 'holding' | 'holds'>;
  /**
   * Public keys of the trusted recorders, including this recorder. Map keys: key id. A hold or a release is valid only
   * if one of these keys signed it.
   */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  readonly policy: RetentionPolicy;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Interval between runs, in milliseconds. */
  readonly everyMs: number;
  readonly log: Logger;
  /** Called after a run with its changes, also if the run failed after its plan was complete. */
  readonly onApplied: (plan: RetentionChanges) => void;
  /** Called with the number of recordings that are kept only because of an unproven hold. */
  readonly onUnprovenHolds: (count: number) => void;
  /** Called when a run failed. */
  readonly onFailure: () => void;
}

/** Background task that applies the retention policy. */
export interface Retention {
  close(): Promise<void>;
}

/** Applies the policy periodically. Does nothing if the policy has no limits. */
export function startRetention(options: RetentionOptions): Retention {
  const { policy, everyMs, log } = options;
  if (policy.maxAgeMs === undefined && policy.maxBytes === undefined) return { close: async () => undefined };
  const findUsers = createUserFinder(options.store, options.trusted);
  const loggedHolds = createLoggedHolds(options.store, options.trusted);
  const closing = new AbortController();
  let running: Promise<void> = Promise.resolve();
  const apply = (): void => {
    running = running
      .then(() => applyRetention(options, findUsers, closing.signal, loggedHolds))
      .then((plan) => {
        if (plan.overQuota) log.error({}, OVER_QUOTA);
      })
      .catch((error: unknown) => {
        if (closing.signal.aborted) return;
        options.onFailure();
        log.error({ error: errorText(error) }, 'retention failed and will be tried again');
      });
  };
  apply();
  const timer = setInterval(apply, everyMs);
  return {
    async close() {
      clearInterval(timer);
      closing.abort();
      await running;
    },
  };
}

/** A plan that states for each held recording whether the hold is signed ({@link HoldProof}). */
export interface ShownRetentionPlan extends RetentionPlan {
  readonly held: readonly (PlannedRemoval & { readonly hold: HoldProof })[];
}

/**
 * Plans which recordings the policy removes at `nowMs`.
 *
 * @param keys keys of the trusted recorders. With an empty list, all holds are unproven, and all recordings count as
 * signed
 */
export async function planStoreRetention(
  store: RecordingStore,
  policy: RetentionPolicy,
  nowMs: number,
  keys: readonly PublicKey[] = [],
): Promise<ShownRetentionPlan> {
  const recordings = await keptRecordings(store, () => true, new AbortController().signal);
  const trusted = keysById(keys);
  const logged = await createLoggedHolds(store, trusted)();
  const { proofs } = await readHolds(store, logged, trusted);
  const findUsers = createUserFinder(store, keys.length === 0 ? undefined : trusted);
  const { plan, held } = await planSessions(store, trusted, proofs, (holds) =>
    planRetention(recordings, holds, policy, nowMs, findUsers),
  );
  return {
    ...plan,
    held: plan.held.map((removal) => ({ ...removal, hold: held.get(removal.id) ?? 'unproven' })),
  };
}

/**
 * If a part of a session has a hold, plans again with a hold for the other parts that would be removed. Reads only the
 * sidecars of recordings that have a hold or would be removed.
 *
 * @param proofs check results of the holds, with recording ids as map keys
 * @param planWith returns the plan for the given holds
 * @returns the plan, and the check results of all holds, including holds of other parts of a session
 */
async function planSessions(
  store: RecordingStore,
  trusted: ReadonlyMap<string, PublicKey>,
  proofs: ReadonlyMap<string, HoldProof>,
  planWith: (holds: ReadonlyMap<string, HoldProof>) => Promise<RetentionPlan>,
): Promise<{ readonly plan: RetentionPlan; readonly held: ReadonlyMap<string, HoldProof> }> {
  const held = new Map(proofs);
  const marksOf = async (ids: readonly string[]): Promise<readonly (readonly [string, string])[]> => {
    const keys = ids.flatMap((id) => parseRecordingId(id) ?? []);
    const marks = await readSessions(store, keys, trusted);
    return keys.flatMap((key, at) => {
      const mark = marks[at];
      return mark === undefined ? [] : [[recordingId(key), mark] as const];
    });
  };
  const sessions = new Map<string, HoldProof>();
  const checked = new Set<string>();
  for (;;) {
    const plan = await planWith(held);
    const unchecked = plan.remove.map(({ id }) => id).filter((id) => !checked.has(id));
    if (held.size === 0 || unchecked.length === 0) return { plan, held };
    if (checked.size === 0)
      for (const [id, mark] of await marksOf([...proofs.keys()]))
        sessions.set(mark, proofs.get(id) ?? 'unproven');
    if (sessions.size === 0) return { plan, held };
    const before = held.size;
    for (const [id, mark] of await marksOf(unchecked)) {
      const proof = sessions.get(mark);
      if (proof !== undefined) held.set(id, proof);
    }
    if (held.size === before) return { plan, held };
    for (const id of unchecked) checked.add(id);
  }
}

/**
 * Creates a function that reads the users of recordings, and caches some of them until their recordings change.
 * @param trusted public keys of the trusted recorders, with key ids as map keys. Default: all recordings count as
 * signed
 */
function createUserFinder(store: RecordingStore, trusted?: ReadonlyMap<string, PublicKey>): FindUsers {
  const describe = createDescriber(store, 1);
  const known = new Map<string, SignedUser>();
  const names = new Map<string, string>();
  const findUser = async ({ id, bytes, storedAtMs }: KeptRecording): Promise<SignedUser | undefined> => {
    const key = parseRecordingId(id);
    if (key === undefined) return undefined;
    const signed = trusted === undefined ? undefined : await readSignedSidecar(store, key, trusted);
    if (signed === undefined && trusted !== undefined) return undefined;
    const source =
      signed?.sidecar.recording.source ?? (await describe({ key, hasSidecar: true }))?.entry.recording.source;
    const name = JSON.stringify([key.nodeId, source?.user ?? source?.nodeId ?? '']);
    // Use the same JavaScript string for all recordings of a user, to save memory.
    const shared = names.get(name) ?? name;
    names.set(shared, shared);
    const signedBytes =
      signed === undefined ? bytes : await signedSizeOf(store, key, signed.text, signed.cast);
    const endedAtMs = signed === undefined ? storedAtMs : Date.parse(signed.sidecar.upload.endedAt);
    return { user: shared, bytes: Math.min(bytes, signedBytes), endedAtMs };
  };
  return async (recordings) => {
    const users: (SignedUser | undefined)[] = [];
    const turns = createLoopTurns();
    await forEachConcurrent(recordings, READ_CONCURRENCY, async (recording, at) => {
      if (turns.isDue()) await turns.turn();
      const version = `${recording.id} ${recording.bytes} ${recording.storedAtMs}`;
      const user = known.get(version) ?? (await findUser(recording));
      if (user !== undefined && known.size < MAX_KNOWN_USERS) known.set(version, user);
      users[at] = user;
    });
    return users;
  };
}

/**
 * Returns the size of the signed objects of a recording. Notes whose length differs from the signed length do not
 * count.
 *
 * @param sidecar signed sidecar, whose signature and cast length are verified
 */
async function signedSizeOf(
  store: RecordingStore,
  key: RecordingKey,
  sidecar: string,
  cast: ObjectStat,
): Promise<number> {
  const notes = await store.stat(key, 'notes');
  const isSigned = notes?.bytes === parseSignedSidecar(sidecar)?.evidence.notes?.bytes;
  let bytes = Buffer.byteLength(sidecar);
  // An archive may be larger than its contents, because it has a header and a seek table.
  for (const stat of [cast, isSigned ? notes : undefined])
    if (stat !== undefined) bytes += Math.min(stat.storedBytes ?? stat.bytes, stat.bytes + MAX_ARCHIVE_EXTRA);
  return bytes;
}

/**
 * Returns the recordings for which `isIncluded` returns true, with their sizes. If the listing does not contain the
 * size of a recording, the size is read from the store.
 */
async function keptRecordings(
  store: RecordingStore,
  isIncluded: (recording: Pick<KeptRecording, 'startedAtMs'>) => boolean,
  signal: AbortSignal,
): Promise<readonly KeptRecording[]> {
  const stored = await unlessAborted(store.list(), signal);
  const turns = createLoopTurns();
  const recordings: KeptRecording[] = [];
  await forEachConcurrent(stored, READ_CONCURRENCY, async ({ key, bytes: listed, stat }) => {
    signal.throwIfAborted();
    if (turns.isDue()) await turns.turn();
    const startedAtMs = Number((parseTime(key.time) ?? 0n) / 1_000_000n);
    if (!isIncluded({ startedAtMs })) return;
    const cast = stat ?? (await store.stat(key, 'cast'));
    const bytes = listed ?? (await sizeOf(store, key, cast));
    recordings.push({ id: recordingId(key), startedAtMs, storedAtMs: cast?.modifiedAtMs ?? 0, bytes });
  });
  return recordings;
}

async function sizeOf(
  store: RecordingStore,
  key: RecordingKey,
  cast: ObjectStat | undefined,
): Promise<number> {
  let bytes = 0;
  for (const stat of [cast, await store.stat(key, 'notes'), await store.stat(key, 'sidecar')])
    bytes += stat?.storedBytes ?? stat?.bytes ?? 0;
  return bytes;
}

/**
 * Applies the policy once.
 *
 * @param signal if it aborts, the run stops before the next recording
 * @param loggedHolds reads the holds in the evidence logs of the store
 * @throws TailcastError `STORE_FAILED`, or the reason of `signal`. If the run fails, the evidence log already contains
 *   the removals before the failure
 */
export async function applyRetention(
  options: RetentionOptions,
  findUsers: FindUsers = createUserFinder(options.store, options.trusted),
  signal: AbortSignal = new AbortController().signal,
  loggedHolds: LoggedHolds = createLoggedHolds(options.store, options.trusted),
): Promise<RetentionChanges> {
  const { store, trusted, policy, nowMs } = options;
  const now = nowMs();
  // Without a size limit, only the sizes of recordings above the maximum age are read.
  const isIncluded = (recording: Pick<KeptRecording, 'startedAtMs'>): boolean =>
    policy.maxBytes !== undefined || isTooOld(recording, policy, now);
  const asked = await keptRecordings(store, isIncluded, signal);
  const holds = await settleHolds(options, loggedHolds, signal);
  const { plan } = await planSessions(store, trusted, holds.proofs, (held) =>
    planRetention(asked, held, policy, now, (recordings) => unlessAborted(findUsers(recordings), signal)),
  );
  const remove: PlannedRemoval[] = [];
  try {
    await removeRecordings(options, findUsers, plan.remove, holds, signal, remove);
    await removeAlertMarks(store, new Set(remove.map(({ id }) => id)), nowMs() - NEVER_STORED_MS);
    if (policy.maxAgeMs !== undefined) await removeEvents(options, nowMs() - policy.maxAgeMs, signal);
  } finally {
    options.onApplied({ ...plan, remove });
    reportRemoved(options.log, remove);
  }
  return { ...plan, remove };
}

function reportRemoved(log: Logger, removed: readonly PlannedRemoval[]): void {
  if (removed.length > 0) log.info({ recordings: removed.length }, 'recordings removed by retention');
  const unverified = removed.filter(({ reason }) => reason === 'unverified').map(({ id }) => id);
  if (unverified.length > 0)
    log.warn({ recordings: unverified.length, first: unverified.slice(0, MAX_REPORTED) }, REMOVED_UNVERIFIED);
}

/**
 * Removes recordings. Each batch is logged immediately before its removal, so that after a failure, the log contains
 * the removal of few recordings that still exist. Holds are read before and after the batch is logged, and recordings
 * with a new hold are not removed. The number of entries about recordings without a trusted signature is limited,
 * because otherwise an attacker with write access to the store could make the log arbitrarily long.
 *
 * @param removed receives each recording after its removal
 */
async function removeRecordings(
  { store, evidence, trusted }: RetentionOptions,
  findUsers: FindUsers,
  planned: readonly PlannedRemoval[],
  { listed }: Holds,
  signal: AbortSignal,
  removed: PlannedRemoval[],
): Promise<void> {
  const holds = new Map<string, LoggedHold>(evidence.holds);
  const isHeld = (id: string): Promise<boolean> => hasNewHold(store, id, holds.get(id), trusted);
  let unverified = 0;
  for (let start = 0; start < planned.length; start += REMOVAL_BATCH) {
    signal.throwIfAborted();
    const next = planned.slice(start, start + REMOVAL_BATCH);
    const held = new Set<string>();
    await forEachConcurrent(next, READ_CONCURRENCY, async ({ id }) => {
      if (await isHeld(id)) held.add(id);
    });
    const unheld = next.filter(({ id }) => !held.has(id));
    const users = await findUsers(unheld);
    const batch = unheld.map((one, at) =>
      users[at] === undefined ? { ...one, reason: 'unverified' as const } : one,
    );
    const logged = batch.filter(
      ({ reason }) => reason !== 'unverified' || (unverified += 1) <= MAX_UNVERIFIED_ENTRIES,
    );
    await evidence.removing(logged.map(({ id, reason, bytes }) => ({ recording: id, reason, bytes })));
    for (const removal of batch) {
      signal.throwIfAborted();
      const { id } = removal;
      if (await isHeld(id)) continue;
      await forgetReview(store, id);
      if (listed.has(id)) await forgetHold(store, id);
      const key = parseRecordingId(id);
      if (key !== undefined) await store.remove(key);
      removed.push(removal);
    }
  }
}

/** Adds new holds and releases to the evidence log, and reports unproven holds. @returns all holds */
async function settleHolds(
  { store, evidence, trusted, onUnprovenHolds, log }: RetentionOptions,
  loggedHolds: LoggedHolds,
  signal: AbortSignal,
): Promise<Holds> {
  const elsewhere = await newerHolds(store, evidence.holds, await loggedHolds(signal));
  const logged = new Map<string, LoggedHold>(evidence.holds);
  for (const change of elsewhere) logged.set(change.recording, change);
  const holds = await readHolds(store, logged, trusted);
  const all: HoldChange[] = [...elsewhere];
  for (const change of holds.changes) {
    // A bucket writer can restore the hold of a removed recording. In the log, this hold would cancel the removal.
    if (await isStored(store, change.recording)) all.push(change);
  }
  if (all.length > 0) await evidence.holding(all);
  let unproven = 0;
  for (const [recording, proof] of holds.proofs) {
    if (proof === 'signed') continue;
    signal.throwIfAborted();
    // Another recorder may have removed the recording after the release.
    if (!(await isStored(store, recording))) continue;
    unproven += 1;
    if (unproven <= MAX_REPORTED) log.error({ recording, hold: proof }, UNPROVEN_HOLD);
  }
  onUnprovenHolds(unproven);
  return holds;
}

/**
 * Returns the holds and releases that the evidence logs of the store contain in a newer version than the evidence log
 * of this recorder, for stored recordings. One case is a hold of another recorder, if the document of the hold was
 * removed later. Another case is a recorder that lost its spool: its earlier evidence log may contain holds that are
 * missing in its current log.
 */
async function newerHolds(
  store: RecordingStore,
  own: ReadonlyMap<string, LoggedHold>,
  logged: ReadonlyMap<string, HoldChange>,
): Promise<readonly HoldChange[]> {
  const newer: HoldChange[] = [];
  for (const change of logged.values()) {
    if (change.at <= (own.get(change.recording)?.at ?? '')) continue;
    if (await isStored(store, change.recording)) newer.push(change);
  }
  return newer;
}

async function isStored(store: RecordingStore, id: string): Promise<boolean> {
  const key = parseRecordingId(id);
  return key !== undefined && (await store.stat(key, 'cast')) !== undefined;
}

/** Removes the alert marks of removed recordings. */
async function removeAlertMarks(
  store: RecordingStore,
  removed: ReadonlySet<string>,
  beforeMs: number,
): Promise<void> {
  const names = await store.listDocuments(ALERTS_FOLDER);
  if (names.length === 0) return;
  const marked = new Set(names.map(recordingOfAlertMark));
  const stored = new Set<string>();
  const turns = createLoopTurns();
  for (const { key } of await store.list()) {
    if (turns.isDue()) await turns.turn();
    const id = recordingId(key);
    if (marked.has(id)) stored.add(id);
  }
  for (const name of names) {
    const id = recordingOfAlertMark(name);
    if (id === undefined || (stored.has(id) && !removed.has(id))) continue;
    const time = parseTime(parseRecordingId(id)?.time ?? '') ?? 0n;
    if (removed.has(id) || Number(time / 1_000_000n) < beforeMs) await store.removeDocument(name);
  }
}

/**
 * Removes batches of events that are older than the maximum age of recordings. Batches without a trusted signature get
 * no log entry, like recordings.
 */
async function removeEvents(
  { store, evidence, trusted, log }: RetentionOptions,
  beforeMs: number,
  signal: AbortSignal,
): Promise<void> {
  const names = (await store.listDocuments(batchPrefix())).filter((name) => {
    const time = batchTime(name);
    return time !== undefined && Number(time / 1_000_000n) < beforeMs;
  });
  if (names.length === 0) return;
  const signed = new Set<string>();
  await forEachConcurrent(names, READ_CONCURRENCY, async (name) => {
    signal.throwIfAborted();
    const content = await store.readDocument(name, MAX_BATCH_BYTES);
    if (content !== undefined && readBatch(name, content, trusted).trust.trust === 'verified')
      signed.add(name);
  });
  await evidence.removingDocuments(
    names.filter((name) => signed.has(name)),
    'age',
  );
  for (const name of names) await store.removeDocument(name);
  const unverified = names.length - signed.size;
  if (unverified > 0) log.warn({ batches: unverified }, REMOVED_UNVERIFIED_EVENTS);
}
