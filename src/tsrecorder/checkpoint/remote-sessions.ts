/**
 * Shows the sessions that other recorders with the same bucket have open. A session without a signed statement is shown as
 * unverified, and is never joined with another one.
 */
import { sha256 } from '../evidence/lost-sessions.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import { MAX_HEADER_LENGTH } from '../../wire/asciicast/header.ts';
import { parseHead, type CastHead } from '../library/cast-head.ts';
import type { PartFiles } from '../library/cast-pieces.ts';
import type { RemoteRecording } from '../library/candidates.ts';
import { describeHead } from '../library/describe-head.ts';
import { describePart } from '../intake/finisher.ts';
import type { DescribedPart } from '../library/join-parts.ts';
import { readLines } from '../../wire/lines.ts';
import { sessionMark } from '../library/session-part.ts';
import { parseJournalLine, type SpoolMeta } from '../spool/spool-journal.ts';
import type { Bucket } from '../store/bucket.ts';
import { recordingId } from '../store/key.ts';
import { MAX_META_BYTES, readCheckpoint } from './checkpoint.ts';
import { COPIES_CHANGED, type Distrust } from './prove.ts';
import {
  listOpenSessions,
  readSegments,
  segmentsBytes,
  sessionFolder,
  type OpenSession,
} from './segments.ts';

/** Sessions whose beginning is remembered. */
const MAX_REMEMBERED = 2000;
/** Maximum number of unverified sessions that are listed. */
const MAX_UNVERIFIED = 1000;
const decoder = new TextDecoder();

interface Beginning {
  /** Changes when the beginning or the statement was written again. */
  readonly version: string;
  readonly meta: SpoolMeta;
  readonly head: CastHead;
  /** The bytes that the statement covers; the reason if there is none that counts. */
  readonly proven: { readonly castBytes: number; readonly notesBytes: number } | Distrust;
}

/**
 * @param own asks for the name of this recorder: its sessions are known better than from the bucket.
 * @param trusted the keys of the recorders that count, by id
 * @param distrustOf what a look at all bytes of a session has found, by its folder: see `takeover.ts`
 */
export function createRemoteSessions(
  bucket: Bucket,
  own: () => string,
  trusted: ReadonlyMap<string, PublicKey>,
  distrustOf: (folder: string) => Distrust | undefined = () => undefined,
): () => Promise<readonly RemoteRecording[]> {
  const remembered = new Map<string, Beginning>();

  async function begin(session: OpenSession): Promise<Beginning | undefined> {
    const id = `${session.recorder} ${recordingId(session.key)}`;
    const version = `${session.proof?.modifiedAtMs} ${session.proof?.bytes}`;
    const known = remembered.get(id);
    if (known?.version === version) return known;
    const found = await readBeginning(bucket, session, trusted);
    if (found === undefined) return undefined;
    remembered.delete(id);
    const [oldest] = remembered.keys();
    if (remembered.size >= MAX_REMEMBERED && oldest !== undefined) remembered.delete(oldest);
    const beginning = { ...found, version };
    remembered.set(id, beginning);
    return beginning;
  }

  return async () => {
    const sessions = (await listOpenSessions(bucket)).filter(({ recorder }) => recorder !== own());
    const begun = await Promise.all(
      sessions.map(async (session) => ({ session, beginning: await begin(session).catch(() => undefined) })),
    );
    const proven = new Map<string, RemoteRecording>();
    const unverified = new Map<string, RemoteRecording>();
    for (const { session, beginning: read } of begun) {
      if (read === undefined) continue;
      const distrust = distrustOf(sessionFolder(session.recorder, session.key));
      const beginning = distrust === undefined ? read : { ...read, proven: distrust };
      const isProven = 'castBytes' in beginning.proven;
      if (!isProven && unverified.size >= MAX_UNVERIFIED) continue;
      (isProven ? proven : unverified).set(recordingId(session.key), {
        key: session.key,
        // parts are joined by their marks: a forged part must not become one of a genuine session
        sessionMark: isProven
          ? sessionMark(session.key.nodeId, describePart(beginning.meta).session)
          : undefined,
        describe: () => describe(bucket, session, beginning),
      });
    }
    return [...new Map([...unverified, ...proven]).values()];
  };
}

async function describe(
  bucket: Bucket,
  session: OpenSession,
  { meta, head, proven }: Beginning,
): Promise<DescribedPart> {
  const { key, cast, notes } = session;
  const isProven = 'castBytes' in proven;
  const bytes = isProven ? proven.castBytes : segmentsBytes(cast);
  const notesBytes = isProven ? proven.notesBytes : segmentsBytes(notes);
  const files: PartFiles = {
    cast: { end: () => bytes, read: (range) => readSegments(bucket, cast, range), live: undefined },
    notes: () => readSegments(bucket, notes, { start: 0, end: notesBytes }),
  };
  const trust = isProven ? {} : { trust: proven.trust, trustReason: proven.reason };
  const recording = { ...describeHead(key, head), state: 'running', bytes, ...trust } as const;
  const { resizeOrder } = head;
  const pieces = [{ ...files.cast, start: 0 }];
  return {
    entry: { recording, key, resizeOrder, pieces, live: undefined, version: undefined },
    part: describePart(meta),
    files,
    bodyEnd: bytes - meta.storedHeaderBytes + meta.uploadedHeaderBytes + (await noteBytes(files, bytes)),
    gapCount: 0,
  };
}

/** Body bytes of the annotations that belong to the first `castBytes`. */
async function noteBytes({ notes }: PartFiles, castBytes: number): Promise<number> {
  let sum = 0;
  if (notes === undefined) return sum;
  for await (const lines of readLines(notes())) {
    for (const line of lines) {
      const parsed = parseJournalLine(decoder.decode(line));
      if (parsed?.kind === 'note' && parsed.note.at <= castBytes) sum += parsed.note.size;
    }
  }
  return sum;
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
  const header = await readLine(bucket, session, 'cast', Math.min(meta.storedHeaderBytes, MAX_HEADER_LENGTH));
  const head = parseHead(header);
  if (head === undefined) return undefined;
  const read = await readCheckpoint(bucket, session, trusted);
  if ('problem' in read) {
    const distrust: Distrust = { trust: read.isForged ? 'failed' : 'unverified', reason: read.problem };
    return { meta, head, proven: distrust };
  }
  const { cast, notes } = read.value;
  if (sha256(`${header}\n`) !== read.value.header || sha256(`${first}\n`) !== read.value.meta)
    return { meta, head, proven: { trust: 'failed', reason: COPIES_CHANGED } };
  return { meta, head, proven: { castBytes: cast.bytes, notesBytes: notes.bytes } };
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
