/**
 * Joins the notes of all parts of a session. The result looks like the journal of a single upload: each note occurs
 * once, at its offset in the joined cast.
 */
import { pieceBytes, type CastPiece, type PartFiles } from './cast-pieces.ts';
import { readLines } from '../../wire/lines.ts';
import type { SessionPart } from './session-part.ts';
import { encodeEnd, moveNote, parseJournalLine, type JournalLine } from '../spool/spool-journal.ts';

/** The bytes that one part contributes to a joined recording. */
export interface JoinedPart {
  readonly part: SessionPart;
  readonly files: Pick<PartFiles, 'notes'>;
  readonly cast: CastPiece;
  /** First byte of the session that comes from this part. */
  readonly from: number;
}

/** A line of a part's journal. `position` is the offset of the note in the session, in bytes. */
export interface PlacedLine {
  readonly line: string;
  readonly parsed: JournalLine | undefined;
  readonly position: number;
}

const decoder = new TextDecoder();

/** Reads the journal of one part in batches. */
export async function* readPlaced({
  part,
  files: { notes },
}: Pick<JoinedPart, 'part' | 'files'>): AsyncGenerator<readonly PlacedLine[]> {
  if (notes === undefined) return;
  let noteBytes = 0;
  const place = (bytes: Uint8Array): PlacedLine => {
    const line = decoder.decode(bytes);
    const parsed = parseJournalLine(line);
    if (parsed?.kind !== 'note') return { line, parsed, position: 0 };
    const position = parsed.note.at - part.headerBytes + part.headerEnd + noteBytes;
    noteBytes += parsed.note.size;
    return { line, parsed, position };
  };
  for await (const lines of readLines(notes())) yield lines.map(place);
}

/**
 * Joins the journals of finished parts.
 *
 * @param parts in the order of their bytes
 */
export async function* joinNotes(parts: readonly JoinedPart[]): AsyncGenerator<Uint8Array> {
  let castBytes = 0;
  for (const [index, joined] of parts.entries()) {
    const { cast, from } = joined;
    const before = castBytes;
    castBytes += pieceBytes(cast);
    const keep = ({ line, parsed, position }: PlacedLine): string => {
      switch (parsed?.kind) {
        case 'meta':
          return index === 0 ? `${line}\n` : '';
        case 'note':
          // Skip notes that a continuation repeats, because an earlier part contains the original.
          if (index > 0 && (parsed.note.size === 0 || position < from)) return '';
          return `${moveNote(line, parsed.note.at - cast.start + before)}\n`;
        case 'end':
          return index === parts.length - 1 ? encodeEnd(castBytes) : '';
        case undefined:
          return '';
      }
    };
    for await (const lines of readPlaced(joined)) {
      const kept = lines.map(keep).join('');
      if (kept !== '') yield Buffer.from(kept);
    }
  }
}
