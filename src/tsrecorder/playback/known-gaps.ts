/** Finds missing output of a recording in its notes. */
import { parseAnnotation } from '../../wire/recorder-api/annotation.ts';
import { WireError } from '../../wire/wire-error.ts';
import { readLines } from '../../wire/lines.ts';
import { gapText } from '../library/gap-text.ts';
import { parseJournalLine } from '../spool/spool-journal.ts';

/** Missing output and its offset in the cast. */
export interface KnownGap {
  readonly offset: number;
  readonly text: string;
}

const MAX_GAPS = 1000;
const decoder = new TextDecoder();

/** Reads the gaps. @param notes journal of a finished recording */
export async function readGaps(notes: AsyncIterable<Uint8Array>): Promise<readonly KnownGap[]> {
  const gaps: KnownGap[] = [];
  for await (const lines of readLines(notes)) {
    for (const bytes of lines) {
      // Skip long notes: they contain exact bytes of output, not gaps.
      const isShort = bytes.length < 4096;
      const gap = isShort ? gapOf(decoder.decode(bytes)) : undefined;
      if (gap !== undefined) gaps.push(gap);
      if (gaps.length >= MAX_GAPS) return gaps;
    }
  }
  return gaps;
}

function gapOf(line: string): KnownGap | undefined {
  if (!line.includes('"gap"')) return undefined;
  const parsed = parseJournalLine(line);
  if (parsed?.kind !== 'note' || parsed.note.text === undefined) return undefined;
  try {
    const annotation = parseAnnotation(parsed.note.text);
    if (annotation.kind !== 'gap') return undefined;
    return { offset: parsed.note.at, text: gapText(annotation) };
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}
