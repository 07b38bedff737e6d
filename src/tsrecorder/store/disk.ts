/**
 * Store in a local directory, with the layout of the reference (`key.ts`). Sidecar and notes are next to the recording.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, readdir, rename, stat } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { TailcastError } from '../../errors.ts';
import {
  createDirectorySync,
  haveSameContent,
  isSystemError,
  makeDirectory,
  placeFile,
  removeFile,
  roomIn,
  writeDurableFile,
  storageError,
} from '../files/durable-files.ts';
import { readFileRange } from '../files/file-range.ts';
import { createDiskLister } from './disk-lister.ts';
import { isDocumentName, joinDocument, type DocumentStore } from './document-store.ts';
import {
  SESSIONS_FOLDER,
  encodeNodeId,
  eventKey,
  markName,
  recordingId,
  recordingKey,
  EVENTS_MARKER,
  SUFFIX,
  type RecordingKey,
} from './key.ts';
import type { ByteRange } from '../files/file-range.ts';
import type { FinishedUpload, ObjectKind, ObjectStat, RecordingStore } from './store.ts';

/**
 * Opens a directory, and creates it if it is missing. With `readOnly` nothing is written.
 *
 * @throws TailcastError `STORE_FAILED` if the directory is not writable
 */
export async function createDiskStore(
  directory: string,
  options: { readonly readOnly?: boolean; readonly nowMs?: () => number } = {},
): Promise<RecordingStore> {
  const syncEntries = createDirectorySync();
  /** Folders of nodes that exist durably. */
  const folders = new Set<string>();
  const lister = createDiskLister(directory, options.nowMs ?? Date.now);

  const pathOf = (key: RecordingKey, kind: ObjectKind): string =>
    join(directory, recordingKey(key).slice(0, -SUFFIX.cast.length) + SUFFIX[kind]);

  async function ensureFolder(folder: string): Promise<void> {
    if (folders.has(folder)) return;
    await makeDirectory(folder);
    folders.add(folder);
  }

  /** Writes a file under a hidden name, and then renames it. */
  async function put(path: string, content: string | Uint8Array): Promise<void> {
    // A random name, because recorders on other machines may have the same process id.
    const draft = join(dirname(path), `.${randomUUID()}.part`);
    await writeDurableFile(draft, [Buffer.from(content)]);
    try {
      await placeFile(draft, path);
    } finally {
      await removeFile(draft);
    }
  }

  async function finish(upload: FinishedUpload): Promise<void> {
    const folder = join(directory, encodeNodeId(upload.key.nodeId));
    await ensureFolder(folder);
    if (await isTakenByAnother(pathOf(upload.key, 'cast'), upload)) {
      throw new TailcastError('UPLOAD_CONFLICT', 'another recording has this key');
    }
    if (upload.notesPath !== undefined) {
      await again(placeFile(upload.notesPath, pathOf(upload.key, 'notes')));
    }
    await again(put(pathOf(upload.key, 'sidecar'), upload.sidecar));
    await syncEntries(folder);
    if (upload.sessionMark !== undefined) {
      const marks = join(directory, SESSIONS_FOLDER);
      await ensureFolder(marks);
      await again(writeDurableFile(join(marks, markName(upload.key, upload.sessionMark)), []));
      await syncEntries(marks);
    }
    await again(placeFile(upload.castPath, pathOf(upload.key, 'cast')));
    await syncEntries(folder);
  }

  async function removeRecording(key: RecordingKey): Promise<void> {
    for (const kind of ['cast', 'notes', 'sidecar'] as const) await removeFile(pathOf(key, kind));
    await syncEntries(join(directory, encodeNodeId(key.nodeId))).catch((error: unknown) => {
      // The node has no recordings.
      if (!isSystemError(error, 'ENOENT')) throw error;
    });
    const mark = await lister.markOf(recordingId(key));
    if (mark !== undefined) await removeFile(join(directory, SESSIONS_FOLDER, markName(key, mark)));
  }

  if (options.readOnly !== true) await assertWritable(directory);

  return {
    finish: (upload) => wrap(finish(upload)),
    putEvent: (key, content) =>
      wrap(
        (async () => {
          const path = join(directory, eventKey(key));
          await ensureFolder(dirname(path));
          await markEvents(directory, folders);
          await put(path, content);
          await syncEntries(dirname(path));
        })(),
      ),
    list: () => wrap(lister.list()),
    stat: (key, kind) => statObject(pathOf(key, kind)),
    read: (key, kind, range) => readObject(pathOf(key, kind), range),
    remove: (key) => wrap(removeRecording(key)),
    ...createDocuments(directory, { ensureFolder, put, syncEntries }),
    freeBytes: () => wrap(roomIn(directory)),
  };
}

