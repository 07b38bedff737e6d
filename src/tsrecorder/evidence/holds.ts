/**
 * Legal holds: retention keeps a recording with a hold, regardless of the retention policy.
 *
 * A hold is a document `.holds/<recording>` with a signed statement. A release replaces the document with a later
 * statement. Each change is first written to an evidence log of its own. If an attacker restores an earlier statement,
 * the newer statement in that log reveals the change. Each recorder copies new statements into its own evidence log,
 * and keeps the last statement about each recording in the journal of that log. For this reason, an attacker with write
 * access to the store can neither end a hold nor restore an earlier statement. Only a release with a trusted signature
 * ends a hold.
 *
 * A hold applies to the session of its recording: each part that a trusted recorder signed gets a document of its own.
 * Retention also keeps parts of the session that are stored later; see `retention-run.ts`.
 *
 * A document without a trusted signature also prevents the removal of its recording, because a removal is irreversible.
 * The recorder reports such a hold as unproven.
 */
import { randomBytes } from 'node:crypto';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import { listLimited, OVERSIZED, putIfMissing, type DocumentStore } from '../store/document-store.ts';
import { parseRecordingId, recordingId, type RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import {
  encodeEntry,
  encodeSegment,
  hashLine,
  keyName,
  LOG_FORMAT,
  logSegmentName,
  NO_HASH,
  segmentPrefix,
  type LogEntry,
  type LogEvent,
} from './log-entry.ts';
import { readSessions } from './signed-recording.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';
import { encodeStatement, readStatementIn, type StatementPurpose } from './statement.ts';
import { readSignedEntries, type DocumentReader, type ReadLog } from './verify-logs.ts';

/**
 * A hold or a release. If there are several statements about a recording, the statement with the latest time (`at`) is
 * valid.
 */
export type HoldChange = Extract<LogEvent, { kind: 'held' | 'released' }>;

/** The last legal hold, or release from a hold, of a recording in an evidence log. */
export type LoggedHold = Pick<HoldChange, 'kind' | 'at'>;

/**
 * Result of the check of a hold:
 * - `signed`: a trusted key signed the hold
 * - `unproven`: the document of the hold has no trusted signature
 * - `missing`: the evidence log contains the hold, but the document of the hold was removed or replaced
 */
export type HoldProof = 'signed' | 'unproven' | 'missing';

/** All legal holds of a store, compared with an evidence log. */
export interface Holds {
  /** Proofs of holds. Map keys: id of the recording. */
  readonly proofs: ReadonlyMap<string, HoldProof>;
  /** Signed statements about holds that are missing in the evidence log. */
  readonly changes: readonly HoldChange[];
  /** Recordings with a document about a hold or its release. */
  readonly listed: ReadonlySet<string>;
}

const HOLDS_FOLDER = '.holds/';
const PURPOSE: StatementPurpose = 'hold';
const MAX_REASON = 1000;
/** Maximum number of documents that are read. Documents beyond this limit count as unproven holds. */
const MAX_READ = 10_000;
/** Maximum number of documents. If a store has more documents, retention removes no recordings. */
const MAX_LISTED = 100_000;
const READ_CONCURRENCY = 8;
/** Maximum number of segments without a trusted signature that one call reads again. */
const MAX_READ_AGAIN = 100;

const STATEMENT = z.strictObject({
  kind: z.enum(['held', 'released']),
  recording: z.string(),
  at: z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  reason: z.string().max(MAX_REASON),
});

type HoldStore = Pick<DocumentStore, 'listDocuments' | 'putDocument' | 'readDocument' | 'replaceDocument'> &
  Pick<RecordingStore, 'list' | 'stat' | 'read'>;

/** Keys that sign a new hold and verify an existing hold. */
export interface HoldSigner {
  readonly key: SigningKey;
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Current time in milliseconds since the epoch. */
  readonly nowMs: number;
}

/**
 * Protects a recording and all parts of its session from removal, or ends that protection. An existing hold stays
 * unchanged.
 *
 * @throws TailcastError `RECORDING_UNKNOWN`, `USAGE`
 */
export async function changeHold(
  store: HoldStore,
  id: string,
  change: Pick<HoldChange, 'kind' | 'reason'>,
  signer: HoldSigner,
): Promise<void> {
  if (change.reason.length > MAX_REASON)
    throw new TailcastError('USAGE', `a reason has at most ${MAX_REASON} characters`);
  const key = parseRecordingId(id);
  if (key === undefined || (await store.stat(key, 'cast')) === undefined)
    throw new TailcastError('RECORDING_UNKNOWN', id);
  const logged = await createLoggedHolds(store, signer.trusted)();
  const changes: HoldChange[] = [];
  for (const part of await partsOf(store, key, signer.trusted)) {
    const recording = recordingId(part);
    const next = await nextStatement(store, recording, logged.get(recording), change, signer);
    if (next !== undefined) changes.push(next);
  }
  if (changes.length === 0) return;
  await logChanges(store, changes, signer);
  for (const { kind, recording, at, reason } of changes) {
    const statement = encodeStatement(PURPOSE, { kind, recording, at, reason }, signer.key);
    await store.replaceDocument(holdName(recording), Buffer.from(statement));
  }
}

/** Writes the signed statements to a new evidence log, to which no further entries are ever added. */
async function logChanges(
  store: HoldStore,
  changes: readonly HoldChange[],
  { key, nowMs }: HoldSigner,
): Promise<void> {
  const log = randomBytes(16).toString('hex');
  const open = { kind: 'open', format: LOG_FORMAT, log, key: key.public.raw } as const;
  const time = new Date(nowMs).toISOString();
  const lines: string[] = [];
  let hash = NO_HASH;
  for (const event of [open, ...changes]) {
    const line = encodeEntry({ n: lines.length, prev: hash, time, event });
    lines.push(line);
    hash = hashLine(line);
  }
  await putIfMissing(store, keyName(key.public.id), Buffer.from(key.public.pem));
  const segment = encodeSegment(lines, { log, n: lines.length - 1, hash }, key);
  await store.putDocument(logSegmentName(log, 0), Buffer.from(segment));
}

/** Returns the recording and the other stored parts of its signed session. */
async function partsOf(
  store: HoldStore,
  key: RecordingKey,
  trusted: HoldSigner['trusted'],
): Promise<readonly RecordingKey[]> {
  const [session] = await readSessions(store, [key], trusted);
  if (session === undefined) return [key];
  // The parts of a session have the same node id. Read the sidecars, because the session marks in the listing are not
  // signed.
  const others = (await store.list())
    .map((stored) => stored.key)
    .filter(({ nodeId, time }) => nodeId === key.nodeId && time !== key.time);
  const sessions = await readSessions(store, others, trusted);
  return [key, ...others.filter((_, at) => sessions[at] === session)];
}

/** Returns the statement for a new hold or release of a recording; undefined if the hold exists already. */
async function nextStatement(
  store: HoldStore,
  recording: string,
  logged: LoggedHold | undefined,
  { kind, reason }: Pick<HoldChange, 'kind' | 'reason'>,
  { trusted, nowMs }: HoldSigner,
): Promise<HoldChange | undefined> {
  const before = await readHold(store, recording, trusted);
  const last = typeof before === 'object' ? before : undefined;
  // Ignore a hold that is older than the last statement about this recording in the evidence log, because an attacker
  // may have restored the hold. Recorders ignore such a hold too.
  if (kind === 'held' && last?.kind === 'held' && last.at >= (logged?.at ?? '')) return undefined;
  // Recorders ignore a statement that is older than the statement in the document or in the evidence log. The new
  // statement must therefore have a later time, even if the clock is behind.
  const earlierMs = [last, logged].flatMap((earlier) =>
    earlier === undefined ? [] : Date.parse(earlier.at) + 1,
  );
  const atMs = Math.max(nowMs, ...earlierMs);
  return { kind, recording, at: new Date(atMs).toISOString(), reason };
}

/** Returns the name of the document about a hold. */
export function holdName(recording: string): string {
  return HOLDS_FOLDER + recording;
}

/**
 * Returns true if the store has a signed hold of the recording that is newer than `logged` (the last statement in the
 * log), or if the document of the hold has no trusted signature. @throws TailcastError `STORE_FAILED`
 */
export async function hasNewHold(
  store: Pick<DocumentStore, 'readDocument'>,
  recording: string,
  logged: LoggedHold | undefined,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<boolean> {
  const found = await readHold(store, recording, trusted);
  return typeof found === 'object'
    ? found.kind === 'held' && found.at > (logged?.at ?? '')
    : found === 'unproven';
}

/** Removes the document of a removed recording. */
export async function forgetHold(store: Pick<DocumentStore, 'removeDocument'>, id: string): Promise<void> {
  await store.removeDocument(holdName(id));
}

/**
 * Reads all holds.
 *
 * @param logged last statement about each recording in the evidence log
 * @throws TailcastError `STORE_FAILED`, also for too many documents
 */
export async function readHolds(
  store: Pick<DocumentStore, 'listDocuments' | 'readDocument'>,
  logged: ReadonlyMap<string, LoggedHold>,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<Holds> {
  const proofs = new Map<string, HoldProof>();
  for (const [recording, { kind }] of logged) if (kind === 'held') proofs.set(recording, 'missing');
  const changes: HoldChange[] = [];
  const names = await listLimited(store, HOLDS_FOLDER, MAX_LISTED);
  if (names === OVERSIZED)
    throw new TailcastError('STORE_FAILED', `there are more than ${MAX_LISTED} documents in ${HOLDS_FOLDER}`);
  const recordings = names.map((name) => name.slice(HOLDS_FOLDER.length));
  await forEachConcurrent(recordings.slice(0, MAX_READ), READ_CONCURRENCY, async (recording) => {
    const found = await readHold(store, recording, trusted);
    const known = logged.get(recording);
    if (found === undefined) return;
    if (found === 'unproven') {
      if (known?.kind !== 'held') proofs.set(recording, 'unproven');
      return;
    }
    // Ignore an earlier statement, because an attacker may have restored it.
    if (known !== undefined && found.at < known.at) return;
    if (known === undefined || found.at > known.at) changes.push(found);
    if (found.kind === 'held') proofs.set(recording, 'signed');
    else proofs.delete(recording);
  });
  for (const recording of recordings.slice(MAX_READ))
    if (!proofs.has(recording)) proofs.set(recording, 'unproven');
  return { proofs, changes, listed: new Set(recordings) };
}

/** Returns the last legal hold, or release from a hold, of each recording, from signed log entries. */
export function holdsInLogs(logs: ReadonlyMap<string, ReadLog>): ReadonlyMap<string, HoldChange> {
  const last = new Map<string, HoldChange>();
  for (const { entries, signed } of logs.values())
    addHolds(
      last,
      [...entries.values()].filter(({ n }) => signed.has(n)),
    );
  return last;
}

/**
 * Returns the last legal hold, or release from a hold, of each recording in the evidence logs. Later calls read only
 * new segments.
 */
export type LoggedHolds = (signal?: AbortSignal) => Promise<ReadonlyMap<string, HoldChange>>;

/**
 * Creates the reader of the holds in the evidence logs of a store.
 *
 * @param trusted public keys of the trusted recorders, with key ids as map keys
 */
export function createLoggedHolds(
  store: DocumentReader,
  trusted: ReadonlyMap<string, PublicKey>,
): LoggedHolds {
  const last = new Map<string, HoldChange>();
  const read = new Set<string>();
  const unsigned = new Set<string>();
  return async (signal) => {
    if (trusted.size === 0) return last;
    const listed = new Set(await store.listDocuments(segmentPrefix()));
    for (const names of [read, unsigned]) for (const name of names) if (!listed.has(name)) names.delete(name);
    const again = [...unsigned].slice(0, MAX_READ_AGAIN);
    const fresh = [...listed].filter((name) => !read.has(name) && !unsigned.has(name));
    await forEachConcurrent([...again, ...fresh], READ_CONCURRENCY, async (name) => {
      signal?.throwIfAborted();
      const entries = await readSignedEntries(store, name, trusted);
      // Move the name to the end of the set, because the first names of the set are read again next.
      unsigned.delete(name);
      if (entries.length === 0) unsigned.add(name);
      else read.add(name);
      addHolds(last, entries);
    });
    return last;
  };
}

/** Replaces the last statement about each recording with a newer statement from the signed entries. */
function addHolds(last: Map<string, HoldChange>, entries: readonly LogEntry[]): void {
  for (const { event } of entries)
    if (event.kind === 'held' || event.kind === 'released')
      if (event.at > (last.get(event.recording)?.at ?? '')) last.set(event.recording, event);
}

async function readHold(
  store: Pick<DocumentStore, 'readDocument'>,
  recording: string,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<HoldChange | 'unproven' | undefined> {
  const found = await readStatementIn(store, holdName(recording), PURPOSE, STATEMENT, trusted);
  return typeof found === 'object' && found.recording !== recording ? 'unproven' : found;
}
