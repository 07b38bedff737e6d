/**
 * The store in a bucket, in the same layout as the one in a directory: see `key.ts`. Several recorders may share it.
 *
 * There is no index object: names are listed in order, so the recordings of a node since a time are one request per
 * thousand, and everything a list shows stands in the sidecars, which the catalogue remembers. An index would have to be
 * written by all replicas at once, and could be wrong.
 */
import { TailcastError } from '../../errors.ts';
import { createGatekeeper } from '../../async/gatekeeper.ts';
import type { Bucket, BucketObject } from './bucket.ts';
import { isDocumentName, type DocumentStore } from './document-store.ts';
import {
  SESSIONS_FOLDER,
  decodeNodeId,
  eventKey,
  markName,
  parseMarkName,
  parseRecordingKey,
  parseTime,
  recordingId,
  recordingKey,
  EVENTS_MARKER,
  SUFFIX,
  type RecordingKey,
} from './key.ts';
import type { ObjectKind, RecordingStore, StoredRecording } from './store.ts';

/** Nodes listed at a time. */
const LIST_CONCURRENCY = 8;

export interface S3StoreOptions {
  readonly bucket: Bucket;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Recordings that began longer ago than this are listed anew only every `fullListMs`. */
  readonly recentMs: number;
  readonly fullListMs: number;
}

export const S3_LISTING = { recentMs: 24 * 3_600_000, fullListMs: 300_000 } as const;

/** One per bucket and process. Nothing is asked of the bucket before the first call. */
export function createS3Store(options: S3StoreOptions): RecordingStore {
  const { bucket } = options;
  const listing = createListing(options);
  let eventsMarked = false;

  const objectName = (key: RecordingKey, kind: ObjectKind): string =>
    recordingKey(key).slice(0, -SUFFIX.cast.length) + SUFFIX[kind];

  return {
    async finish(upload) {
      const { key } = upload;
      const retain = { retain: true };
      if ((await bucket.stat(objectName(key, 'cast'))) === undefined) {
        if (upload.notesPath !== undefined) {
          await bucket.putFile(objectName(key, 'notes'), upload.notesPath, upload.notesBytes, retain);
        }
        await bucket.put(objectName(key, 'sidecar'), Buffer.from(upload.sidecar), retain);
        if (upload.sessionMark !== undefined) {
          await bucket.put(SESSIONS_FOLDER + markName(key, upload.sessionMark), new Uint8Array());
        }
      }
      const once = { retain: true, once: true };
      await bucket.putFile(objectName(key, 'cast'), upload.castPath, upload.castBytes, once);
      listing.changed(key);
    },
    async putEvent(key, content) {
      await bucket.put(eventKey(key), Buffer.from(content), { retain: true });
      if (eventsMarked) return;
      await bucket.put(EVENTS_MARKER, new Uint8Array());
      eventsMarked = true;
    },
    list: () => listing.list(),
    stat: (key, kind) => bucket.stat(objectName(key, kind)),
    read: (key, kind, range) => bucket.get(objectName(key, kind), range),
    async remove(key) {
      await bucket.remove(objectName(key, 'cast'));
      await bucket.remove(objectName(key, 'sidecar'));
      await bucket.remove(objectName(key, 'notes'));
      for await (const { objects } of bucket.list({ prefix: `${SESSIONS_FOLDER}${recordingId(key)}~` })) {
        for (const { name } of objects) await bucket.remove(name);
      }
      listing.forget();
    },
    ...createDocuments(bucket),
    // a bucket has no end
    freeBytes: () => Promise.resolve(undefined),
  };
}

/** Documents are objects. */
function createDocuments(bucket: Bucket): DocumentStore {
  const checked = (name: string): string => {
    if (!isDocumentName(name)) throw new TailcastError('STORE_FAILED', 'this is no name of a document');
    return name;
  };
  return {
    async putDocument(name, content) {
      await bucket.put(checked(name), content, { once: true, retain: true });
    },
    async claimDocument(name, content) {
      try {
        await bucket.put(checked(name), content, { once: true });
        return true;
      } catch (error) {
        if (error instanceof TailcastError && error.code === 'UPLOAD_CONFLICT') return false;
        throw error;
      }
    },
    async replaceDocument(name, content) {
      await bucket.put(checked(name), content);
    },
    async listDocuments(prefix) {
      const names: string[] = [];
      for await (const { objects } of bucket.list({ prefix: `${checked(prefix.slice(0, -1))}/` })) {
        names.push(...objects.map(({ name }) => name));
      }
      return names.toSorted();
    },
    async readDocument(name) {
      try {
        return Buffer.concat(await Array.fromAsync(bucket.get(checked(name))));
      } catch (error) {
        if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
        throw error;
      }
    },
    async removeDocument(name) {
      await bucket.remove(checked(name));
    },
  };
}

