/** Describes recordings from what the store holds of them. */
import { replaceSecrets } from '../../secrets.ts';
import { TailcastError, errorReason } from '../../errors.ts';
import { MAX_HEADER_LENGTH } from '../../wire/asciicast/header.ts';
import { castFromVersion1, isVersion1, MAX_VERSION1_BYTES } from '../../wire/asciicast/version1.ts';
import { WireError } from '../../wire/wire-error.ts';
import type { ByteRange } from '../files/file-range.ts';
import { parseHead, type CastHead } from './cast-head.ts';
import { storedFiles } from './cast-pieces.ts';
import { readCastTail } from './cast-tail.ts';
import { describeHead } from './describe-head.ts';
import type { DescribedPart } from './join-parts.ts';
import type { Recording, ResizeOrder } from '../../wire/recorder-api/recording.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { newerSidecar, parseSidecar, type Sidecar } from './sidecar.ts';
import { recordingId, recordingKey, type RecordingKey } from '../store/key.ts';
import type { ObjectKind, ObjectStat, ReadableStore, StoredRecording } from '../store/store.ts';

/** Whether a sidecar is signed by a recorder that counts. @param key name of the cast, and `bytes` its length */
export type TrustOf = (sidecar: string | undefined, key: string, bytes: number) => Trust;

export type Describe = (recording: StoredRecording) => Promise<DescribedPart | undefined>;

/**
 * Unreadable recordings are described as damaged. A description is cached until the cast is replaced, unless the store failed.
 *
 * @param maxCached descriptions kept in memory.
 * @param trustOf default: nothing is said about trust.
 */
export function createDescriber(store: ReadableStore, maxCached: number, trustOf?: TrustOf): Describe {
  const cache = new Map<string, { readonly of: string; readonly described: DescribedPart }>();
  return async ({ key, hasSidecar, stat: listed }) => {
    const id = recordingId(key);
    const stat = listed ?? (await store.stat(key, 'cast'));
    if (stat === undefined) return undefined;
    const version = versionOf(stat, hasSidecar);
    const cached = cache.get(id);
    const of = `${version} ${stat.identity}`;
    if (cached?.of === of) return cached.described;
    let described: DescribedPart;
    try {
      described = await describeStored(store, key, stat, version, hasSidecar, trustOf);
    } catch (error) {
      // removed while it was read
      if (isUnknown(error) && (await store.stat(key, 'cast')) === undefined) return undefined;
      // a fault of this program says nothing about the recording, and must not pass for damage
      if (error instanceof TypeError || error instanceof ReferenceError) throw error;
      const problem = `the recording cannot be read: ${errorReason(error)}`;
      const recording = describeDamaged(key, stat.bytes, problem);
      described = describeAlone(
        store,
        key,
        version,
        trustOf ? { ...recording, ...untrusted(problem) } : recording,
      );
      // a store or a disk that fails says nothing about the recording
      if (error instanceof Error && 'code' in error) return described;
    }
    const [oldest] = cache.keys();
    if (cache.size >= maxCached && oldest !== undefined) cache.delete(oldest);
    cache.set(id, { of, described });
    return described;
  };
}

function untrusted(trustReason: string): Trust {
  return { trust: 'unverified', trustReason };
}

/** What a recording is now; undefined: gone. */
export async function storedVersion(
  store: ReadableStore,
  { key, hasSidecar, stat: listed }: StoredRecording,
): Promise<string | undefined> {
  const stat = listed ?? (await store.stat(key, 'cast'));
  return stat === undefined ? undefined : versionOf(stat, hasSidecar);
}

/** The same as far as listing the store tells it. */
export function listedVersion({ stat, hasSidecar }: StoredRecording): string | undefined {
  return stat === undefined ? undefined : versionOf(stat, hasSidecar);
}

function versionOf({ bytes, modifiedAtMs }: ObjectStat, hasSidecar: boolean): string {
  return `${bytes.toString(36)}-${Math.floor(modifiedAtMs).toString(36)}${hasSidecar ? 's' : ''}`;
}

function isUnknown(error: unknown): boolean {
  return error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN';
}

