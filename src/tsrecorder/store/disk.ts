/**
 * Store in a local directory, with the layout of the reference (`key.ts`). Sidecar and notes are next to the recording.
 */
import { randomUUID } from 'node:crypto';
import type { Stats } from 'node:fs';
import { opendir, rename, stat as statFile } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { isSystemError, TailcastError } from '../../errors.ts';
import {
  createDirectorySync,
  haveSameContent,
  makeDirectory,
  placeFile,
  removeFile,
  freeBytesIn,
  writeDurableFile,
  storageError,
} from '../files/durable-files.ts';
import { readFileRange } from '../files/file-range.ts';
import { createDiskFiles, type DiskFiles } from './disk-files.ts';
import { createDiskLister } from './disk-lister.ts';
import { isDocumentName, joinDocument, type DocumentStore } from './document-store.ts';
import {
  SESSIONS_FOLDER,
  encodeNodeId,
  eventKey,
  markName,
  objectKey,
  recordingId,
  EVENTS_MARKER,
  type RecordingKey,
} from './key.ts';
import type { ByteRange } from '../files/file-range.ts';
import type { FinishedUpload, ObjectKind, ObjectStat, OpenObject, RecordingStore } from './store.ts';
import { hasNotesAndSidecar } from './stored-copy.ts';

/**
 * Opens a directory, and creates it if it is missing. With `readOnly`, the store writes nothing.
 *
 * @param options `onRefused` is called once for each link or special file that is skipped, with its name relative to
 *   the directory; see `disk-files.ts`
 * @throws TailcastError `STORE_FAILED` if the directory is not writable
 */
export async function createDiskStore(
  directory: string,
  options: {
    readonly readOnly?: boolean;
    readonly nowMs?: () => number;
    readonly onRefused?: (name: string) => void;
  } = {},
): Promise<RecordingStore> {
  const syncEntries = createDirectorySync();
  /** Node folders whose directory entries are durable. */
  const folders = new Set<string>();
  const files = createDiskFiles(directory, options.onRefused ?? (() => undefined));
  const lister = createDiskLister(directory, options.nowMs ?? Date.now, (path) => files.report(path));

  const pathOf = (key: RecordingKey, kind: ObjectKind): string => join(directory, objectKey(key, kind));

  async function ensureFolder(folder: string): Promise<void> {
    // `inFolder` checks the folder again at each use.
    if (folders.has(folder)) return;
    await files.assertInside(join(folder, '_'));
    await makeDirectory(folder);
    folders.add(folder);
  }

  const stat: RecordingStore['stat'] = (key, kind) => statObject(files, pathOf(key, kind));
  const read: RecordingStore['read'] = (key, kind, range) => readObject(files, pathOf(key, kind), range);

  async function finish(upload: FinishedUpload): Promise<void> {
    const { key, notesPath, sessionMark } = upload;
    const folder = join(directory, encodeNodeId(key.nodeId));
    await ensureFolder(folder);
    await files.inFolder(folder, async (held) => {
      const heldOf = (kind: ObjectKind): string => join(held, basename(pathOf(key, kind)));
      const hasCast = await files.putAside(pathOf(key, 'cast'));
      // Remove files without a cast: they are from an interrupted attempt or from another program.
      for (const kind of ['notes', 'sidecar'] as const)
        if ((await files.putAside(pathOf(key, kind))) && !hasCast) await removeFile(heldOf(kind));
      if (!hasCast) {
        if (notesPath !== undefined) await placeFile(notesPath, heldOf('notes'));
        await writeAside(heldOf('sidecar'), upload.sidecar);
        await syncEntries(folder);
      } else if (
        (await isForeign(files, pathOf(key, 'cast'), upload)) ||
        !(await hasNotesAndSidecar({ stat, read }, upload))
      ) {
        throw new TailcastError('UPLOAD_CONFLICT', 'another recording has this key');
      }
      if (sessionMark !== undefined) await mark(markName(key, sessionMark));
      // If another program creates the cast now, this attempt fails, and the next attempt compares the files.
      if (!hasCast) await placeFile(upload.castPath, heldOf('cast'));
      await syncEntries(folder);
    });
  }

  async function mark(name: string): Promise<void> {
    const marks = join(directory, SESSIONS_FOLDER);
    await ensureFolder(marks);
    await ignoreExisting(files.inFolder(marks, (folder) => writeDurableFile(join(folder, name), [])));
    await syncEntries(marks);
  }

  async function putEvent(path: string, content: string): Promise<void> {
    await ensureFolder(dirname(path));
    await markEvents(directory, folders);
    await putFile(files, path, content);
    await syncEntries(dirname(path));
  }

  async function removeRecording(key: RecordingKey): Promise<void> {
    const mark = await lister.markOf(recordingId(key));
    if (mark !== undefined) await removeInside(files, join(directory, SESSIONS_FOLDER, markName(key, mark)));
    for (const kind of ['notes', 'sidecar', 'cast'] as const) await removeInside(files, pathOf(key, kind));
    await syncEntries(join(directory, encodeNodeId(key.nodeId))).catch((error: unknown) => {
      // The folder is missing if no recording of the tailnet node was ever stored.
      if (!isSystemError(error, 'ENOENT')) throw error;
    });
  }

  if (options.readOnly !== true) await assertWritable(directory);

  return {
    finish: (upload) => wrap(finish(upload)),
    putEvent: (key, content) => wrap(putEvent(join(directory, eventKey(key)), content)),
    list: () => wrap(lister.list()),
    stat,
    open: (key, kind) => openObject(files, pathOf(key, kind)),
    read,
    remove: (key) => wrap(removeRecording(key)),
    ...createDocuments(directory, { files, ensureFolder, syncEntries }),
    freeBytes: () => wrap(freeBytesIn(directory)),
  };
}

