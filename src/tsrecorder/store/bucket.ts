/**
 * Interface of an object store: named objects that are written atomically, and listed in the order of their names.
 * `s3-bucket.ts` implements it with S3. Tests have an implementation in memory.
 */
import type { ByteRange } from '../files/file-range.ts';
import type { ObjectStat } from './store.ts';

export interface BucketObject extends ObjectStat {
  readonly name: string;
}

export interface BucketPage {
  readonly objects: readonly BucketObject[];
  /** Names up to the first `/` after the prefix, without duplicates. Empty unless the listing requested `folders`. */
  readonly folders: readonly string[];
}

export interface PutOptions {
  /** If true, the write fails if the name exists. Some stores do not support this check. */
  readonly once?: boolean;
  /** True to store the object with the configured object-lock retention. */
  readonly retain?: boolean;
}

/**
 * A bucket. Names are relative to the configured prefix. Methods reject with TailcastError `STORE_FAILED` unless stated
 * otherwise.
 */
export interface Bucket {
  /**
   * Writes an object. If `once` is set and the name exists, throws `UPLOAD_CONFLICT`. Otherwise replaces an existing
   * object.
   */
  put(name: string, content: Uint8Array, options?: PutOptions): Promise<void>;
  /**
   * Uploads the first `bytes` bytes of a file, and verifies size and checksum of the stored object.
   * @throws TailcastError `UPLOAD_CONFLICT` if `once` is set and the name exists with other content
   */
  putFile(name: string, path: string, bytes: number, options?: PutOptions): Promise<void>;
  /** Returns size and time of an object; undefined if it does not exist. */
  stat(name: string): Promise<ObjectStat | undefined>;
  /** Reads an object or a range of it. @throws TailcastError `RECORDING_UNKNOWN` if it does not exist */
  get(name: string, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** Removes an object, if it exists. */
  remove(name: string): Promise<void>;
  list(options: {
    readonly prefix: string;
    /** Returns only names that sort after this name. */
    readonly startAfter?: string;
    readonly folders?: boolean;
  }): AsyncIterable<BucketPage>;
  /** Aborts multipart uploads below the prefix that are older than `olderThanMs`. @returns their number */
  sweepUploads(olderThanMs: number): Promise<number>;
}
