/** Describes recordings in the store. */
import { replaceSecrets } from '../../secrets.ts';
import { TailcastError, errorReason } from '../../errors.ts';
import { MAX_HEADER_LENGTH } from '../../wire/asciicast/header.ts';
import { parseHead, type CastHead } from './cast-head.ts';
import { storedFiles } from './cast-pieces.ts';
import { readCastTail } from './cast-tail.ts';
import { describeHead, isoMilliseconds, joinProblems } from './describe-head.ts';
import type { DescribedPart } from './join-parts.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { newerSidecar, parseSidecar, type Sidecar } from './sidecar.ts';
import { recordingId, recordingKey, type RecordingKey } from '../store/key.ts';
import type { ByteRange } from '../files/file-range.ts';
import {
  openObject,
  type ObjectKind,
  type ObjectStat,
  type ReadableStore,
  type StoredRecording,
} from '../store/store.ts';

/**
 * Returns the trust level of a recording from its sidecar.
 * @param key name of the cast
 * @param bytes length of the cast
 */
export type TrustOf = (sidecar: string | undefined, key: string, bytes: number) => Trust;

/**
 * Maximum length of all cached descriptions as JSON. Without a limit, other programs that write to the store could fill
 * the memory with long descriptions.
 */
const MAX_CACHED_LENGTH = 64 * 1024 ** 2;

/** Describes a stored recording. Returns undefined if the recording was removed. */
export type Describe = (recording: StoredRecording) => Promise<DescribedPart | undefined>;

/**
 * Creates a function that describes recordings. Unreadable recordings get the state `damaged`. Descriptions are cached
 * until the cast changes. Failures of the store are not cached.
 * @param maxCached maximum number of descriptions in memory
 * @param trustOf checks signatures. Default: recordings have no trust level
 */
export function createDescriber(store: ReadableStore, maxCached: number, trustOf?: TrustOf): Describe {
  const cache = new DescriptionCache(maxCached);
  return async (recording) => {
    const { key, hasSidecar, stat: listed } = recording;
    const id = recordingId(key);
    const known = listed === undefined ? undefined : cache.get(id, cachedVersion(listed, hasSidecar));
    if (known !== undefined) return known;
    const isOpened = listed !== undefined || !cache.has(id);
    // If the cast cannot be opened here, the code below reads it by its name, and handles the errors.
    await using cast = isOpened ? await openObject(store, key, 'cast').catch(() => undefined) : undefined;
    const stat = cast?.stat ?? (await store.stat(key, 'cast'));
    if (stat === undefined) return undefined;
    const { identity } = stat;
    const of = cachedVersion(stat, hasSidecar);
    const cached = cache.get(id, of);
    if (cached !== undefined) return cached;
    const read: ReadCast = (range) => cast?.read(range) ?? store.read(key, 'cast', range);
    const found = await describeOrDamaged(store, read, { ...recording, stat }, trustOf);
    if (found === undefined || found.isTransient) return found?.described;
    const { entry } = found.described;
    const described =
      identity === undefined ? found.described : { ...found.described, entry: { ...entry, identity } };
    cache.set(id, of, described);
    return described;
  };
}

/**
 * Describes a recording. An unreadable recording gets the state `damaged`. `isTransient`: the store failed, so another
 * attempt may succeed.
 */
async function describeOrDamaged(
  store: ReadableStore,
  read: ReadCast,
  recording: StoredRecording & { readonly stat: ObjectStat },
  trustOf: TrustOf | undefined,
): Promise<{ readonly described: DescribedPart; readonly isTransient: boolean } | undefined> {
  const { key, stat, hasSidecar } = recording;
  const version = versionOf(stat, hasSidecar);
  try {
    const described = await describeStored(store, read, recording, version, trustOf);
    return { described, isTransient: false };
  } catch (error) {
    // The recording was removed during the read.
    if (isUnknown(error) && (await store.stat(key, 'cast')) === undefined) return undefined;
    // Throw a programming error again, because it does not mean that the recording is damaged.
    if (error instanceof TypeError || error instanceof ReferenceError) throw error;
    const problem = `the recording cannot be read: ${errorReason(error)}`;
    const damaged = describeDamaged(key, stat.bytes, problem);
    const shown = trustOf ? { ...damaged, trust: 'unverified' as const, trustReason: problem } : damaged;
    const described = describeSingle(store, key, version, shown);
    // A failure of the store or the disk does not mean that the recording is damaged.
    return { described, isTransient: error instanceof Error && 'code' in error };
  }
}

