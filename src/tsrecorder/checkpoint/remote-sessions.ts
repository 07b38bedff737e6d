/**
 * Lists open sessions of other recorders that use the same bucket. Sessions without a valid signed statement are
 * unverified. Parts of such sessions are never joined with parts of other sessions.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../../bounded-map.ts';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import { MAX_HEADER_LENGTH } from '../../wire/asciicast/header.ts';
import { parseHead, type CastHead } from '../library/cast-head.ts';
import type { PartFiles } from '../library/cast-pieces.ts';
import type { RemoteRecording } from '../library/sessions.ts';
import { describeHead } from '../library/describe-head.ts';
import { describePart } from '../intake/finisher.ts';
import type { DescribedPart } from '../library/join-parts.ts';
import { sessionMark } from '../library/session-part.ts';
import { parseJournalLine, type SpoolMeta } from '../spool/spool-journal.ts';
import type { Bucket } from '../store/bucket.ts';
import { recordingId } from '../store/key.ts';
import { createSignedCheck, MAX_META_BYTES, readCheckpoint, versionOf } from './checkpoint.ts';
import { COPIES_CHANGED, type Distrust } from './prove.ts';
import {
  listOpenSessions,
  readSegments,
  segmentsBytes,
  sessionFolder,
  type OpenSession,
} from './segments.ts';

/** Maximum number of sessions whose start is cached. */
const MAX_REMEMBERED = 20_000;
/**
 * Maximum length of the header line of a session without a signature, in bytes. The limit exists because all header
 * lines stay in memory, and anyone with write access to the bucket can add sessions.
 */
const MAX_UNPROVEN_HEADER = 64 * 1024;
/**
 * Maximum number of new signed statements that one list of sessions reads. Anyone with write access to the bucket can
 * add objects with names of statements, and reading thousands of them would delay the list by minutes.
 */
const MAX_READ = 1000;
/** Maximum number of sessions whose start is read concurrently. */
const READ_CONCURRENCY = 8;
/**
 * Reason why the bytes are untrusted. Listing the sessions does not read the copied bytes, so the bytes are not
 * compared with their signed digests.
 */
const STILL_RUNNING =
  'it is open at another recorder: its bytes in the bucket are compared with their signature when it ends';

interface Beginning {
  /** A text that changes if the start of the session or its signed statement is rewritten. */
  readonly version: string;
  readonly meta: SpoolMeta;
  readonly head: CastHead;
  /** Proven bytes, or the reason why the session is unproven. */
  readonly proven:
    | { readonly castBytes: number; readonly notesBytes: number; readonly bodyBytes: number }
    | Distrust;
}

/**
 * Creates a function that lists the sessions.
 *
 * @param own returns the name of this recorder, whose sessions are excluded
 * @param trusted public keys of the trusted recorders, with key ids as map keys
 * @param distrustOf returns the reason why the session in this folder is unproven, see `takeover.ts`
 */
export function createRemoteSessions(
  bucket: Bucket,
  own: () => string,
  trusted: ReadonlyMap<string, PublicKey>,
  distrustOf: (folder: string) => Distrust | undefined = () => undefined,
): () => Promise<readonly RemoteRecording[]> {
  const remembered = new BoundedMap<Beginning>(MAX_REMEMBERED);
  /**
   * Version and lengths of each session with an unreadable start, so that later listings do not read the start again.
   */
  const unreadable = new BoundedMap<string>(MAX_REMEMBERED);
  const checks = createSignedCheck(bucket, trusted, MAX_READ);

  async function begin(session: OpenSession): Promise<Beginning | undefined> {
    const id = `${session.recorder} ${recordingId(session.key)}`;
    const version = session.proof === undefined ? '' : versionOf(session.proof);
    const known = remembered.get(id);
    if (known?.version === version) return known;
    const lengths = [version, segmentsBytes(session.cast), segmentsBytes(session.notes)].join(' ');
    if (unreadable.get(id) === lengths) return undefined;
    const found = await readBeginning(bucket, session, trusted);
    if (found === undefined) {
      unreadable.set(id, lengths);
      return undefined;
    }
    const beginning = { ...found, version };
    remembered.set(id, beginning);
    return beginning;
  }

  return async () => {
    const listed = await listOpenSessions(bucket, checks());
    const sessions = listed.filter(({ recorder }) => recorder !== own());
    const begun: (Beginning | undefined)[] = [];
    await forEachConcurrent(sessions, READ_CONCURRENCY, async (session, at) => {
      begun[at] = await begin(session).catch(() => undefined);
    });
    const proven = new Map<string, RemoteRecording>();
    const unverified = new Map<string, RemoteRecording>();
    for (const [at, session] of sessions.entries()) {
      const read = begun[at];
      if (read === undefined) continue;
      const distrust = distrustOf(sessionFolder(session.recorder, session.key));
      const beginning = distrust === undefined ? read : { ...read, proven: distrust };
      const isProven = 'castBytes' in beginning.proven;
      (isProven ? proven : unverified).set(recordingId(session.key), {
        key: session.key,
        // Parts with the same session mark are joined. Only a proven session gets its session mark, because a forged
        // part must not join a genuine session.
        sessionMark: isProven
          ? sessionMark(session.key.nodeId, describePart(beginning.meta).session)
          : undefined,
        describe: async () => describe(bucket, session, beginning),
      });
    }
    return [...new Map([...unverified, ...proven]).values()];
  };
}

