/**
 * Stores casts and notes as archives, and returns their original content. Only this module opens archives. All other
 * modules read uncompressed bytes by offset. All sizes are uncompressed sizes, except `ObjectStat.storedBytes` and the
 * sizes of a list.
 *
 * An archive has the same name as its original. The first bytes of an archive identify it
 * (`wire/archive/seek-table.ts`, ADR 16). Recordings in all formats are therefore readable, and recorders with
 * different formats can share a store.
 */
import { randomUUID } from 'node:crypto';
import { open } from 'node:fs/promises';
import { promisify } from 'node:util';
import { constants, crc32, zstdCompress, zstdDecompress } from 'node:zlib';
import { TailcastError } from '../../errors.ts';
import {
  ArchiveFormatError,
  claimsArchive,
  encodeSeekTable,
  FOOTER_BYTES,
  FRAME_BYTES,
  seekTableBytes,
  parseSeal,
  parseSeekTable,
  SEAL_BYTES,
  type ArchivedFrame,
  type SeekTable,
} from '../../wire/archive/seek-table.ts';
import { removeFile, writeAll } from '../files/durable-files.ts';
import { readFileRange, type ByteRange } from '../files/file-range.ts';
import { recordingId, type RecordingKey } from './key.ts';
import type { ArchiveCipher, SealKeys } from './seal-keys.ts';
import {
  isSameObject,
  openObject,
  type FinishedUpload,
  type ObjectKind,
  type ObjectStat,
  type OpenObject,
  type RecordingStore,
} from './store.ts';
import { hasNotesAndSidecar, hasSameBytes } from './stored-copy.ts';

/** Format of new casts. `sealed`: compressed and encrypted. */
export type ArchiveFormat = 'plain' | 'zstd' | 'sealed';

/**
 * Size of the read at the end of an object, in bytes. Such a read contains the seek table of nearly all archives, and
 * complete small casts.
 */
const TAIL_BYTES = 64 * 1024;
/** Maximum number of cached frame positions of all recordings. */
const MAX_CACHED_FRAMES = 100_000;
/** Maximum number of objects with a cached format, about 700 bytes each. */
const MAX_CACHED = 10_000;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);
const PARAMETERS = {
  params: { [constants.ZSTD_c_compressionLevel]: 3, [constants.ZSTD_c_checksumFlag]: 1 },
};

/** Sidecars are small and stay uncompressed. */
type ArchivedKind = Exclude<ObjectKind, 'sidecar'>;

/** Format of a stored cast or its notes. */
interface Known {
  readonly stored: ObjectStat;
  /** Seek table; undefined for a file that is not an archive. */
  readonly table: SeekTable | undefined;
  /** Decrypts a sealed archive; undefined for other files, or if the key is missing. */
  readonly cipher?: ArchiveCipher | undefined;
}

/**
 * Creates a store that reads archives and plain casts in `store`, and writes new casts in `format`.
 * @param keys keys for sealed archives. If the key of a sealed archive is missing, the store can only list the archive,
 *   remove it, and return its size
 * @throws TailcastError `CONFIG_INVALID` if `format` is `sealed` and `keys` is missing
 */