/** Creates the document store: documents are files below the directory. */
function createDocuments(
  directory: string,
  parts: {
    readonly files: DiskFiles;
    readonly ensureFolder: (folder: string) => Promise<void>;
    readonly syncEntries: (folder: string) => Promise<void>;
  },
): DocumentStore {
  const { files } = parts;
  const pathOf = (name: string): string => {
    if (!isDocumentName(name)) throw new TailcastError('STORE_FAILED', 'this is not a valid document name');
    return join(directory, name);
  };

  /** Writes a new document. @returns false if the name exists */
  async function putOnce(name: string, content: Uint8Array): Promise<boolean> {
    const path = pathOf(name);
    await parts.ensureFolder(dirname(path));
    try {
      await putFile(files, path, content);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
      if (await files.putAside(path)) return false;
      await putFile(files, path, content);
    }
    await parts.syncEntries(dirname(path));
    return true;
  }

  return {
    putDocument: (name, content) =>
      wrap(
        (async () => {
          if (!(await putOnce(name, content)))
            throw new TailcastError('UPLOAD_CONFLICT', 'the name is taken');
        })(),
      ),
    claimDocument: (name, content) => wrap(putOnce(name, content)),
    replaceDocument: (name, content) =>
      wrap(
        (async () => {
          const path = pathOf(name);
          await parts.ensureFolder(dirname(path));
          await files.inFolder(dirname(path), async (folder) => {
            const draft = join(folder, `.${randomUUID()}.part`);
            await writeDurableFile(draft, [content]);
            await files.putAside(path);
            await rename(draft, join(folder, basename(path)));
          });
          await parts.syncEntries(dirname(path));
        })(),
      ),
    listDocuments: (prefix, maximum) =>
      wrap((async () => listFiles(files, directory, pathOf(prefix.slice(0, -1)), maximum))()),
    readDocument: (name, maxBytes) =>
      wrap((async () => readDocumentFile(files, pathOf(name), maxBytes ?? Infinity))()),
    removeDocument: (name) => wrap((async () => removeInside(files, pathOf(name)))()),
  };
}

function putFile(files: DiskFiles, path: string, content: string | Uint8Array): Promise<void> {
  return files.inFolder(dirname(path), (folder) => writeAside(join(folder, basename(path)), content));
}

/** Writes a file under a hidden name, and then renames it. */
async function writeAside(path: string, content: string | Uint8Array): Promise<void> {
  // Use a random name, because recorders on other machines may have the same process id.
  const draft = join(dirname(path), `.${randomUUID()}.part`);
  await writeDurableFile(draft, [Buffer.from(content)]);
  try {
    await placeFile(draft, path);
  } finally {
    await removeFile(draft);
  }
}

/** Removes a file. Does nothing if a folder of its path is missing or is a link. */
async function removeInside(files: DiskFiles, path: string): Promise<void> {
  if (!(await files.isInside(path))) return;
  await files
    .inFolder(dirname(path), (folder) => removeFile(join(folder, basename(path))))
    .catch((error: unknown) => {
      if (!isSystemError(error, 'ENOENT')) throw error;
    });
}

