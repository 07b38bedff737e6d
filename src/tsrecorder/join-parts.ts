/**
 * Makes one recording of the parts of a session: see `session-part.ts`. Each byte of the session is taken from the first
 * part that has it, so that nothing is shown twice; what no part has is said.
 */
import type { CastPiece, PartFiles } from './cast-pieces.ts';
import type { CatalogEntry } from './catalog.ts';
import { readLines } from './line-reader.ts';
import type { Recording } from './recording.ts';
import type { SessionPart } from './session-part.ts';
import { parseJournalLine } from './spool-journal.ts';

/** One part, described by itself. */
export interface DescribedPart {
  readonly entry: CatalogEntry;
  readonly part: SessionPart;
  readonly files: PartFiles;
  /** Byte of the session up to which the part reaches. */
  readonly bodyEnd: number;
  /** Output that the gateway says is missing, places. */
  readonly gapCount: number;
}

/**
 * @param parts of one session, at least one, in any order.
 * @param first whose id and time the recording has.
 */
export async function joinParts(
  parts: readonly [DescribedPart, ...DescribedPart[]],
  first: CatalogEntry,
): Promise<CatalogEntry> {
  const ordered = parts.toSorted(
    (left, right) => left.part.offset - right.part.offset || left.part.number - right.part.number,
  );
  const pieces: CastPiece[] = [];
  let reached = 0;
  let missingBytes = 0;
  let last = parts[0];
  let earlierGaps = 0;
  for (const described of ordered) {
    const { part, files, bodyEnd } = described;
    const isShadowed = bodyEnd <= reached && files.cast.live?.isOpen() !== true;
    if (isShadowed && pieces.length > 0) continue;
    missingBytes += Math.max(0, part.offset - reached);
    const start = pieces.length === 0 ? 0 : await castOffsetOf(described, reached);
    pieces.push({ ...files.cast, start });
    if (pieces.length > 1) earlierGaps += last.gapCount;
    reached = Math.max(reached, bodyEnd);
    last = described;
  }
  const lengths = ordered.map(({ entry }) => entry.version);
  return {
    recording: joinRecordings(first.recording, last.entry.recording, pieces, { missingBytes, earlierGaps }),
    key: first.key,
    resizeOrder: first.resizeOrder,
    pieces,
    live: last.entry.live,
    version: lengths.includes(undefined) ? undefined : lengths.join('-'),
  };
}

function joinRecordings(
  first: Recording,
  last: Recording,
  pieces: readonly CastPiece[],
  { missingBytes, earlierGaps }: { readonly missingBytes: number; readonly earlierGaps: number },
): Recording {
  const { durationSeconds: _duration, exitCode: _exitCode, problem: _problem, ...about } = first;
  const { state, durationSeconds, exitCode } = last;
  const problems = [
    ...(missingBytes > 0 ? [`${missingBytes} bytes of the upload are with another recorder, or lost`] : []),
    ...(earlierGaps > 0 ? ['output is missing before the session changed its recorder'] : []),
    ...(last.problem === undefined ? [] : [last.problem]),
  ];
  return {
    ...about,
    state: state === 'closed' && missingBytes > 0 ? 'interrupted' : state,
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    bytes: pieces.reduce((sum, piece) => sum + Math.max(0, piece.end() - piece.start), 0),
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(problems.length === 0 ? {} : { problem: problems.join('; ') }),
  };
}

const decoder = new TextDecoder();

/**
 * Where in a part's cast the byte `bodyOffset` of its session stands. Both are between two lines: only whole lines are
 * acknowledged, and only these are kept.
 */
async function castOffsetOf({ part, files }: DescribedPart, bodyOffset: number): Promise<number> {
  if (bodyOffset <= part.headerEnd) return part.headerBytes;
  let noteBytes = 0;
  const castOffset = (): number => part.headerBytes + bodyOffset - part.headerEnd - noteBytes;
  if (files.notes === undefined) return castOffset();
  for await (const lines of readLines(files.notes())) {
    for (const line of lines) {
      const parsed = parseJournalLine(decoder.decode(line));
      if (parsed?.kind !== 'note') continue;
      // where the note begins in the session: if that is not before the offset, nor is any later one
      if (parsed.note.at - part.headerBytes + part.headerEnd + noteBytes >= bodyOffset) return castOffset();
      noteBytes += parsed.note.size;
    }
  }
  return castOffset();
}