/** Creates the document store: documents are files below the directory. */
function createDocuments(
  directory: string,
  parts: {
    readonly ensureFolder: (folder: string) => Promise<void>;
    readonly put: (path: string, content: Uint8Array) => Promise<void>;
    readonly syncEntries: (folder: string) => Promise<void>;
  },
): DocumentStore {
  const pathOf = (name: string): string => {
    if (!isDocumentName(name)) throw new TailcastError('STORE_FAILED', 'this is no name of a document');
    return join(directory, name);
  };

  /** Writes a new document. @returns false if the name exists */
  async function putOnce(name: string, content: Uint8Array): Promise<boolean> {
    const path = pathOf(name);
    await parts.ensureFolder(dirname(path));
    try {
      await parts.put(path, content);
    } catch (error) {
      if (isSystemError(error, 'EEXIST')) return false;
      throw error;
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
          const draft = join(dirname(path), `.${randomUUID()}.part`);
          await writeDurableFile(draft, [content]);
          await rename(draft, path);
          await parts.syncEntries(dirname(path));
        })(),
      ),
    async listDocuments(prefix) {
      const entries = await readdir(pathOf(prefix.slice(0, -1)), {
        recursive: true,
        withFileTypes: true,
      }).catch((error: unknown) => {
        if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return [];
        throw storageError(error);
      });
      return entries
        .filter((entry) => entry.isFile() && !entry.name.startsWith('.'))
        .map((entry) => relative(directory, join(entry.parentPath, entry.name)).split(sep).join('/'))
        .toSorted();
    },
    async readDocument(name, maxBytes) {
      try {
        const end = (maxBytes ?? Infinity) - 1;
        const content: AsyncIterable<Uint8Array> = createReadStream(pathOf(name), { end });
        return await joinDocument(content);
      } catch (error) {
        if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return undefined;
        throw storageError(error);
      }
    },
    removeDocument: (name) => wrap(removeFile(pathOf(name))),
  };
}

async function* readObject(path: string, range: ByteRange | undefined): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r').catch((error: unknown) => {
    throw new TailcastError('RECORDING_UNKNOWN', undefined, { cause: error });
  });
  try {
    yield* readFileRange(file, range ?? { start: 0, end: Infinity });
  } finally {
    await file.close();
  }
}

async function statObject(path: string): Promise<ObjectStat | undefined> {
  try {
    const { size, mtimeMs, ctimeMs, ino } = await stat(path);
    return { bytes: size, modifiedAtMs: mtimeMs, identity: `${ino} ${ctimeMs}` };
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR', 'ENAMETOOLONG')) return undefined;
    throw storageError(error);
  }
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
  await again(writeDurableFile(marker, []));
  known.add(marker);
}

/** Returns true if `path` exists and was not written by an earlier, interrupted attempt of this upload. */
async function isTakenByAnother(path: string, upload: FinishedUpload): Promise<boolean> {
  const [there, ours] = await Promise.all([stat(path).catch(() => undefined), stat(upload.castPath)]);
  if (there === undefined) return false;
  if (there.dev === ours.dev && there.ino === ours.ino) return false;
  // The earlier attempt may have copied the file instead of linking it.
  return there.size !== upload.castBytes || !(await haveSameContent(path, upload.castPath));
}

/** Ignores the error if an earlier attempt created the name already. */
async function again(step: Promise<void>): Promise<void> {
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
