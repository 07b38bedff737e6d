/**
 * The spool: the append-only files of one upload that is not in the store yet. `<id>.cast` is the recording, and
 * `<id>.notes` is its journal. Appending only copies bytes to memory. `commit` writes these bytes to the files and
 * syncs the files.
 */
import { createReadStream } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ifPresent, TailcastError } from '../../errors.ts';
import { AppendFile } from '../files/append-file.ts';
import { removeFile } from '../files/durable-files.ts';
import { readLines } from '../../wire/lines.ts';
import { adoptionPath } from './adoption-file.ts';
import { PendingBytes } from './pending-bytes.ts';
import { parseJournalLine, type JournalNote, type SpoolMeta } from './spool-journal.ts';
import { readPart } from '../files/file-range.ts';
import { recordingId, parseRecordingId, type RecordingKey } from '../store/key.ts';

/** The two files of an upload. */
export interface SpoolPaths {
  readonly cast: string;
  readonly notes: string;
}

/** The files of a running upload. */
export type SpoolFile = ReturnType<typeof createSpoolFile>;

/** A position between two lines of an upload: the lengths of the spool files, and the offset in the session. */
export interface SpoolPosition {
  readonly castBytes: number;
  readonly notesBytes: number;
  readonly bodyBytes: number;
}

/** Content of a spool after a crash, up to its last complete line. The files of the spool may be longer. */
export interface RecoveredSpool extends SpoolPosition {
  readonly meta: SpoolMeta;
  readonly paths: SpoolPaths;
  /** True if the journal marks the upload as complete. */
  readonly ended: boolean;
}

/** Returns the paths of the files of an upload. */
export function spoolPaths(directory: string, key: RecordingKey): SpoolPaths {
  const base = join(directory, recordingId(key));
  return { cast: `${base}.cast`, notes: `${base}.notes` };
}

/**
 * Creates a spool or, if `append` is set, continues an existing spool. `syncEntries` makes the entries of the spool
 * directory durable.
 */
export function createSpoolFile(
  paths: SpoolPaths,
  options: {
    /** Lengths of existing files, in bytes. */
    readonly castBytes: number;
    readonly notesBytes: number;
    readonly append: boolean;
    readonly syncEntries: () => Promise<void>;
    /** Called with the duration of each fsync, in milliseconds. */
    readonly onSync: (durationMs: number) => void;
  },
) {
  let notes: AppendFile | undefined;
  let cast: AppendFile | undefined;
  let pendingCast = new PendingBytes();
  let pendingNotes = new PendingBytes();
  let pendingBytes = 0;
  let { castBytes, notesBytes } = options;

  async function openFiles(): Promise<readonly [AppendFile, AppendFile]> {
    const { append } = options;
    // NOTE: create the journal first, because without it the user of the recording is unknown.
    notes ??= await AppendFile.open(paths.notes, append ? options.notesBytes : 'new');
    cast ??= await AppendFile.open(paths.cast, append ? options.castBytes : 'new');
    await options.syncEntries();
    return [notes, cast];
  }

  async function write(file: AppendFile, taken: PendingBytes): Promise<void> {
    const parts = taken.parts();
    if (parts.length === 0) return;
    await file.append(parts, options.onSync);
    taken.release();
  }

  return {
    paths,
    /** Appends a copy of the bytes. */
    appendCast(bytes: Uint8Array): void {
      pendingCast.append(bytes);
      castBytes += bytes.length;
      pendingBytes += bytes.length;
    },
    /** Appends a journal line in pieces. Bytes are copied. */
    appendNote(...line: readonly (string | Uint8Array)[]): void {
      for (const piece of line) {
        const bytes = typeof piece === 'string' ? Buffer.from(piece) : piece;
        pendingNotes.append(bytes);
        notesBytes += bytes.length;
        pendingBytes += bytes.length;
      }
    },
    /** Number of appended bytes of the recording and of the journal, durable or not. */
    get castBytes(): number {
      return castBytes;
    },
    get notesBytes(): number {
      return notesBytes;
    },
    /** Number of appended bytes that are not durable. */
    get pendingBytes(): number {
      return pendingBytes;
    },
    /** Makes all appended bytes durable. The first call creates the files. Calls must not overlap. */
    async commit(): Promise<void> {
      const takenCast = pendingCast;
      const takenNotes = pendingNotes;
      const bytes = pendingBytes;
      pendingCast = new PendingBytes();
      pendingNotes = new PendingBytes();
      const [notesFile, castFile] =
        notes === undefined || cast === undefined ? await openFiles() : [notes, cast];
      await write(notesFile, takenNotes);
      await write(castFile, takenCast);
      pendingBytes -= bytes;
    },
    async close(): Promise<void> {
      await cast?.close();
      await notes?.close();
      cast = undefined;
      notes = undefined;
    },
  };
}