export function createArchiveStore(
  store: RecordingStore,
  format: ArchiveFormat,
  keys?: SealKeys,
): RecordingStore {
  if (format === 'sealed' && keys === undefined) {
    throw new TailcastError('CONFIG_INVALID', 'archive: sealed needs keys to seal with (--seal-keys)');
  }
  const known = new KnownCasts(keys);

  return {
    ...store,
    async finish(upload) {
      known.forget(upload.key);
      if (format === 'plain') return finishAgain(store, keys, upload, upload);
      const { key, castPath, notesPath } = upload;
      const sealFor = (kind: ArchivedKind): NewSeal | undefined =>
        format === 'sealed' ? keys?.seal(nameOf(key, kind)) : undefined;
      await withArchive(castPath, sealFor('cast'), (cast) =>
        withArchive(notesPath, sealFor('notes'), (notes) =>
          finishAgain(store, keys, upload, {
            ...upload,
            castPath: cast?.path ?? castPath,
            castBytes: cast?.bytes ?? 0,
            notesPath: notes?.path,
            notesBytes: notes?.bytes ?? 0,
          }),
        ),
      );
    },
    async stat(key, kind) {
      const stored = await store.stat(key, kind);
      if (stored === undefined || kind === 'sidecar') return stored;
      try {
        const read: Read = (place) => store.read(key, kind, place);
        return plainStat((await known.examine(key, kind, stored, read)).found);
      } catch (error) {
        // The recording was removed during the read.
        if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
        // Ignore the error here, so that a damaged recording does not break lists. A read of the recording reports the
        // error.
        if (error instanceof TailcastError && error.code === 'ARCHIVE_DAMAGED') return stored;
        throw error;
      }
    },
    open: (key, kind) =>
      kind === 'sidecar' ? openObject(store, key, kind) : openArchive(store, known, key, kind),
    async *read(key, kind, range) {
      if (kind === 'sidecar') {
        yield* store.read(key, kind, range);
        return;
      }
      const read: Read = (place) => store.read(key, kind, place);
      let found = known.find(key, kind);
      if (found === undefined) {
        const stored = await store.stat(key, kind);
        if (stored === undefined) throw new TailcastError('RECORDING_UNKNOWN');
        ({ found } = await known.examine(key, kind, stored, read));
      }
      yield* readPlain(read, key, found, range);
    },
    async remove(key) {
      known.forget(key);
      await store.remove(key);
    },
  };
}

/**
 * Stores the archive `stored` of an upload. Does nothing if an earlier attempt stored the upload, even in another
 * format or with another version of zstd.
 */
async function finishAgain(
  store: RecordingStore,
  keys: SealKeys | undefined,
  upload: FinishedUpload,
  stored: FinishedUpload,
): Promise<void> {
  try {
    await store.finish(stored);
  } catch (error) {
    const isConflict = error instanceof TailcastError && error.code === 'UPLOAD_CONFLICT';
    if (!isConflict || !(await isStored(createArchiveStore(store, 'plain', keys), upload))) throw error;
  }
}

async function isStored(store: RecordingStore, upload: FinishedUpload): Promise<boolean> {
  return (
    (await hasSameBytes(store, upload, 'cast', upload.castPath, upload.castBytes)) &&
    (await hasNotesAndSidecar(store, upload))
  );
}

type NewSeal = ReturnType<SealKeys['seal']>;

interface ArchivedFile {
  readonly path: string;
  readonly bytes: number;
}

/** Writes a durable archive next to the file, calls `use` with the archive, and then removes the archive. */
async function withArchive(
  path: string | undefined,
  seal: NewSeal | undefined,
  use: (archive: ArchivedFile | undefined) => Promise<void>,
): Promise<void> {
  if (path === undefined) return use(undefined);
  const archivePath = `${path}.${randomUUID()}.archive`;
  try {
    await use({ path: archivePath, bytes: await writeArchive(path, archivePath, seal) });
  } finally {
    await removeFile(archivePath);
  }
}

/** Writes an archive. @returns its length in bytes */
async function writeArchive(
  castPath: string,
  archivePath: string,
  seal: NewSeal | undefined,
): Promise<number> {
  await using source = await open(castPath, 'r');
  await using target = await open(archivePath, 'wx', 0o600);
  const frames: ArchivedFrame[] = [];
  const head = seal?.head ?? new Uint8Array(0);
  await writeAll(target, [head]);
  let bytes = head.length;
  for await (const plain of piecesOf(readFileRange(source, { start: 0, end: Infinity }))) {
    const compressed = await compress(plain, PARAMETERS);
    const frame = seal === undefined ? compressed : seal.cipher.seal(frames.length, compressed);
    frames.push({ compressed: frame.length, plain: plain.length });
    await writeAll(target, [frame]);
    bytes += frame.length;
  }
  const index = encodeSeekTable(
    frames,
    crc32,
    seal === undefined ? undefined : (table) => seal.cipher.tagOf(table),
  );
  await writeAll(target, [index]);
  await target.datasync();
  return bytes + index.length;
}

