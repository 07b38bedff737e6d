/**
 * Legal holds: recordings that retention keeps, whatever the policy says.
 *
 * A hold is a document `.holds/<recording>` with a signed statement; a release replaces it with a later one. Each recorder writes the
 * statements that it reads into its log, and keeps the last one of each recording in its journal. So somebody with write access to the
 * store can neither end a hold nor restore an earlier statement: a hold ends with a release that a trusted key signed, and with nothing else.
 * A document that no trusted key signed holds its recording too, because a removal cannot be undone; it is reported as unproven.
 */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { DocumentStore } from '../store/document-store.ts';
import { parseRecordingId, recordingId } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';
import { encodeStatement, MAX_STATEMENT_BYTES, readStatement, type StatementPurpose } from './statement.ts';
import type { ReadLog } from './verify-logs.ts';

/** A hold or its release, as the log has it. */
export interface HoldChange {
  readonly kind: 'held' | 'released';
  readonly recording: string;
  /** When the statement was signed, as `Date.toISOString` writes it. Of two statements, the later one counts. */
  readonly at: string;
  readonly reason: string;
}

/** The last statement about a recording that a log has. */
export type LoggedHold = Pick<HoldChange, 'kind' | 'at'>;

/**
 * What proves a hold. `signed`: a statement of a trusted key. `unproven`: a document that no trusted key signed. `missing`: the log has
 * the hold, and the document is gone or was replaced.
 */
export type HoldProof = 'signed' | 'unproven' | 'missing';

export interface Holds {
  /** By recording. */
  readonly proofs: ReadonlyMap<string, HoldProof>;
  /** Statements that the log does not have. */
  readonly changes: readonly HoldChange[];
  /** Recordings with a document about a hold or its release. */
  readonly listed: ReadonlySet<string>;
}

const HOLDS_FOLDER = '.holds/';
const PURPOSE: StatementPurpose = 'hold';
const MAX_REASON = 1000;
/** Maximum number of documents that are read; more count as unproven holds. */
const MAX_READ = 10_000;
const READ_CONCURRENCY = 8;

const STATEMENT = z.strictObject({
  kind: z.enum(['held', 'released']),
  recording: z.string(),
  at: z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  reason: z.string().max(MAX_REASON),
});

type HoldStore = Pick<DocumentStore, 'readDocument' | 'replaceDocument'> & Pick<RecordingStore, 'stat'>;

/** Who signs a hold, and which keys may have signed the one that is there. */
export interface HoldSigner {
  readonly key: SigningKey;
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
}

/** Keeps a recording from being removed. A hold that is there stays. @throws TailcastError `RECORDING_UNKNOWN`, `USAGE` */
export function holdRecording(
  store: HoldStore,
  id: string,
  reason: string,
  signer: HoldSigner,
): Promise<void> {
  return changeHold(store, id, { kind: 'held', reason }, signer);
}

/** Ends a hold. @throws TailcastError `RECORDING_UNKNOWN`, `USAGE` */
export function releaseRecording(
  store: HoldStore,
  id: string,
  reason: string,
  signer: HoldSigner,
): Promise<void> {
  return changeHold(store, id, { kind: 'released', reason }, signer);
}

async function changeHold(
  store: HoldStore,
  id: string,
  { kind, reason }: Pick<HoldChange, 'kind' | 'reason'>,
  { key, trusted, nowMs }: HoldSigner,
): Promise<void> {
  if (reason.length > MAX_REASON)
    throw new TailcastError('USAGE', `a reason has at most ${MAX_REASON} characters`);
  const parsed = parseRecordingId(id);
  if (parsed === undefined || (await store.stat(parsed, 'cast')) === undefined)
    throw new TailcastError('RECORDING_UNKNOWN', id);
  const recording = recordingId(parsed);
  const before = await readHold(store, recording, trusted);
  const last = typeof before === 'object' ? before : undefined;
  if (kind === 'held' && last?.kind === 'held') return;
  // a clock that is behind must not make the statement older than the one that it replaces
  const atMs = Math.max(nowMs, last === undefined ? 0 : Date.parse(last.at) + 1);
  const statement = { kind, recording, at: new Date(atMs).toISOString(), reason };
  await store.replaceDocument(
    HOLDS_FOLDER + recording,
    Buffer.from(encodeStatement(PURPOSE, statement, key)),
  );
}

/** Forgets what is written about a recording that is gone. */
export async function forgetHold(store: Pick<DocumentStore, 'removeDocument'>, id: string): Promise<void> {
  await store.removeDocument(HOLDS_FOLDER + id);
}

/**
 * Reads all holds.
 *
 * @param logged the last statement about each recording that the log has
 * @throws TailcastError `STORE_FAILED`
 */
export async function readHolds(
  store: Pick<DocumentStore, 'listDocuments' | 'readDocument'>,
  logged: ReadonlyMap<string, LoggedHold>,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<Holds> {
  const proofs = new Map<string, HoldProof>();
  for (const [recording, { kind }] of logged) if (kind === 'held') proofs.set(recording, 'missing');
  const changes: HoldChange[] = [];
  const recordings = (await store.listDocuments(HOLDS_FOLDER)).map((name) => name.slice(HOLDS_FOLDER.length));
  const left = recordings.slice(0, MAX_READ).values();
  const readNext = async (): Promise<void> => {
    for (const recording of left) {
      const found = await readHold(store, recording, trusted);
      const known = logged.get(recording);
      if (found === undefined) continue;
      if (found === 'unproven') {
        if (known?.kind !== 'held') proofs.set(recording, 'unproven');
        continue;
      }
      // somebody has restored an earlier statement
      if (known !== undefined && found.at < known.at) continue;
      if (known === undefined || found.at > known.at) changes.push(found);
      if (found.kind === 'held') proofs.set(recording, 'signed');
      else proofs.delete(recording);
    }
  };
  await Promise.all(Array.from({ length: READ_CONCURRENCY }, readNext));
  for (const recording of recordings.slice(MAX_READ))
    if (!proofs.has(recording)) proofs.set(recording, 'unproven');
  return { proofs, changes, listed: new Set(recordings) };
}

/** The last statement about each recording in the signed entries of logs. */
export function holdsInLogs(logs: ReadonlyMap<string, ReadLog>): ReadonlyMap<string, HoldChange> {
  const last = new Map<string, HoldChange>();
  for (const { entries, signed } of logs.values())
    for (const { n, event } of entries.values())
      if (signed.has(n) && (event.kind === 'held' || event.kind === 'released'))
        if (event.at > (last.get(event.recording)?.at ?? '')) last.set(event.recording, event);
  return last;
}

async function readHold(
  store: Pick<DocumentStore, 'readDocument'>,
  recording: string,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<HoldChange | 'unproven' | undefined> {
  const content = await store.readDocument(HOLDS_FOLDER + recording, MAX_STATEMENT_BYTES);
  if (content === undefined) return undefined;
  const read = readStatement(PURPOSE, Buffer.from(content).toString(), STATEMENT, trusted);
  return 'problem' in read || read.value.recording !== recording ? 'unproven' : read.value;
}