interface Listing {
  list(): Promise<readonly StoredRecording[]>;
  /** This process stored a recording. */
  changed(key: RecordingKey): void;
  /** This process removed a recording. */
  forget(): void;
}

/** What is in the bucket: new recordings are asked for each time, old ones now and then. */
function createListing({ bucket, nowMs, recentMs, fullListMs }: S3StoreOptions): Listing {
  let full: { readonly at: number; readonly old: ReadonlyMap<string, StoredRecording> } | undefined;
  /** Counts what makes a full listing obsolete, also while it is being made. */
  let generation = 0;

  function forget(): void {
    full = undefined;
    generation += 1;
  }

  async function listSince(since: number): Promise<Map<string, StoredRecording>> {
    const [marks, folders] = await Promise.all([listMarks(bucket), listNodes(bucket)]);
    const gatekeeper = createGatekeeper({ maxActive: LIST_CONCURRENCY });
    const found = new Map<string, StoredRecording>();
    await Promise.all(
      folders.map((folder) =>
        gatekeeper.run(async () => {
          for (const recording of await listNode(bucket, folder, since)) {
            const id = recordingId(recording.key);
            const sessionMark = marks.get(id);
            found.set(id, sessionMark === undefined ? recording : { ...recording, sessionMark });
          }
        }),
      ),
    );
    return found;
  }

  return {
    async list() {
      const now = nowMs();
      const since = now - recentMs;
      const known = full;
      if (known === undefined || now - known.at >= fullListMs) {
        const begun = generation;
        const all = await listSince(0);
        if (generation === begun) full = { at: now, old: all };
        return [...all.values()];
      }
      const recent = await listSince(since);
      for (const [id, recording] of known.old) {
        if (timeOf(recording.key) < since && !recent.has(id)) recent.set(id, recording);
      }
      return [...recent.values()];
    },
    changed(key) {
      // a session that began long ago: it is not among the recent ones
      if (timeOf(key) < nowMs() - recentMs) forget();
    },
    forget,
  };
}

async function listMarks(bucket: Bucket): Promise<ReadonlyMap<string, string>> {
  const marks = new Map<string, string>();
  for await (const { objects } of bucket.list({ prefix: SESSIONS_FOLDER })) {
    for (const { name } of objects) {
      const parsed = parseMarkName(name.slice(SESSIONS_FOLDER.length));
      if (parsed !== undefined) marks.set(parsed.id, parsed.mark);
    }
  }
  return marks;
}

/** Folders of nodes, each with its `/`. */
async function listNodes(bucket: Bucket): Promise<readonly string[]> {
  const nodes: string[] = [];
  for await (const { folders } of bucket.list({ prefix: '', folders: true })) {
    nodes.push(...folders.filter((folder) => decodeNodeId(folder.slice(0, -1)) !== undefined));
  }
  return nodes;
}

/** Recordings in one folder; `events/` is skipped by the store itself. */
async function listNode(bucket: Bucket, folder: string, since: number): Promise<readonly StoredRecording[]> {
  const casts: { readonly key: RecordingKey; readonly object: BucketObject }[] = [];
  const others = new Map<string, number>();
  // seconds come before fractions in the order of names, so cutting the time to seconds loses none
  const startAfter = `${folder}${new Date(Math.max(0, since)).toISOString().slice(0, 19)}`;
  for await (const { objects } of bucket.list({ prefix: folder, startAfter, folders: true })) {
    for (const object of objects) {
      const key = parseRecordingKey(object.name);
      if (key !== undefined) casts.push({ key, object });
      else others.set(object.name, object.bytes);
    }
  }
  return casts.map(({ key, object: { name, bytes, modifiedAtMs } }) => {
    const base = name.slice(0, -SUFFIX.cast.length);
    const sidecar = others.get(base + SUFFIX.sidecar);
    return {
      key,
      hasSidecar: sidecar !== undefined,
      stat: { bytes, modifiedAtMs },
      bytes: bytes + (sidecar ?? 0) + (others.get(base + SUFFIX.notes) ?? 0),
    };
  });
}

function timeOf({ time }: RecordingKey): number {
  return Number((parseTime(time) ?? 0n) / 1_000_000n);
}