/** Splits the bytes into chunks of {@link FRAME_BYTES}. The last chunk may be shorter. */
async function* piecesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let piece = Buffer.allocUnsafe(FRAME_BYTES);
  let filled = 0;
  for await (const chunk of chunks) {
    for (let taken = 0; taken < chunk.length;) {
      const part = chunk.subarray(taken, taken + FRAME_BYTES - filled);
      piece.set(part, filled);
      filled += part.length;
      taken += part.length;
      if (filled < FRAME_BYTES) continue;
      yield piece;
      piece = Buffer.allocUnsafe(FRAME_BYTES);
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

type Read = OpenObject['read'];

/** Opens a cast or notes. Reads of the result return the original content. */
async function openArchive(
  store: RecordingStore,
  known: KnownCasts,
  key: RecordingKey,
  kind: ArchivedKind,
): Promise<OpenObject | undefined> {
  const object = await openObject(store, key, kind);
  if (object === undefined) return undefined;
  try {
    const { found, content } = await known.examine(key, kind, object.stat, object.read);
    const read = content === undefined ? object.read : readBytes(content);
    return {
      stat: plainStat(found),
      read: (range) => readPlain(read, key, found, range),
      [Symbol.asyncDispose]: () => object[Symbol.asyncDispose](),
    };
  } catch (error) {
    await object[Symbol.asyncDispose]();
    throw error;
  }
}

/** Reads the bytes of a buffer like an object. */
function readBytes(content: Uint8Array): Read {
  return async function* bytes(range = { start: 0, end: Infinity }) {
    const part = content.subarray(range.start, range.end);
    if (part.length > 0) yield part;
  };
}

/**
 * Reads the seek table, which is undefined for plain files. Also returns the content of a small object.
 *
 * @throws TailcastError `ARCHIVE_DAMAGED`
 */
async function readFormat(
  read: Read,
  keys: SealKeys | undefined,
  key: RecordingKey,
  kind: ArchivedKind,
  bytes: number,
): Promise<Pick<Known, 'table' | 'cipher'> & { readonly content?: Uint8Array | undefined }> {
  const readAt = async (start: number, end: number): Promise<Buffer> =>
    start >= end ? Buffer.alloc(0) : Buffer.concat(await Array.fromAsync(read({ start, end })));
  const tailStart = Math.max(0, bytes - TAIL_BYTES);
  const tail = await readAt(tailStart, bytes);
  const head = tailStart === 0 ? tail.subarray(0, SEAL_BYTES) : await readAt(0, SEAL_BYTES);
  const content = tailStart === 0 ? tail : undefined;
  if (!claimsArchive(head.subarray(0, 4), tail)) return { table: undefined, content };
  return checked(key, async () => {
    const seal = parseSeal(head);
    const isSealed = seal !== undefined;
    const length = seekTableBytes(tail.subarray(-FOOTER_BYTES), isSealed);
    if (length > bytes) throw new ArchiveFormatError('its seek table is longer than the archive');
    const index = length <= tail.length ? tail.subarray(-length) : await readAt(bytes - length, bytes);
    const table = parseSeekTable(index, bytes, crc32, isSealed);
    const cipher = isSealed ? keys?.open(seal, nameOf(key, kind)) : undefined;
    if (table.sealed !== undefined) cipher?.check(table.sealed.table, table.sealed.tag);
    return { table, cipher, content };
  });
}

/** Reads the original content of an object. @param read reads the object itself */
async function* readPlain(
  read: Read,
  key: RecordingKey,
  { table, cipher }: Known,
  range: ByteRange | undefined,
): AsyncGenerator<Uint8Array> {
  if (table === undefined) yield* read(range);
  else if (table.sealed !== undefined && cipher === undefined)
    throw new TailcastError('ARCHIVE_SEALED', recordingId(key));
  else yield* readArchive(read, key, table, cipher, range);
}

async function* readArchive(
  read: Read,
  key: RecordingKey,
  table: SeekTable,
  cipher: ArchiveCipher | undefined,
  range: ByteRange = { start: 0, end: Infinity },
): AsyncGenerator<Uint8Array> {
  const { plainStarts, compressedStarts, frames } = table;
  const end = Math.min(range.end, plainStarts[frames] ?? 0);
  if (range.start >= end) return;
  const first = Math.floor(range.start / FRAME_BYTES);
  const last = Math.floor((end - 1) / FRAME_BYTES);
  const place = { start: compressedStarts[first] ?? 0, end: compressedStarts[last + 1] ?? 0 };
  const reader = createExactReader(read(place));
  try {
    for (let index = first; index <= last; index += 1) {
      const plainStart = plainStarts[index] ?? 0;
      const length = (plainStarts[index + 1] ?? 0) - plainStart;
      const plain = await checked(key, async () => {
        const stored = await reader.read((compressedStarts[index + 1] ?? 0) - (compressedStarts[index] ?? 0));
        const frame = cipher === undefined ? stored : cipher.open(index, stored);
        const content = await decompress(frame, { maxOutputLength: length });
        if (content.length !== length) throw new ArchiveFormatError(`frame ${index} is too short`);
        return content;
      });
      yield plain.subarray(Math.max(0, range.start - plainStart), Math.min(length, end - plainStart));
    }
  } finally {
    await reader.close();
  }
}

function createExactReader(chunks: AsyncIterable<Uint8Array>) {
  const iterator = chunks[Symbol.asyncIterator]();
  let rest: Uint8Array = new Uint8Array();
  return {
    /** Reads exactly `length` bytes. @throws ArchiveFormatError if there are fewer */
    async read(length: number): Promise<Buffer> {
      const bytes = Buffer.allocUnsafe(length);
      for (let filled = 0; filled < length;) {
        if (rest.length === 0) {
          const next = await iterator.next();
          if (next.done === true) throw new ArchiveFormatError('it ends too early');
          rest = next.value;
          continue;
        }
        const part = rest.subarray(0, length - filled);
        bytes.set(part, filled);
        filled += part.length;
        rest = rest.subarray(part.length);
      }
      return bytes;
    },
    async close(): Promise<void> {
      await iterator.return?.();
    },
  };
}

/** Converts errors of the codecs. @throws TailcastError `ARCHIVE_DAMAGED` with the recording */
async function checked<T>(key: RecordingKey, step: () => Promise<T>): Promise<T> {
  try {
    return await step();
  } catch (error) {
    if (!(error instanceof ArchiveFormatError) && !isZlibError(error)) throw error;
    const detail = `${recordingId(key)}: ${error.message}`;
    throw new TailcastError('ARCHIVE_DAMAGED', detail, { cause: error });
  }
}

function isZlibError(error: unknown): error is Error {
  if (!(error instanceof Error) || !('code' in error)) return false;
  return /^(?:ZSTD_|Z_|ERR_BUFFER_TOO_LARGE$)/.test(String(error.code));
}

function plainStat({ stored, table }: Known): ObjectStat {
  if (table === undefined) return stored;
  return { ...stored, bytes: table.plainStarts[table.frames] ?? 0, storedBytes: stored.bytes };
}

/** Cache of formats. The oldest entry is dropped first. */
class KnownCasts {
  readonly #keys: SealKeys | undefined;
  readonly #known = new Map<string, Known>();
  #frames = 0;

  constructor(keys: SealKeys | undefined) {
    this.#keys = keys;
  }

  /**
   * Returns the format of an object, and reads it unless it is cached. `content`: content of a small object, if it was
   * read.
   *
   * @throws TailcastError `ARCHIVE_DAMAGED`
   */
  async examine(
    key: RecordingKey,
    kind: ArchivedKind,
    stored: ObjectStat,
    read: Read,
  ): Promise<{ readonly found: Known; readonly content?: Uint8Array | undefined }> {
    const there = this.find(key, kind);
    if (there !== undefined && isSameObject(there.stored, stored)) return { found: there };
    const { content, ...format } = await readFormat(read, this.#keys, key, kind, stored.bytes);
    const found = { stored, ...format };
    this.#keep(key, kind, found);
    return { found, content };
  }

  find(key: RecordingKey, kind: ArchivedKind): Known | undefined {
    return this.#known.get(nameOf(key, kind));
  }

  #keep(key: RecordingKey, kind: ArchivedKind, found: Known): void {
    this.#drop(nameOf(key, kind));
    this.#known.set(nameOf(key, kind), found);
    this.#frames += found.table?.frames ?? 0;
    while (this.#known.size > MAX_CACHED || (this.#frames > MAX_CACHED_FRAMES && this.#known.size > 1)) {
      const [oldest] = this.#known.keys();
      if (oldest === undefined) return;
      this.#drop(oldest);
    }
  }

  forget(key: RecordingKey): void {
    for (const kind of ['cast', 'notes'] as const) this.#drop(nameOf(key, kind));
  }

  #drop(name: string): void {
    this.#frames -= this.#known.get(name)?.table?.frames ?? 0;
    this.#known.delete(name);
  }
}

function nameOf(key: RecordingKey, kind: ArchivedKind): string {
  return `${recordingId(key)}.${kind}`;
}
