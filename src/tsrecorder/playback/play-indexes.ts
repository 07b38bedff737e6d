/**
 * Play indexes of a recorder. An index is built when a viewer first opens the recording, or when a long session has
 * ended. Indexes are kept in a folder of the spool. If the indexes exceed the size limit, the least recently used
 * indexes are removed. Removed indexes are built again on demand. Play indexes are not evidence.
 *
 * ```
 * <folder>/<id>~<hash of the version>.json     StoredIndex
 * <folder>/<id>~<hash of the version>.frames   one JSON string per keyframe and line
 * <folder>/<id>~<hash of the version>.text     TranscriptDocument, gzip
 * ```
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../../bounded-map.ts';
import { readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { createLimiter } from '../../async/limiter.ts';
import { settledWithin } from '../../async/with-timeout.ts';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import {
  GROWING_STEP_BYTES,
  isPlayIndex,
  type PlayIndex,
  type PlayIndexPending,
} from '../../screen/play-index.ts';
import type { ThumbnailRows } from '../../screen/thumbnail.ts';
import { makeDirectory } from '../files/durable-files.ts';
import { readPart } from '../files/file-range.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { recordedOwner } from '../library/recorded-owner.ts';
import { castBytes, readCast } from '../library/replay.ts';
import type { KnownPlace } from '../../bundle/build-index.ts';
import { createIndexThreads } from './index-threads.ts';

export interface PlayIndexOptions {
  readonly directory: string;
  /** Maximum size of all files, in bytes. The least recently used files are removed first. */
  readonly maxBytes: number;
  /**
   * Maximum number of concurrent builds. Recordings of one user can occupy all slots except one. Long builds of one
   * user therefore never block the builds of other users.
   */
  readonly maxBuilding: number;
  /** Maximum number of queued builds. Above this number, requests fail with `RECORDER_BUSY`. */
  readonly maxWaiting: number;
  /** Returns the positions of missing output and the starts of parts. */
  readonly placesOf: (entry: CatalogEntry) => Promise<readonly KnownPlace[]>;
  readonly log: Logger;
}

/** Cache of play indexes. */
export type PlayIndexes = Awaited<ReturnType<typeof openPlayIndexes>>;

interface Build {
  bytes: number;
  readonly total: number;
  readonly done: Promise<void>;
  failure: string | undefined;
  /** True if the recording was removed during the build. */
  isRemoved: boolean;
}

/**
 * Maximum wait of `find`, in milliseconds. Most builds take less time, so the first response usually contains the
 * index.
 */
const PATIENCE_MS = 300;
const MAX_FAILURES = 1000;
/** Number of hexadecimal digits of the hash in a file name. */
const HASH_DIGITS = 32;
const MAX_IN_MEMORY = 8;
/** Limits of one request for thumbnails: number of builds that it starts, and size of each recording, in bytes. */
const MAX_STARTED = 8;
const MAX_THUMBNAIL_CAST = 4 * 1024 ** 2;
const MAX_THUMBNAILS_IN_MEMORY = 2000;
/** Suffixes of the files next to an index. */
const SIDE_FILES = ['.frames', '.text'] as const;

const storedIndex = z.object({
  index: z.custom<PlayIndex>(isPlayIndex),
  frameOffsets: z.array(z.number().int().nonnegative()),
});