/** Lists the regular files in a folder and its subfolders, relative to `directory`. Hidden names are skipped. */
async function listFiles(
  files: DiskFiles,
  directory: string,
  folder: string,
  maximum = Infinity,
): Promise<readonly string[]> {
  if (!(await files.isInside(join(folder, '_')))) return [];
  const options = { recursive: true, bufferSize: 1024 };
  const entries = await opendir(folder, options).catch((error: unknown) => {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  });
  const names: string[] = [];
  for await (const entry of entries) {
    if (names.length >= maximum) break;
    const path = join(entry.parentPath, entry.name);
    const parts = relative(folder, path).split(sep);
    if (entry.isDirectory() || parts.some((part) => part.startsWith('.'))) continue;
    if (!entry.isFile()) {
      files.report(path);
      continue;
    }
    const name = relative(directory, path).split(sep).join('/');
    if (isDocumentName(name)) names.push(name);
  }
  return names.toSorted();
}

async function readDocumentFile(
  files: DiskFiles,
  path: string,
  maxBytes: number,
): Promise<Uint8Array | undefined> {
  const opened = await files.open(path);
  if (opened === undefined) return undefined;
  await using file = opened.file;
  return await joinDocument(readFileRange(file, { start: 0, end: maxBytes }, opened.found.size));
}

async function openObject(files: DiskFiles, path: string): Promise<OpenObject | undefined> {
  const opened = await files.open(path).catch((error: unknown) => {
    throw new TailcastError('RECORDING_UNKNOWN', undefined, { cause: error });
  });
  if (opened === undefined) return undefined;
  const { file, found } = opened;
  return {
    stat: statOf(found),
    read: (range = { start: 0, end: Infinity }) => readFileRange(file, range, found.size),
    [Symbol.asyncDispose]: () => file.close(),
  };
}

async function* readObject(
  files: DiskFiles,
  path: string,
  range: ByteRange | undefined,
): AsyncGenerator<Uint8Array> {
  await using object = await openObject(files, path);
  if (object === undefined) throw new TailcastError('RECORDING_UNKNOWN');
  yield* object.read(range);
}

async function statObject(files: DiskFiles, path: string): Promise<ObjectStat | undefined> {
  try {
    const found = await files.stat(path);
    return found === undefined ? undefined : statOf(found);
  } catch (error) {
    throw storageError(error);
  }
}

function statOf({ size, mtimeMs, ctimeMs, ino }: Stats): ObjectStat {
  return { bytes: size, modifiedAtMs: mtimeMs, identity: `${ino} ${ctimeMs}` };
}

/** Checks that the directory is writable. The error contains the path. */
async function assertWritable(directory: string): Promise<void> {
  try {
    await makeDirectory(directory);
    const probe = join(directory, `.write-access-${randomUUID()}`);
    await writeDurableFile(probe, []);
    await removeFile(probe);
  } catch (error) {
    throw storageError(error);
  }
}

async function markEvents(directory: string, known: Set<string>): Promise<void> {
  const marker = join(directory, EVENTS_MARKER);
  if (known.has(marker)) return;
  await ignoreExisting(writeDurableFile(marker, []));
  known.add(marker);
}

/**
 * Returns true if another upload has written `path`. Returns false if `path` does not exist, or if an interrupted
 * earlier attempt of this upload has written it.
 */
async function isForeign(files: DiskFiles, path: string, upload: FinishedUpload): Promise<boolean> {
  const [there, ours] = await Promise.all([
    files.stat(path).catch(() => undefined),
    statFile(upload.castPath),
  ]);
  if (there === undefined) return false;
  if (there.dev === ours.dev && there.ino === ours.ino) return false;
  // The earlier attempt may have copied the file instead of linking it.
  return there.size !== upload.castBytes || !(await haveSameContent(path, upload.castPath));
}

/** Ignores the error if an earlier attempt created the name already. */
async function ignoreExisting(step: Promise<void>): Promise<void> {
  try {
    await step;
  } catch (error) {
    if (!isSystemError(error, 'EEXIST')) throw error;
  }
}

async function wrap<T>(step: Promise<T>): Promise<T> {
  try {
    return await step;
  } catch (error) {
    throw storageError(error);
  }
}