function describe(bucket: Bucket, session: OpenSession, { meta, head, proven }: Beginning): DescribedPart {
  const { key, cast, notes } = session;
  const isProven = 'castBytes' in proven;
  const bytes = isProven ? proven.castBytes : segmentsBytes(cast);
  const notesBytes = isProven ? proven.notesBytes : segmentsBytes(notes);
  const files: PartFiles = {
    cast: { end: () => bytes, read: (range) => readSegments(bucket, cast, range), live: undefined },
    notes: () => readSegments(bucket, notes, { start: 0, end: notesBytes }),
  };
  const trust = isProven
    ? ({ trust: 'unverified', trustReason: STILL_RUNNING } as const)
    : { trust: proven.trust, trustReason: proven.reason };
  const recording = { ...describeHead(key, head), state: 'running', bytes, ...trust } as const;
  const { resizeOrder } = head;
  const pieces = [{ ...files.cast, start: 0 }];
  return {
    entry: { recording, key, resizeOrder, pieces, live: undefined, version: undefined },
    part: describePart(meta),
    isPlaceProven: isProven,
    files,
    // An unproven session is never joined with other parts, so this value is not compared with the start of a next
    // part.
    bodyEnd: isProven ? proven.bodyBytes : bytes,
    gapCount: 0,
  };
}

async function readBeginning(
  bucket: Bucket,
  session: OpenSession,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<Omit<Beginning, 'version'> | undefined> {
  const first = await readLine(bucket, session, 'notes', MAX_META_BYTES);
  const parsed = parseJournalLine(first);
  if (parsed?.kind !== 'meta') return undefined;
  const { meta } = parsed;
  const read = await readCheckpoint(bucket, session, trusted);
  const maxBytes = 'problem' in read ? MAX_UNPROVEN_HEADER : MAX_HEADER_LENGTH;
  const header = await readLine(bucket, session, 'cast', Math.min(meta.storedHeaderBytes, maxBytes));
  const head = parseHead(header);
  if (head === undefined) return undefined;
  if ('problem' in read) {
    const distrust: Distrust = { trust: read.isForged ? 'failed' : 'unverified', reason: read.problem };
    return { meta, head, proven: distrust };
  }
  const { cast, notes, bodyBytes } = read.value;
  if (hash('sha256', `${header}\n`) !== read.value.header || hash('sha256', `${first}\n`) !== read.value.meta)
    return { meta, head, proven: { trust: 'failed', reason: COPIES_CHANGED } };
  return { meta, head, proven: { castBytes: cast.bytes, notesBytes: notes.bytes, bodyBytes } };
}

async function readLine(
  bucket: Bucket,
  session: OpenSession,
  kind: 'cast' | 'notes',
  maxBytes: number,
): Promise<string> {
  const content = await Array.fromAsync(readSegments(bucket, session[kind], { start: 0, end: maxBytes }));
  const [line = ''] = Buffer.concat(content).toString().split('\n');
  return line;
}
