/** Finds missing output of a recording in its notes. */
import { parseAnnotation } from '../../wire/recorder-api/annotation.ts';
import { readLines } from '../../wire/lines.ts';
import type { KnownPlace } from '../../bundle/build-index.ts';
import { gapText } from '../library/gap-text.ts';
import { parseJournalLine } from '../spool/spool-journal.ts';

const MAX_GAPS = 1000;
const decoder = new TextDecoder();

/** Reads the gaps. @param notes journal of a finished recording */
export async function readGaps(notes: AsyncIterable<Uint8Array>): Promise<readonly KnownPlace[]> {
  const gaps: KnownPlace[] = [];
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

function gapOf(line: string): KnownPlace | undefined {
  if (!line.includes('"gap"')) return undefined;
  const parsed = parseJournalLine(line);
  if (parsed?.kind !== 'note' || parsed.note.text === undefined) return undefined;
  const annotation = parseAnnotation(parsed.note.text);
  return annotation?.kind === 'gap'
    ? { offset: parsed.note.at, kind: 'gap', text: gapText(annotation) }
    : undefined;
}