/** As a recording that is a session of its own. */
function describeAlone(
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

async function describeStored(
  store: ReadableStore,
  key: RecordingKey,
  stat: ObjectStat,
  version: string,
  hasSidecar: boolean,
  trustOf: TrustOf | undefined,
): Promise<DescribedPart> {
  const text = hasSidecar ? await readText(store, key, 'sidecar', MAX_SIDECAR_BYTES) : undefined;
  const trust = trustOf?.(text, recordingKey(key), stat.bytes);
  const sidecar = text === undefined ? undefined : parseSidecar(text);
  if (sidecar !== undefined) {
    const recording = { ...describeFromSidecar(sidecar, key, stat.bytes), ...trust };
    const described = describeAlone(store, key, version, recording, sidecar.cast.resizeOrder);
    return {
      ...described,
      part: sidecar.part ?? described.part,
      files: storedFiles(store, key, stat.bytes, sidecar.noteCount > 0),
      bodyEnd: sidecar.upload.bodyBytes,
      gapCount: sidecar.gapCount,
    };
  }
  const line = await readFirstLine(store, key, stat.bytes);
  // a document may have several lines
  const beginning = line.trim() === '{' ? await readText(store, key, 'cast', BEGINNING_BYTES) : line;
  if (isVersion1(beginning)) return await describeVersion1(store, key, stat.bytes, version, trust);
  const head = parseHead(line);
  if (head === undefined) {
    const problem = 'the header line cannot be read';
    return describeAlone(store, key, version, { ...describeDamaged(key, stat.bytes, problem), ...trust });
  }
  const foreign = await describeForeign(key, head, stat.bytes, async (start, end) =>
    Buffer.concat(await Array.fromAsync(store.read(key, 'cast', { start, end }))),
  );
  const recording =
    text === undefined
      ? foreign
      : { ...foreign, problem: newerSidecar(text) ?? 'the sidecar cannot be read' };
  return describeAlone(store, key, version, { ...recording, ...trust }, head.resizeOrder);
}

/** A file of asciicast version 1: everybody who reads it gets the same as version 2. */
async function describeVersion1(
  store: ReadableStore,
  key: RecordingKey,
  bytes: number,
  version: string,
  trust: Trust | undefined,
): Promise<DescribedPart> {
  if (bytes > MAX_VERSION1_BYTES) {
    const problem = `a recording of asciicast version 1 can be read up to ${MAX_VERSION1_BYTES / 1024 ** 2} MiB`;
    return describeAlone(store, key, version, { ...describeDamaged(key, bytes, problem), ...trust });
  }
  const convert = async (): Promise<Uint8Array> =>
    Buffer.from(castFromVersion1(await readText(store, key, 'cast', MAX_VERSION1_BYTES)));
  const converted = await convert();
  const read = async (start: number, end: number): Promise<Uint8Array> => converted.subarray(start, end);
  const head = parseHead(Buffer.from(converted.subarray(0, converted.indexOf(0x0a))).toString());
  if (head === undefined) throw new WireError('malformed', 'the header cannot be read');
  const { length } = converted;
  const recording = await describeForeign(key, head, length, read);
  const cast = {
    end: () => length,
    async *read({ start, end }: ByteRange) {
      yield (await convert()).subarray(start, end);
    },
    live: undefined,
  };
  const described = describeAlone(store, key, version, { ...recording, ...trust }, head.resizeOrder);
  return {
    ...described,
    entry: { ...described.entry, pieces: [{ ...cast, start: 0 }] },
    files: { cast, notes: undefined },
  };
}

const BEGINNING_BYTES = 4096;
export const MAX_SIDECAR_BYTES = 8_388_608;

/** Id, key and length are those of the cast that is there, whatever the sidecar says. */
function describeFromSidecar({ recording, cast }: Sidecar, key: RecordingKey, bytes: number): Recording {
  const changed = cast.bytes !== bytes;
  return {
    ...recording,
    ...(recording.command === undefined ? {} : { command: replaceSecrets(recording.command) }),
    id: recordingId(key),
    key: recordingKey(key),
    bytes,
    ...(changed ? { problem: 'the cast is not as long as it was when it was stored' } : {}),
  };
}

/** A recording without a sidecar: of the reference, or copied in. */
async function describeForeign(
  key: RecordingKey,
  head: CastHead,
  bytes: number,
  read: (start: number, end: number) => Promise<Uint8Array>,
): Promise<Recording> {
  const { durationSeconds, endsWhole } = await readCastTail(read, bytes, head.version);
  return {
    ...describeHead(key, head),
    destination: { node: head.destination.node, nodeId: head.destination.nodeId || key.nodeId },
    state: endsWhole ? 'completed' : 'interrupted',
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    bytes,
    ...(endsWhole ? {} : { problem: 'the recording ends inside of a line' }),
  };
}

/** A recording of which nothing can be read but its name. */
export function describeDamaged(key: RecordingKey, bytes: number, problem: string): Recording {
  return {
    ...describeHead(key, {
      version: 2,
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

async function readFirstLine(store: ReadableStore, key: RecordingKey, bytes: number): Promise<string> {
  const parts: Uint8Array[] = [];
  const range = { start: 0, end: Math.min(bytes, MAX_HEADER_LENGTH) };
  for await (const chunk of store.read(key, 'cast', range)) {
    const end = chunk.indexOf(0x0a);
    parts.push(end < 0 ? chunk : chunk.subarray(0, end));
    if (end >= 0) break;
  }
  return Buffer.concat(parts).toString();
}

export async function readText(
  store: ReadableStore,
  key: RecordingKey,
  kind: ObjectKind,
  maxBytes: number,
): Promise<string> {
  const chunks = await Array.fromAsync(store.read(key, kind, { start: 0, end: maxBytes }));
  return Buffer.concat(chunks).toString();
}