/**
 * Cached descriptions of recordings. Map keys: id of the recording. If the cache exceeds a limit (`maxCount` or
 * {@link MAX_CACHED_LENGTH}), the oldest descriptions are dropped.
 */
class DescriptionCache {
  readonly #entries = new Map<
    string,
    { readonly of: string; readonly described: DescribedPart; readonly length: number }
  >();
  readonly #maxCount: number;
  #length = 0;

  constructor(maxCount: number) {
    this.#maxCount = maxCount;
  }

  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** @param of current version of the recording. A cached description of another version is not returned */
  get(id: string, of: string): DescribedPart | undefined {
    const entry = this.#entries.get(id);
    return entry?.of === of ? entry.described : undefined;
  }

  set(id: string, of: string, described: DescribedPart): void {
    this.#drop(id);
    const { length } = JSON.stringify(described);
    this.#entries.set(id, { of, described, length });
    this.#length += length;
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#maxCount && this.#length <= MAX_CACHED_LENGTH) return;
      this.#drop(oldest);
    }
  }

  #drop(id: string): void {
    this.#length -= this.#entries.get(id)?.length ?? 0;
    this.#entries.delete(id);
  }
}

/** Returns the current version of a recording, or undefined if the recording was removed. */
export async function storedVersion(
  store: ReadableStore,
  { key, hasSidecar, stat: listed }: StoredRecording,
): Promise<string | undefined> {
  const stat = listed ?? (await store.stat(key, 'cast'));
  return stat === undefined ? undefined : versionOf(stat, hasSidecar);
}

/** Returns the version from the listing; undefined if the listing contained no size and time. */
export function listedVersion({ stat, hasSidecar }: StoredRecording): string | undefined {
  return stat === undefined ? undefined : versionOf(stat, hasSidecar);
}

/** Returns a version that also identifies the content, if the store does. */
function cachedVersion(stat: ObjectStat, hasSidecar: boolean): string {
  return `${versionOf(stat, hasSidecar)} ${stat.identity}`;
}

/** Returns the version of a cast. Uses the size in the store: lists do not contain the size of an archive. */
function versionOf({ bytes, storedBytes = bytes, modifiedAtMs }: ObjectStat, hasSidecar: boolean): string {
  return `${storedBytes.toString(36)}-${Math.floor(modifiedAtMs).toString(36)}${hasSidecar ? 's' : ''}`;
}

function isUnknown(error: unknown): boolean {
  return error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN';
}

/** Describes a recording as a session with a single upload. */
function describeSingle(
  store: ReadableStore,
  key: RecordingKey,
  version: string,
  recording: Recording,
  resizeOrder: ResizeOrder = 'columnsFirst',
): DescribedPart {
  const files = storedFiles(store, key, recording.bytes, false);
  const pieces = [{ ...files.cast, start: 0 }];
  return {
    entry: { recording, key, resizeOrder, pieces, live: undefined, version },
    part: { session: recording.id, number: 1, offset: 0, headerBytes: 0, headerEnd: 0 },
    files,
    bodyEnd: recording.bytes,
    gapCount: 0,
  };
}

type ReadCast = (range: ByteRange) => AsyncIterable<Uint8Array>;

async function describeStored(
  store: ReadableStore,
  read: ReadCast,
  { key, stat, hasSidecar }: StoredRecording & { readonly stat: ObjectStat },
  version: string,
  trustOf: TrustOf | undefined,
): Promise<DescribedPart> {
  const text = hasSidecar ? await readText(store, key, 'sidecar', MAX_SIDECAR_BYTES) : undefined;
  const trust = trustOf?.(text, recordingKey(key), stat.bytes);
  const sidecar = text === undefined ? undefined : parseSidecar(text);
  if (sidecar !== undefined) {
    const stated = { ...describeFromSidecar(sidecar, key, stat.bytes), ...trust };
    const isProven = trust === undefined || trust.trust === 'verified';
    const recording = isProven ? stated : await withFactsOfHeader(read, stated, key);
    const described = describeSingle(store, key, version, recording, sidecar.cast.resizeOrder);
    return {
      ...described,
      part: sidecar.part ?? described.part,
      files: storedFiles(store, key, stat.bytes, sidecar.noteCount > 0),
      bodyEnd: sidecar.upload.bodyBytes,
      gapCount: sidecar.gapCount,
    };
  }
  const line = await readFirstLine(read, stat.bytes);
  const head = parseHead(line);
  if (head === undefined) {
    const problem = 'the header line cannot be read';
    return describeSingle(store, key, version, { ...describeDamaged(key, stat.bytes, problem), ...trust });
  }
  const foreign = await describeForeign(read, key, head, stat.bytes);
  const recording =
    text === undefined
      ? foreign
      : { ...foreign, ...joinProblems(foreign.problem, newerSidecar(text) ?? 'the sidecar cannot be read') };
  return describeSingle(store, key, version, { ...recording, ...trust }, head.resizeOrder);
}

