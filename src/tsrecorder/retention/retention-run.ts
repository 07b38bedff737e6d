/**
 * Carries a retention plan out. What is removed stands in the evidence log, in the store, before it goes; what is held
 * stays. A hold is a document `.holds/<recording>` whose content says why.
 */
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { batchPrefix, batchTime } from '../events/event-batches.ts';
import { createDescriber } from '../library/describe-stored.ts';
import {
  isTooOld,
  planRetention,
  type FindUsers,
  type KeptRecording,
  type RetentionChanges,
  type RetentionPlan,
  type RetentionPolicy,
} from './retention.ts';
import { ALERTS_FOLDER, recordingOfAlertMark } from '../store/alert-marks.ts';
import { parseRecordingId, parseTime, recordingId, type RecordingKey } from '../store/key.ts';
import type { ObjectStat, RecordingStore } from '../store/store.ts';
import { createLoopTurns } from '../../async/loop-turns.ts';
import { unlessAborted } from '../../async/within.ts';

const HOLDS_FOLDER = '.holds/';
/** A recording that is not in the store so long after it began never comes into it. */
const NEVER_STORED_MS = 366 * 86_400_000;
/** Maximum number of recordings whose size or user is read at a time. */
const READ_CONCURRENCY = 8;
/** Maximum number of recordings whose user is kept in memory between two runs; about 150 bytes each. */
const MAX_KNOWN_USERS = 200_000;

const OVER_QUOTA =
  'new sessions are refused: recordings that are held or younger than --min-retention-days exceed --max-store-bytes; release holds or raise the limit';

export interface RetentionOptions {
  readonly store: RecordingStore;
  readonly evidence: Pick<SessionEvidence, 'removing' | 'removingDocuments'>;
  readonly policy: RetentionPolicy;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** How often the policy is applied. */
  readonly everyMs: number;
  readonly log: Logger;
  /** The policy was applied: what it removed is gone. */
  readonly onApplied: (plan: RetentionChanges) => void;
  /** It could not be applied to the end. */
  readonly onFailure: () => void;
}

export interface Retention {
  close(): Promise<void>;
}

