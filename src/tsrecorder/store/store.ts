/**
 * The store of finished recordings. Catalogue, API and finisher use only this interface. There are implementations for
 * local directories and for buckets.
 *
 * The objects of a recording are written once and never changed. The caches and the search index of a recorder can be
 * rebuilt from the store.
 */
import type { ByteRange } from '../files/file-range.ts';
import type { DocumentStore } from './document-store.ts';
import type { RecordingKey } from './key.ts';

/** A finished upload whose files are still in the spool. */
export interface FinishedUpload {
  readonly key: RecordingKey;
  /** Path and length of the durable recording. */
  readonly castPath: string;
  readonly castBytes: number;
  /** Path of the durable notes; undefined if the upload has no notes. */
  readonly notesPath: string | undefined;
  readonly notesBytes: number;
  /** The sidecar document. */
  readonly sidecar: string;
  /**
   * True if a stored sidecar is from an earlier attempt of this upload. Such a sidecar can differ, for example in the
   * end time. Without this function, only an identical sidecar is accepted.
   */
  readonly isOwnSidecar?: (stored: string) => boolean;
  /** Session mark, if other uploads may contain other parts of the session; see `session-part.ts`. */
  readonly sessionMark: string | undefined;
}

/** A recording in the store. */
export interface StoredRecording {
  readonly key: RecordingKey;
  readonly hasSidecar: boolean;
  /** Size in the store and time of the cast, if the list contains them. The cast of an archive is longer. */
  readonly stat?: ObjectStat;
  /** Size of cast, sidecar and notes together, if the list contains it. */
  readonly bytes?: number;
  /**
   * Session mark that the caller passed to `finish`. Recordings with the same session mark may be parts of one session.
   */
  readonly sessionMark?: string;
}

/** The objects of one recording. */
export type ObjectKind = 'cast' | 'sidecar' | 'notes';

/** Size and time of an object. */
export interface ObjectStat {
  /** Number of bytes that a read returns. */
  readonly bytes: number;
  /** Size in the store, if it differs from `bytes`. */
  readonly storedBytes?: number;
  readonly modifiedAtMs: number;
  /**
   * Identifies the content. The value changes with every replacement, even if length and time are the same. Undefined
   * if the store has no such value.
   */
  readonly identity?: string;
}

/** An object that is open for several reads. */
export interface OpenObject extends AsyncDisposable {
  readonly stat: ObjectStat;
  /** Reads the object or a range of it. */
  readonly read: (range?: ByteRange) => AsyncIterable<Uint8Array>;
}

/** True if both values describe the same object, and the object was not replaced between the two reads. */
export function isSameObject(left: ObjectStat | undefined, right: ObjectStat | undefined): boolean {
  return (
    left === right ||
    (left?.bytes === right?.bytes &&
      left?.storedBytes === right?.storedBytes &&
      left?.modifiedAtMs === right?.modifiedAtMs &&
      left?.identity === right?.identity)
  );
}

/** Interface of all stores. */
export interface RecordingStore extends DocumentStore {
  /**
   * Stores a finished upload. Writes the cast last, after notes and sidecar, so that each listed recording is complete.
   * A repeated call with the same upload changes nothing.
   *
   * @throws TailcastError `UPLOAD_CONFLICT` if the key has another cast, or the same cast with other notes or another
   *   sidecar; `STORE_FAILED` otherwise
   */
  finish(upload: FinishedUpload): Promise<void>;
  /** Stores one event durably under a new key. @throws TailcastError `STORE_FAILED` */
  putEvent(key: RecordingKey, content: string): Promise<void>;
  /** Lists all recordings, unordered. */
  list(): Promise<readonly StoredRecording[]>;
  /** Returns size and time of an object; undefined if it does not exist. */
  stat(key: RecordingKey, kind: ObjectKind): Promise<ObjectStat | undefined>;
  /** Reads an object or a range of it. @throws TailcastError `RECORDING_UNKNOWN` */
  read(key: RecordingKey, kind: ObjectKind, range?: ByteRange): AsyncIterable<Uint8Array>;
  /**
   * Opens an object, because several reads of one open file are cheaper. Stores without this method have no open
   * objects. @returns undefined if the object does not exist
   */
  open?(key: RecordingKey, kind: ObjectKind): Promise<OpenObject | undefined>;
  /**
   * Removes a recording, if it exists. Removes the cast last, so that the recording stays listed after a failure, and a
   * repeated call removes the remaining objects.
   */
  remove(key: RecordingKey): Promise<void>;
  /**
   * Returns the number of free bytes, if the store knows it. @throws TailcastError `STORE_FAILED` if the store is
   * unusable
   */
  freeBytes(): Promise<number | undefined>;
}

/** Store methods for readers of recordings. */
export type ReadableStore = Pick<RecordingStore, 'list' | 'stat' | 'read' | 'open'>;

/** Opens an object of any store. @returns undefined if the object does not exist */
export async function openObject(
  store: Pick<RecordingStore, 'stat' | 'read' | 'open'>,
  key: RecordingKey,
  kind: ObjectKind,
): Promise<OpenObject | undefined> {
  if (store.open !== undefined) return store.open(key, kind);
  const stat = await store.stat(key, kind);
  if (stat === undefined) return undefined;
  const read: OpenObject['read'] = (range) => store.read(key, kind, range);
  return { stat, read, [Symbol.asyncDispose]: () => Promise.resolve() };
}
