/**
 * Where finished recordings live. The catalogue, the API and the finisher know this interface only; a local directory
 * is one implementation, an object store another.
 *
 * Objects are written once and never changed. Nothing here needs a database: everything can be rebuilt from `list`.
 */
import type { ByteRange } from '../files/file-range.ts';
import type { DocumentStore } from './document-store.ts';
import type { RecordingKey } from './key.ts';

/** A finished upload, still in the spool. */
export interface FinishedUpload {
  readonly key: RecordingKey;
  /** Path and length of the cast, durable. */
  readonly castPath: string;
  readonly castBytes: number;
  /** Path of the notes, durable; undefined when there are none. */
  readonly notesPath: string | undefined;
  readonly notesBytes: number;
  /** The sidecar document. */
  readonly sidecar: string;
  /** Set when other uploads may have brought other parts of the same session: see `session-part.ts`. */
  readonly sessionMark: string | undefined;
}

/** A recording that the store holds. */
export interface StoredRecording {
  readonly key: RecordingKey;
  readonly hasSidecar: boolean;
  /** Of the cast, if listing tells. */
  readonly stat?: ObjectStat;
  /** Cast, sidecar and notes together, if listing tells. */
  readonly bytes?: number;
  /** As it was given to `finish`: recordings with the same mark are parts of one session. */
  readonly sessionMark?: string;
}

/** The objects of one recording. */
export type ObjectKind = 'cast' | 'sidecar' | 'notes';

export interface ObjectStat {
  /** What reading gives. */
  readonly bytes: number;
  /** What it takes in the store, where that is something else. */
  readonly storedBytes?: number;
  readonly modifiedAtMs: number;
}

export interface RecordingStore extends DocumentStore {
  /**
   * Keeps a finished upload: notes and sidecar first, the cast last, so that whatever is listed is complete. Repeating
   * it with the same upload changes nothing.
   *
   * @throws TailcastError `UPLOAD_CONFLICT` when the key is taken by another recording, `STORE_FAILED` otherwise.
   */
  finish(upload: FinishedUpload): Promise<void>;
  /** Keeps one event, durably, under a key that is not taken. @throws TailcastError `STORE_FAILED` */
  putEvent(key: RecordingKey, content: string): Promise<void>;
  /** Every recording, in no order. */
  list(): Promise<readonly StoredRecording[]>;
  /** @returns undefined when there is no such object. */
  stat(key: RecordingKey, kind: ObjectKind): Promise<ObjectStat | undefined>;
  /** The bytes of an object; without a range all of them. @throws TailcastError `RECORDING_UNKNOWN` */
  read(key: RecordingKey, kind: ObjectKind, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** Removes a recording: the cast first, so that what is listed is complete. That it is gone already is fine. */
  remove(key: RecordingKey): Promise<void>;
  /**
   * Bytes that can still be stored, if the store knows. @throws TailcastError `STORE_FAILED` when it cannot be used.
   */
  freeBytes(): Promise<number | undefined>;
}

/** What is needed to show recordings. */
export type ReadableStore = Pick<RecordingStore, 'list' | 'stat' | 'read'>;