/** Returns the keys of all spools in `directory`, oldest first. Other files are ignored. */
export async function listSpools(directory: string): Promise<readonly RecordingKey[]> {
  const names = await readdir(directory);
  return names
    .filter((name) => name.endsWith('.notes'))
    .map((name) => parseRecordingId(name.slice(0, -'.notes'.length)))
    .filter((key) => key !== undefined)
    .toSorted((left, right) => (left.time < right.time ? -1 : 1));
}

/**
 * Reads a spool that nothing writes to.
 *
 * @param onNote called with each note that refers to the bytes before the returned position, in order
 * @returns undefined if no complete line of the cast was durable
 * @throws a system error if it is unreadable; TailcastError `STORE_FAILED` if it has damage that a crash cannot explain
 */
export async function readSpool(
  paths: SpoolPaths,
  onNote: (note: JournalNote) => void,
): Promise<RecoveredSpool | undefined> {
  const castBytes = await wholeLineBytes(paths.cast);
  const journalBytes = await wholeLineBytes(paths.notes);
  if (castBytes === 0) {
    // A crash can leave an empty file, or the first bytes of the header. If the file starts with other bytes, these may
    // be acknowledged output, so report damage.
    const first = (await ifPresent(readPart(paths.cast, 0, 1)))?.[0];
    if (first !== undefined && first !== OPEN_BRACE)
      throw new TailcastError('STORE_FAILED', 'the cast does not begin with a header');
    return undefined;
  }
  if (journalBytes === 0) throw damaged();
  let meta: SpoolMeta | undefined;
  let endedAt: number | undefined;
  let noteBytes = 0;
  let notesBytes = 0;
  for await (const line of journalLines(paths.notes, journalBytes)) {
    const parsed = parseJournalLine(line.text);
    // Stop at the first journal line that is unreadable, or that refers to missing bytes of the recording. All later
    // lines are ignored too.
    if (parsed === undefined || (parsed.kind === 'note' && parsed.note.at > castBytes)) break;
    if (parsed.kind === 'meta') meta = parsed.meta;
    else if (parsed.kind === 'end') endedAt = parsed.castBytes;
    else {
      noteBytes += parsed.note.size;
      onNote(parsed.note);
    }
    notesBytes += line.bytes;
  }
  if (meta === undefined || castBytes < meta.storedHeaderBytes) throw damaged();
  const bodyBytes = castBytes - meta.storedHeaderBytes + meta.uploadedHeaderBytes + noteBytes;
  return { meta, paths, castBytes, bodyBytes, notesBytes, ended: endedAt === castBytes };
}

const OPEN_BRACE = 0x7b;

function damaged(): TailcastError {
  return new TailcastError('STORE_FAILED', 'the journal does not belong to the cast');
}

async function* journalLines(
  path: string,
  bytes: number,
): AsyncGenerator<{ readonly text: string; readonly bytes: number }> {
  const decoder = new TextDecoder();
  for await (const lines of readLines(createReadStream(path, { end: bytes - 1 }))) {
    for (const line of lines) yield { text: decoder.decode(line), bytes: line.length + 1 };
  }
}

/**
 * Deletes all files of a spool. Deletes the journal after the recording, so that after an interrupted deletion the
 * recorder still finds the spool by its journal and repeats the deletion.
 *
 * @param isAdopted false if the spool has no adoption file
 */
export async function removeSpool(paths: SpoolPaths, isAdopted = true): Promise<void> {
  await removeFile(paths.cast);
  await removeFile(paths.notes);
  if (isAdopted) await removeFile(adoptionPath(paths));
}

/** Returns the length of a file up to and including its last line feed. */
async function wholeLineBytes(path: string): Promise<number> {
  await using file = await ifPresent(open(path, 'r'));
  if (file === undefined) return 0;
  const block = new Uint8Array(65_536);
  let end = (await file.stat()).size;
  while (end > 0) {
    const start = Math.max(0, end - block.length);
    const { bytesRead } = await file.read(block, 0, end - start, start);
    const found = block.subarray(0, bytesRead).lastIndexOf(0x0a);
    if (found >= 0) return start + found + 1;
    end = start;
  }
  return 0;
}