/** Maximum size of a sidecar, in bytes. */
export const MAX_SIDECAR_BYTES = 8_388_608;

/** Describes a recording from its sidecar. Id, key, time and length come from the stored cast, not from the sidecar. */
function describeFromSidecar({ recording, cast }: Sidecar, key: RecordingKey, bytes: number): Recording {
  const changed = cast.bytes !== bytes;
  return {
    ...recording,
    ...(recording.command === undefined ? {} : { command: replaceSecrets(recording.command) }),
    id: recordingId(key),
    key: recordingKey(key),
    startedAt: isoMilliseconds(key.time),
    bytes,
    ...(changed ? { problem: 'the length of the cast differs from the stored length' } : {}),
  };
}

/**
 * Replaces the source, pod and cluster of a recording with the values in the header of its cast. These facts decide who
 * may see the recording. If a sidecar has no valid signature, anyone with write access to the store may have changed
 * it.
 */
async function withFactsOfHeader(
  read: ReadCast,
  { kubernetes: _pod, cluster: _cluster, ...stated }: Recording,
  key: RecordingKey,
): Promise<Recording> {
  const head = parseHead(await readFirstLine(read, stated.bytes));
  if (head === undefined)
    return { ...stated, ...describeDamaged(key, stated.bytes, 'the header line cannot be read') };
  const { source, kubernetes, cluster, problem } = head;
  return {
    ...stated,
    source,
    ...(kubernetes === undefined ? {} : { kubernetes }),
    ...(cluster === undefined ? {} : { cluster }),
    ...joinProblems(problem, stated.problem),
  };
}

/** Describes a recording without a sidecar, for example a recording of the reference. */
async function describeForeign(
  read: ReadCast,
  key: RecordingKey,
  head: CastHead,
  bytes: number,
): Promise<Recording> {
  const readAt = async (start: number, end: number): Promise<Uint8Array> =>
    Buffer.concat(await Array.fromAsync(read({ start, end })));
  const { durationSeconds, endsWithLineFeed } = await readCastTail(readAt, bytes);
  return {
    ...describeHead(key, head),
    destination: { node: head.destination.node, nodeId: head.destination.nodeId || key.nodeId },
    state: endsWithLineFeed ? 'completed' : 'interrupted',
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    bytes,
    ...joinProblems(head.problem, endsWithLineFeed ? undefined : 'the recording ends inside of a line'),
  };
}

/** Describes a recording whose content is unreadable. */
export function describeDamaged(key: RecordingKey, bytes: number, problem: string): Recording {
  return {
    ...describeHead(key, {
      width: 0,
      height: 0,
      kind: 'unknown',
      source: { node: '', nodeId: '' },
      destination: { node: '', nodeId: key.nodeId },
      resizeOrder: 'columnsFirst',
    }),
    state: 'damaged',
    bytes,
    problem,
  };
}

async function readFirstLine(read: ReadCast, bytes: number): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of read({ start: 0, end: Math.min(bytes, MAX_HEADER_LENGTH) })) {
    const end = chunk.indexOf(0x0a);
    parts.push(end < 0 ? chunk : chunk.subarray(0, end));
    if (end >= 0) break;
  }
  return Buffer.concat(parts).toString();
}

/** Reads the first `maxBytes` bytes of an object as text. */
export async function readText(
  store: ReadableStore,
  key: RecordingKey,
  kind: ObjectKind,
  maxBytes: number,
): Promise<string> {
  const chunks = await Array.fromAsync(store.read(key, kind, { start: 0, end: maxBytes }));
  return Buffer.concat(chunks).toString();
}
