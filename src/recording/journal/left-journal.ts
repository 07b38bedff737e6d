/**
 * Reads the undelivered tail of a recording from the journal of a finished upload or of a stopped gateway.
 */
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { MAX_LINE_BYTES_PER_FRAME_BYTE } from '../../wire/recorder-api/upload-frame.ts';
import { Preamble } from '../preamble.ts';
import type { UploadRest } from '../late-end.ts';
import { JournalError, readJournal, type JournalFile, type JournalHead } from './journal-codec.ts';
import type { JournalKey } from './journal-key.ts';
import { JOURNAL_SUFFIX } from './session-journal.ts';

export interface LeftContent {
  readonly head: JournalHead;
  readonly rest: UploadRest;
  /** Segment files that are damaged or come after a missing segment. */
  readonly damaged: readonly { readonly path: string; readonly reason: string }[];
}

/** Returns the name of the journal to which a segment file belongs. */
export function journalNameOf(path: string): string {
  return basename(path, JOURNAL_SUFFIX).replace(/\.\d+$/, '');
}

/**
 * Reads the segments of one journal.
 * @param paths segment files, in order
 * @returns undefined if the journal is empty
 * @throws JournalError if no segment is readable, or a system error
 */
export async function readLeft(paths: readonly string[], key: JournalKey): Promise<LeftContent | undefined> {
  const files: { readonly path: string; readonly file: JournalFile }[] = [];
  const damaged: { readonly path: string; readonly reason: string }[] = [];
  let worst: JournalError | undefined;
  for (const path of paths) {
    try {
      const file = readJournal(await readFile(path), key);
      files.push({ path, file });
      const reason = damageOf(file);
      if (reason !== undefined) damaged.push({ path, reason });
    } catch (error) {
      if (!(error instanceof JournalError)) throw error;
      if (error.problem === 'empty') continue;
      worst = error;
      damaged.push({ path, reason: error.message });
    }
  }
  const [first] = files;
  if (first === undefined) {
    if (worst !== undefined) throw worst;
    return undefined;
  }
  const { acknowledged, acknowledgedLines } = files
    .map(({ file }) => file)
    .reduce((best, file) => (file.acknowledged > best.acknowledged ? file : best));
  const part = Math.max(...files.map(({ file }) => file.part));
  const pieces: Uint8Array[] = [];
  let start = acknowledged;
  let end: number | undefined;
  for (const { path, file } of files) {
    for (const { offset, bytes } of file.lines) {
      if (offset + bytes.length <= acknowledged) continue;
      if (end === undefined) start = Math.max(offset, acknowledged);
      else if (offset !== end) {
        damaged.push({ path, reason: `what was written before its byte ${offset} is missing` });
        break;
      }
      pieces.push(bytes.subarray(Math.max(0, acknowledged - offset)));
      end = offset + bytes.length;
    }
  }
  const rest = {
    bytes: Buffer.concat(pieces),
    offset: start,
    lineBytes: acknowledgedLines + mostLines(start - acknowledged),
    preamble: preambleOf(first.file),
    part,
    resumable: true,
  };
  return { head: first.file.head, rest, damaged };
}

/**
 * Returns the reason why a file counts as damaged, or undefined. If a file overwrites an older file, a crash may cut
 * its records at any byte; such a cut does not count as damage.
 */
function damageOf({ ending, over }: JournalFile): string | undefined {
  if (ending === 'damaged') return 'a record in it is damaged';
  return ending === 'cut' && !over ? 'a record in it is not complete' : undefined;
}

/**
 * Returns the maximum number of bytes of asciicast lines that missing frames may correspond to. The exact number is
 * unknown. With the maximum, the recorder may see a gap but never stores a byte twice.
 */
function mostLines(frameBytes: number): number {
  return frameBytes * MAX_LINE_BYTES_PER_FRAME_BYTE;
}

function preambleOf({ preamble: known, lines }: JournalFile): Preamble {
  const preamble = new Preamble();
  if (lines[0]?.offset !== 0) {
    preamble.lines(known);
    return preamble;
  }
  let end = 0;
  for (const { offset, bytes } of lines) {
    if (offset !== end) break;
    preamble.push(bytes);
    end += bytes.length;
  }
  return preamble;
}
