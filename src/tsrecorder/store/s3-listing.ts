/**
 * Lists the recordings in a bucket. Each list reads the recent recordings from the bucket. Old recordings are read less
 * often (`fullListMs`). The list contains the same JavaScript objects as before for unchanged recordings, and it is the
 * same array as before if nothing changed.
 */
import { createLimiter } from '../../async/limiter.ts';
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import type { Bucket, BucketObject } from './bucket.ts';
import {
  SESSIONS_FOLDER,
  SUFFIX,
  decodeNodeId,
  parseMarkName,
  parseRecordingKey,
  parseTime,
  recordingId,
  type RecordingKey,
} from './key.ts';
import { isSameObject, type StoredRecording } from './store.ts';

/** Number of node folders that are listed in parallel. */
const LIST_CONCURRENCY = 8;

export interface S3ListingOptions {
  readonly bucket: Pick<Bucket, 'list'>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /**
   * Maximum age of recordings that each list reads from the bucket, in milliseconds. Older recordings are read every
   * `fullListMs`.
   */
  readonly recentMs: number;
  readonly fullListMs: number;
}

type Marks = ReadonlyMap<string, string>;

/** Lister of one bucket. */
export class S3Listing {
  readonly #options: S3ListingOptions;
  /** Recordings in each folder. Folders and recordings are in the order of their names. */
  #known: ReadonlyMap<string, readonly StoredRecording[]> = new Map();
  #last: readonly StoredRecording[] = [];
  /** Time of the last full list; undefined if a full list is due. */
  #fullAt: number | undefined;
  /** Number of changes since the start. If this number changes during a full list, the list is obsolete. */
  #generation = 0;
  /** Lists all recordings. Waiting calls share one list, which is read after the last of these calls. */
  readonly list = createSharedStep(createSequence(), () => this.#list());

  constructor(options: S3ListingOptions) {
    this.#options = options;
  }

  /** Reports that this process stored a recording. */
  changed(key: RecordingKey): void {
    // The recording of a long session has an old key, so only a full list finds it.
    if (timeOf(key) < this.#options.nowMs() - this.#options.recentMs) this.forget();
  }

  /** Reports that this process removed a recording. */
  forget(): void {
    this.#fullAt = undefined;
    this.#generation += 1;
  }

  async #list(): Promise<readonly StoredRecording[]> {
    const { nowMs, recentMs, fullListMs } = this.#options;
    const now = nowMs();
    const isFull = this.#fullAt === undefined || now - this.#fullAt >= fullListMs;
    const begun = this.#generation;
    const before = this.#known;
    const known = await this.#listSince(isFull ? 0 : now - recentMs);
    this.#known = known;
    if (isFull && this.#generation === begun) this.#fullAt = now;
    const isSame =
      known.size === before.size && [...known].every(([node, found]) => before.get(node) === found);
    if (isSame) return this.#last;
    const turns = createLoopTurns();
    const all: StoredRecording[] = [];
    for (const found of known.values())
      for (const recording of found) {
        if (turns.isDue()) await turns.turn();
        all.push(recording);
      }
    this.#last = all;
    return all;
  }

  async #listSince(since: number): Promise<ReadonlyMap<string, readonly StoredRecording[]>> {
    const { bucket } = this.#options;
    const folders = await listNodes(bucket);
    const limiter = createLimiter({ maxActive: LIST_CONCURRENCY });
    // Start at full seconds, because a name without a fraction sorts before names with a fraction of the same second.
    const start = new Date(Math.max(0, since)).toISOString().slice(0, 19);
    const listed = await Promise.all(
      folders.map(async (folder) => ({
        folder,
        objects: await limiter.run(() => listObjects(bucket, folder, start)),
      })),
    );
    // A session mark is stored before its recording, so each listed recording already has its mark.
    const marks = await listMarks(bucket);
    const found = new Map<string, readonly StoredRecording[]>();
    for (const { folder, objects } of listed) {
      const before = this.#known.get(folder) ?? [];
      found.set(folder, await recordingsIn(objects, { start, before, marks }));
    }
    return found;
  }
}

async function listMarks(bucket: S3ListingOptions['bucket']): Promise<Marks> {
  const marks = new Map<string, string>();
  for await (const { objects } of bucket.list({ prefix: SESSIONS_FOLDER })) {
    for (const { name } of objects) {
      const parsed = parseMarkName(name.slice(SESSIONS_FOLDER.length));
      if (parsed !== undefined) marks.set(parsed.id, parsed.mark);
    }
  }
  return marks;
}

/** Lists the folders of tailnet nodes. Each name ends with `/`. */
async function listNodes(bucket: S3ListingOptions['bucket']): Promise<readonly string[]> {
  const nodes: string[] = [];
  for await (const { folders } of bucket.list({ prefix: '', folders: true })) {
    nodes.push(...folders.filter((folder) => decodeNodeId(folder.slice(0, -1)) !== undefined));
  }
  return nodes;
}

/** Objects in the folder of a tailnet node. */
interface NodeObjects {
  readonly casts: readonly { readonly key: RecordingKey; readonly object: BucketObject }[];
  /** Sizes of the other objects, in bytes. Map keys: object names. */
  readonly others: ReadonlyMap<string, number>;
}

interface NodeBefore {
  /** First second to list, in the format of the times in object names. */
  readonly start: string;
  /** Recordings in the order of their names. */
  readonly before: readonly StoredRecording[];
  readonly marks: Marks;
}

/**
 * Lists the objects in the folder of a tailnet node from the given second on. The request omits names below `events/`.
 */
async function listObjects(
  bucket: S3ListingOptions['bucket'],
  folder: string,
  start: string,
): Promise<NodeObjects> {
  const casts: { readonly key: RecordingKey; readonly object: BucketObject }[] = [];
  const others = new Map<string, number>();
  for await (const { objects } of bucket.list({
    prefix: folder,
    startAfter: folder + start,
    folders: true,
  })) {
    for (const object of objects) {
      const key = parseRecordingKey(object.name);
      if (key !== undefined) casts.push({ key, object });
      else others.set(object.name, object.bytes);
    }
  }
  return { casts, others };
}

/**
 * Returns the recordings of a tailnet node, in the order of their names. Recordings before `start` are taken from the
 * previous list.
 *
 * @returns the same array as before if nothing changed
 */
async function recordingsIn(
  { casts, others }: NodeObjects,
  { start, before, marks }: NodeBefore,
): Promise<readonly StoredRecording[]> {
  const turns = createLoopTurns();
  const byName = (left: { readonly key: RecordingKey }, right: { readonly key: RecordingKey }): number =>
    left.key.time < right.key.time ? -1 : 1;
  const found: StoredRecording[] = [];
  let isSame = true;
  let at = 0;
  const take = async (end: string): Promise<void> => {
    for (let next = before[at]; next !== undefined && next.key.time < end; next = before[at]) {
      if (turns.isDue()) await turns.turn();
      found.push(next);
      at += 1;
    }
  };
  await take(start);
  for (const { key, object } of await sortInTurns(casts, byName, turns)) {
    if (turns.isDue()) await turns.turn();
    while ((before[at]?.key.time ?? key.time) < key.time) at += 1;
    const there = before[at];
    const now = recordingOf(key, object, others, marks);
    const isAsBefore = there !== undefined && isEqual(there, now);
    isSame &&= isAsBefore;
    found.push(isAsBefore ? there : now);
  }
  return isSame && found.length === before.length ? before : found;
}

function recordingOf(
  key: RecordingKey,
  { name, ...stat }: BucketObject,
  others: ReadonlyMap<string, number>,
  marks: Marks,
): StoredRecording {
  const base = name.slice(0, -SUFFIX.cast.length);
  const sidecar = others.get(base + SUFFIX.sidecar);
  const sessionMark = marks.size === 0 ? undefined : marks.get(recordingId(key));
  return {
    key,
    hasSidecar: sidecar !== undefined,
    stat,
    bytes: stat.bytes + (sidecar ?? 0) + (others.get(base + SUFFIX.notes) ?? 0),
    ...(sessionMark === undefined ? {} : { sessionMark }),
  };
}

function isEqual(left: StoredRecording, right: StoredRecording): boolean {
  return (
    left.key.time === right.key.time &&
    left.hasSidecar === right.hasSidecar &&
    left.bytes === right.bytes &&
    isSameObject(left.stat, right.stat) &&
    left.sessionMark === right.sessionMark
  );
}

function timeOf({ time }: RecordingKey): number {
  return Number((parseTime(time) ?? 0n) / 1_000_000n);
}
