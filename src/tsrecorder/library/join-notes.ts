/**
 * Makes one journal of those of a session's parts, as if the session had been one upload: each note stands once, at its
 * offset in the joined cast.
 */
import { pieceBytes, type CastPiece, type PartFiles } from './cast-pieces.ts';
import { readLines } from '../../wire/lines.ts';
import type { SessionPart } from './session-part.ts';
import { encodeEnd, moveNote, parseJournalLine, type JournalLine } from '../spool/spool-journal.ts';

/** What a joined recording has of one part. */
export interface JoinedPart {
  readonly part: SessionPart;
  readonly files: Pick<PartFiles, 'notes'>;
  readonly cast: CastPiece;
  /** Byte of the session from which on the part is used. */
  readonly from: number;
}

/** A line of a part's journal; `position` is the byte of the session at which a note began. */
export interface PlacedLine {
  readonly line: string;
  readonly parsed: JournalLine | undefined;
  readonly position: number;
}

const decoder = new TextDecoder();

/** The journal of one part, in batches as they are read. */
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

/** @param parts in the order of their bytes; what is joined does not grow any more. */
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
          // what a continuation repeats is with the part that has the beginning
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