/** Opens the play indexes of a recorder process. */
export async function openPlayIndexes(options: PlayIndexOptions) {
  const { directory } = options;
  await removeLeftovers(directory);
  const builds = createBuilds(options);
  const readStored = createStoredReader(directory);
  const thumbnails = new BoundedMap<ThumbnailRows>(MAX_THUMBNAILS_IN_MEMORY);
  const thumbnailOf = (name: string): Promise<ThumbnailRows | undefined> =>
    readThumbnail(name, readStored, thumbnails);
  /** Returns an existing or new index, or the progress of its build. */
  async function find(entry: CatalogEntry): Promise<PlayIndex | PlayIndexPending> {
    const covered = coveredOf(entry);
    const { name } = covered;
    const known = await readStored(name);
    if (known !== undefined) return known.index;
    const state = builds.start(entry, covered);
    await settledWithin(PATIENCE_MS, state.done);
    const made = await readStored(name);
    if (made !== undefined) return made.index;
    if (state.failure !== undefined) throw new TailcastError('PLAY_INDEX_UNAVAILABLE', state.failure);
    return { progress: state.total === 0 ? 0 : Math.min(1, state.bytes / state.total) };
  }
  return {
    /**
     * Returns the index, or the progress of its build.
     * @throws TailcastError `PLAY_INDEX_UNAVAILABLE` if no index is possible
     */
    find,
    /**
     * Returns the transcript as a gzip-compressed {@link TranscriptDocument}, or the progress of its build. Throws like
     * `find`.
     */
    async transcript(entry: CatalogEntry): Promise<Buffer | PlayIndexPending> {
      if (entry.version === undefined)
        throw new TailcastError('PLAY_INDEX_UNAVAILABLE', 'the session is not over');
      const found = await find(entry);
      if ('progress' in found) return found;
      const text = await readFile(join(directory, `${coveredOf(entry).name}.text`)).catch(() => undefined);
      if (text === undefined) throw new TailcastError('PLAY_INDEX_UNAVAILABLE');
      return text;
    },
    /** Returns the screen of a keyframe as a JSON string. @throws TailcastError `PLAY_INDEX_UNAVAILABLE` */
    async frame(entry: CatalogEntry, index: number): Promise<Buffer> {
      const whole = entry.version === undefined ? [] : [coveredOf(entry)];
      // Search shorter indexes too, because the viewer may have loaded a shorter index. Longer indexes contain the same
      // keyframes.
      for (const { name } of [...whole, ...growingOf(entry)]) {
        const known = await readStored(name);
        const start = known?.frameOffsets[index];
        const end = known?.frameOffsets[index + 1];
        if (start !== undefined && end !== undefined)
          return readPart(join(directory, `${name}.frames`), start, end - 1);
      }
      throw new TailcastError('PLAY_INDEX_UNAVAILABLE');
    },
    /**
     * Returns the existing thumbnails, with recording ids as map keys. Also starts builds for some of the missing
     * thumbnails.
     */
    async thumbnails(entries: readonly CatalogEntry[]): Promise<ReadonlyMap<string, ThumbnailRows>> {
      const found = new Map<string, ThumbnailRows>();
      const started: { readonly id: string; readonly name: string; readonly state: Build }[] = [];
      for (const entry of entries) {
        const { recording, version } = entry;
        if (version === undefined) continue;
        const covered = coveredOf(entry);
        const made = await thumbnailOf(covered.name);
        if (made !== undefined) found.set(recording.id, made);
        else if (covered.bytes <= MAX_THUMBNAIL_CAST && started.length < MAX_STARTED && builds.hasSpace())
          started.push({ id: recording.id, name: covered.name, state: builds.start(entry, covered) });
      }
      await settledWithin(PATIENCE_MS, Promise.all(started.map(({ state }) => state.done)));
      for (const { id, name } of started) {
        const made = await thumbnailOf(name);
        if (made !== undefined) found.set(id, made);
      }
      return found;
    },
    /** Removes the files of removed recordings. */
    async forget(ids: readonly string[]): Promise<void> {
      const gone = new Set(ids);
      builds.forget(gone);
      for (const name of thumbnails.keys()) if (gone.has(idOf(name))) thumbnails.delete(name);
      await forget(directory, gone);
    },
    /** Aborts all builds. */
    close: (): Promise<void> => builds.close(),
  };
}

/** Returns an existing thumbnail from memory or from its index. */
async function readThumbnail(
  name: string,
  readStored: ReadStored,
  inMemory: Map<string, ThumbnailRows>,
): Promise<ThumbnailRows | undefined> {
  const known = inMemory.get(name);
  if (known !== undefined) return known;
  const made = (await readStored(name))?.index.thumbnail;
  if (made === undefined) return undefined;
  inMemory.set(name, made);
  return made;
}

