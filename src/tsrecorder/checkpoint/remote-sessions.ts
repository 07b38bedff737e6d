/** Shows the sessions that other recorders with the same bucket have open. */
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
import { listOpenSessions, readSegments, segmentsBytes, type OpenSession } from './segments.ts';

/** Sessions whose beginning is remembered. */
const MAX_REMEMBERED = 2000;
/** The journal's first line is short, and so is most headers. */
const META_BYTES = 65_536;
const decoder = new TextDecoder();

interface Beginning {
  readonly meta: SpoolMeta;
  readonly head: CastHead;
}

/**
 * @param own asks for the name of this recorder: its sessions are known better than from the bucket.
 */
export function createRemoteSessions(
  bucket: Bucket,
  own: () => string,
): () => Promise<readonly RemoteRecording[]> {
  const remembered = new Map<string, Beginning>();

  async function begin(session: OpenSession): Promise<Beginning | undefined> {
    const id = recordingId(session.key);
    const known = remembered.get(id);
    if (known !== undefined) return known;
    const found = await readBeginning(bucket, session);
    if (found === undefined) return undefined;
    const [oldest] = remembered.keys();
    if (remembered.size >= MAX_REMEMBERED && oldest !== undefined) remembered.delete(oldest);
    remembered.set(id, found);
    return found;
  }

  return async () => {
    const sessions = (await listOpenSessions(bucket)).filter(({ recorder }) => recorder !== own());
    const recordings = await Promise.all(
      sessions.map(async (session): Promise<RemoteRecording | undefined> => {
        const beginning = await begin(session).catch(() => undefined);
        if (beginning === undefined) return undefined;
        const part = describePart(beginning.meta);
        return {
          key: session.key,
          sessionMark: sessionMark(session.key.nodeId, part.session),
          describe: () => describe(bucket, session, beginning),
        };
      }),
    );
    return recordings.filter((recording) => recording !== undefined);
  };
}

async function describe(
  bucket: Bucket,
  session: OpenSession,
  { meta, head }: Beginning,
): Promise<DescribedPart> {
  const { key, cast, notes } = session;
  const bytes = segmentsBytes(cast);
  const files: PartFiles = {
    cast: { end: () => bytes, read: (range) => readSegments(bucket, cast, range), live: undefined },
    notes: () => readSegments(bucket, notes, { start: 0, end: segmentsBytes(notes) }),
  };
  const recording = { ...describeHead(key, head), state: 'open', bytes } as const;
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

async function readBeginning(bucket: Bucket, session: OpenSession): Promise<Beginning | undefined> {
  const first = await readLine(bucket, session, 'notes', META_BYTES);
  const parsed = parseJournalLine(first);
  if (parsed?.kind !== 'meta') return undefined;
  const head = parseHead(await readLine(bucket, session, 'cast', parsed.meta.storedHeaderBytes));
  return head === undefined ? undefined : { meta: parsed.meta, head };
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