/** Applies the policy now and then. Without limits there is nothing to do. */
export function startRetention(options: RetentionOptions): Retention {
  const { policy, everyMs, log } = options;
  if (policy.maxAgeMs === undefined && policy.maxBytes === undefined) return { close: async () => undefined };
  const findUsers = createUserFinder(options.store);
  const closing = new AbortController();
  let running: Promise<void> = Promise.resolve();
  const apply = (): void => {
    running = running
      .then(() => applyRetention(options, findUsers, closing.signal))
      .then((plan) => {
        const { remove, overQuota } = plan;
        options.onApplied(plan);
        if (remove.length > 0) log.info({ recordings: remove.length }, 'recordings removed by retention');
        if (overQuota) log.error({}, OVER_QUOTA);
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

/** What the policy would remove now. */
export async function planStoreRetention(
  store: RecordingStore,
  policy: RetentionPolicy,
  nowMs: number,
): Promise<RetentionPlan> {
  const recordings = await keptRecordings(store, () => true, new AbortController().signal);
  return planRetention(recordings, await listHolds(store), policy, nowMs, createUserFinder(store));
}

/** Creates a function that reads the users of recordings, and remembers some of them: recordings never change. */
function createUserFinder(store: RecordingStore): FindUsers {
  const describe = createDescriber(store, 1);
  const known = new Map<string, string>();
  const names = new Map<string, string>();
  const findUser = async ({ id }: KeptRecording): Promise<string> => {
    const key = parseRecordingId(id);
    const described = key === undefined ? undefined : await describe({ key, hasSidecar: true });
    const { user, nodeId } = described?.entry.recording.source ?? { nodeId: '' };
    const name = JSON.stringify([key?.nodeId, user ?? nodeId]);
    // one string for all recordings of a user
    const shared = names.get(name) ?? name;
    names.set(shared, shared);
    return shared;
  };
  return async (recordings) => {
    const users: string[] = [];
    const turns = createLoopTurns();
    const left = recordings.entries();
    const findNext = async (): Promise<void> => {
      for (const [at, recording] of left) {
        if (turns.isDue()) await turns.turn();
        const user = known.get(recording.id) ?? (await findUser(recording));
        if (known.size < MAX_KNOWN_USERS) known.set(recording.id, user);
        users[at] = user;
      }
    };
    await Promise.all(Array.from({ length: READ_CONCURRENCY }, findNext));
    return users;
  };
}

/** Those of the store that `isAsked`, with their sizes: not every store tells these when it is listed. */
async function keptRecordings(
  store: RecordingStore,
  isAsked: (recording: Pick<KeptRecording, 'startedAtMs'>) => boolean,
  signal: AbortSignal,
): Promise<readonly KeptRecording[]> {
  const left = (await unlessAborted(store.list(), signal)).values();
  const turns = createLoopTurns();
  const recordings: KeptRecording[] = [];
  const takeNext = async (): Promise<void> => {
    for (const { key, bytes: listed, stat } of left) {
      signal.throwIfAborted();
      if (turns.isDue()) await turns.turn();
      const startedAtMs = Number((parseTime(key.time) ?? 0n) / 1_000_000n);
      if (!isAsked({ startedAtMs })) continue;
      const cast = stat ?? (await store.stat(key, 'cast'));
      const bytes = listed ?? (await sizeOf(store, key, cast));
      recordings.push({ id: recordingId(key), startedAtMs, storedAtMs: cast?.modifiedAtMs ?? 0, bytes });
    }
  };
  await Promise.all(Array.from({ length: READ_CONCURRENCY }, takeNext));
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
 * Removes what the policy removes.
 * @param signal ends the run before the next recording
 * @throws TailcastError `STORE_FAILED`, or the reason of `signal`; what has been removed then is in the log
 */
export async function applyRetention(
  options: RetentionOptions,
  findUsers: FindUsers = createUserFinder(options.store),
  signal: AbortSignal = new AbortController().signal,
): Promise<RetentionChanges> {
  const { store, evidence, policy, nowMs } = options;
  const now = nowMs();
  // without a limit to their sizes nobody has to know those of what stays
  const isAsked = (recording: Pick<KeptRecording, 'startedAtMs'>): boolean =>
    policy.maxBytes !== undefined || isTooOld(recording, policy, now);
  const asked = await keptRecordings(store, isAsked, signal);
  const plan = await planRetention(asked, await listHolds(store), policy, now, (recordings) =>
    unlessAborted(findUsers(recordings), signal),
  );
  if (plan.remove.length > 0) {
    await evidence.removing(plan.remove.map(({ id, reason, bytes }) => ({ recording: id, reason, bytes })));
    for (const { id } of plan.remove) {
      signal.throwIfAborted();
      const key = parseRecordingId(id);
      if (key !== undefined) await store.remove(key);
    }
  }
  await removeAlertMarks(store, new Set(plan.remove.map(({ id }) => id)), nowMs() - NEVER_STORED_MS);
  if (policy.maxAgeMs !== undefined) await removeEvents(options, nowMs() - policy.maxAgeMs);
  return plan;
}

/** That an alert was told is known for as long as its recording is there. */
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

/** Batches of events grow old as recordings do. */
async function removeEvents({ store, evidence }: RetentionOptions, beforeMs: number): Promise<void> {
  const names = (await store.listDocuments(batchPrefix())).filter((name) => {
    const time = batchTime(name);
    return time !== undefined && Number(time / 1_000_000n) < beforeMs;
  });
  if (names.length === 0) return;
  await evidence.removingDocuments(names, 'age');
  for (const name of names) await store.removeDocument(name);
}

/** Keeps a recording from being removed. @throws TailcastError `RECORDING_UNKNOWN` */
export async function holdRecording(
  store: RecordingStore,
  id: string,
  reason: string,
  nowMs: number,
): Promise<void> {
  const name = await holdName(store, id);
  const content = `${JSON.stringify({ time: new Date(nowMs).toISOString(), reason })}\n`;
  try {
    await store.putDocument(name, Buffer.from(content));
  } catch (error) {
    // it is held already
    if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
  }
}

/** Ends a hold. @throws TailcastError `RECORDING_UNKNOWN` */
export async function releaseRecording(store: RecordingStore, id: string): Promise<void> {
  await store.removeDocument(await holdName(store, id));
}

async function listHolds(store: RecordingStore): Promise<ReadonlySet<string>> {
  return new Set((await store.listDocuments(HOLDS_FOLDER)).map((name) => name.slice(HOLDS_FOLDER.length)));
}

async function holdName(store: RecordingStore, id: string): Promise<string> {
  const key = parseRecordingId(id);
  if (key === undefined || (await store.stat(key, 'cast')) === undefined) {
    throw new TailcastError('RECORDING_UNKNOWN', id);
  }
  return HOLDS_FOLDER + recordingId(key);
}