function createBuilds(options: PlayIndexOptions) {
  const { directory, log } = options;
  const builds = new Map<string, Build>();
  /** Builds that failed because of the recording, and are not repeated. */
  const failed = new BoundedMap<Build>(MAX_FAILURES);
  const threads = createIndexThreads();
  const trim = createTrim(directory, options.maxBytes);
  const { maxBuilding, maxWaiting } = options;
  const limiter = createLimiter({
    maxActive: maxBuilding,
    maxActivePerOwner: Math.max(1, maxBuilding - 1),
    maxWaiting,
  });
  let closed = false;

  async function make(entry: CatalogEntry, { name, bytes }: Covered, state: Build): Promise<void> {
    try {
      if (closed) return;
      await makeDirectory(directory);
      const path = join(directory, name);
      const task = {
        indexPath: `${path}.json.new`,
        framesPath: `${path}.frames`,
        transcriptPath: `${path}.text`,
      };
      const places = entry.version === undefined ? [] : await options.placesOf(entry);
      // Start no thread after `close`, which has stopped all threads.
      if (closed) return;
      const cast = readCast(entry, { start: 0, end: bytes });
      await threads.build(cast, { ...task, places }, (read) => {
        state.bytes += read;
      });
      if (state.isRemoved) throw new Error('the recording was removed');
      await rename(task.indexPath, `${path}.json`);
      await trim(name);
    } catch (error) {
      // Remove partial files, because `trim` would count their size.
      for (const ending of ['.json.new', ...SIDE_FILES])
        await rm(join(directory, name + ending), { force: true });
      if (closed) return;
      state.failure = errorText(error);
      // After a failure of the store or the disk, the next request builds the index again.
      if (!isStoreFailure(error)) failed.set(name, state);
      log.warn({ recording: entry.recording.id, error: state.failure }, 'no play index could be made');
    } finally {
      builds.delete(name);
    }
  }

  return {
    /**
     * True if less than half of the queue is in use. Otherwise, no thumbnails are built, so that the other half stays
     * free for recordings that viewers play.
     */
    hasSpace: (): boolean => limiter.waiting < maxWaiting / 2,
    /** Returns the running or failed build, or starts a build. @throws TailcastError `RECORDER_BUSY` */
    start(entry: CatalogEntry, covered: Covered): Build {
      const { name, bytes } = covered;
      const known = builds.get(name) ?? failed.get(name);
      if (known !== undefined) return known;
      const owner = recordedOwner(entry.recording);
      if (limiter.isFull(owner)) throw new TailcastError('RECORDER_BUSY');
      const { promise, resolve } = Promise.withResolvers<void>();
      const state: Build = {
        bytes: 0,
        total: bytes,
        done: promise,
        failure: undefined,
        isRemoved: false,
      };
      builds.set(name, state);
      void limiter.run(() => make(entry, covered, state), undefined, owner).finally(resolve);
      return state;
    },
    /** Discards the results of running builds for these recordings. */
    forget(ids: ReadonlySet<string>): void {
      for (const [name, state] of builds) if (ids.has(idOf(name))) state.isRemoved = true;
    },
    async close(): Promise<void> {
      closed = true;
      await threads.close();
      await Promise.all([...builds.values()].map(({ done }) => done));
    },
  };
}

function isStoreFailure(error: unknown): boolean {
  if (error instanceof TailcastError) return error.code === 'STORE_FAILED';
  return error instanceof Error && 'errno' in error;
}

type ReadStored = (name: string) => Promise<z.output<typeof storedIndex> | undefined>;

/**
 * Creates a function that reads indexes. The reader returns undefined for missing or incomplete files, which are then
 * built again. The most recent indexes stay in memory, because viewers request many keyframes of the same large
 * index.
 */
function createStoredReader(directory: string): ReadStored {
  const known = new BoundedMap<{ readonly inode: number; readonly stored: z.output<typeof storedIndex> }>(
    MAX_IN_MEMORY,
  );
  return async (name) => {
    const path = join(directory, `${name}.json`);
    try {
      const { ino: inode } = await stat(path);
      const now = new Date();
      await utimes(path, now, now);
      const there = known.get(name);
      if (there?.inode === inode) return there.stored;
      const stored = storedIndex.parse(JSON.parse(await readFile(path, 'utf8')));
      known.set(name, { inode, stored });
      return stored;
    } catch {
      known.delete(name);
      return undefined;
    }
  };
}

/** Removes the files of removed recordings. */
async function forget(directory: string, gone: ReadonlySet<string>): Promise<void> {
  for (const file of await listed(directory)) {
    if (gone.has(idOf(file))) await rm(join(directory, file), { force: true });
  }
}

/** Part of a cast that an index covers. */
interface Covered {
  readonly name: string;
  /** Length from the start of the cast, in bytes. */
  readonly bytes: number;
}

/**
 * Returns the bytes to index: the complete cast of a finished recording, or all complete steps (`GROWING_STEP_BYTES`)
 * of a growing recording. These bytes never change, so the keyframes stay valid.
 * @throws TailcastError `PLAY_INDEX_UNAVAILABLE` if the session has just started
 */
function coveredOf(entry: CatalogEntry): Covered {
  const { recording, version, identity = '' } = entry;
  if (version !== undefined) {
    // A program with write access to the store can give another cast the same length and time, but not the same
    // identity. Use a hash, because a version with many parts would be too long for a file name.
    const content = hash('sha256', `${version} ${identity}`).slice(0, HASH_DIGITS);
    return { name: encodeURIComponent(`${recording.id}~${content}`), bytes: castBytes(entry) };
  }
  const [newest] = growingOf(entry);
  if (newest === undefined) throw new TailcastError('PLAY_INDEX_UNAVAILABLE', 'the session is not over');
  return newest;
}

/** Returns all possible indexes of a growing recording, longest first. */
function growingOf(entry: CatalogEntry): readonly Covered[] {
  const steps = Math.floor(castBytes(entry) / GROWING_STEP_BYTES);
  return Array.from({ length: steps }, (_, index) => {
    const bytes = (steps - index) * GROWING_STEP_BYTES;
    return { name: encodeURIComponent(`${entry.recording.id}~growing-${bytes}`), bytes };
  });
}

/** Returns the id of the recording from an index name or a file name. */
function idOf(name: string): string {
  const [id = ''] = decodeURIComponent(name).split('~');
  return id;
}

/** Lists the files. The folder is created with its first file. */
function listed(directory: string): Promise<readonly string[]> {
  return readdir(directory).catch(() => []);
}

/** Removes incomplete files of earlier processes. */
async function removeLeftovers(directory: string): Promise<void> {
  const names = new Set(await listed(directory));
  for (const name of names) {
    const index = name.replace(/\.(?:frames|text)$/, '.json');
    if (!index.endsWith('.json') || !names.has(index)) await rm(join(directory, name), { force: true });
  }
}

/**
 * Creates a function that removes the least recently used indexes, except `kept`. The function reads the directory only
 * if the total size of the indexes may exceed the limit.
 */
function createTrim(directory: string, maxBytes: number): (kept: string) => Promise<void> {
  let total = Number.POSITIVE_INFINITY;
  return async (kept) => {
    total += (await sizeOf(directory, kept)).bytes;
    if (total <= maxBytes) return;
    const names = (await readdir(directory)).filter((file) => file.endsWith('.json'));
    const found = await Promise.all(names.map((file) => sizeOf(directory, file.slice(0, -'.json'.length))));
    total = found.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { name, bytes } of found.toSorted((left, right) => left.usedMs - right.usedMs)) {
      if (total <= maxBytes) return;
      if (name === kept) continue;
      for (const ending of ['.json', ...SIDE_FILES])
        await rm(join(directory, name + ending), { force: true });
      total -= bytes;
    }
  };
}

async function sizeOf(
  directory: string,
  name: string,
): Promise<{ readonly name: string; readonly bytes: number; readonly usedMs: number }> {
  const [index, ...others] = await Promise.all(
    ['.json', ...SIDE_FILES].map((ending) => stat(join(directory, name + ending)).catch(() => undefined)),
  );
  const bytes = [index, ...others].reduce((sum, file) => sum + (file?.size ?? 0), 0);
  return { name, bytes, usedMs: index?.mtimeMs ?? 0 };
}
