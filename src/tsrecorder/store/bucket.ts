/**
 * What the recorder needs of an object store: whole objects under names, written atomically, listed in the order of
 * their names. `s3-bucket.ts` is the real one; tests have one in memory.
 */
import type { ByteRange } from '../files/file-range.ts';
import type { ObjectStat } from './store.ts';

export interface BucketObject extends ObjectStat {
  readonly name: string;
}

export interface BucketPage {
  readonly objects: readonly BucketObject[];
  /** With `folders`: names that have a `/` after the prefix, up to and with that `/`, once each. */
  readonly folders: readonly string[];
}

export interface PutOptions {
  /** Fail if the name is taken, as far as the store can promise that. */
  readonly once?: boolean;
  /** Part of the archive: kept for as long as the retention setting says. */
  readonly retain?: boolean;
}

/**
 * Names are relative to the configured prefix. Every rejection is a TailcastError `STORE_FAILED` unless said otherwise.
 */
export interface Bucket {
  /** Replaces the object, or with `once` throws `UPLOAD_CONFLICT` when there is one. */
  put(name: string, content: Uint8Array, options?: PutOptions): Promise<void>;
  /**
   * Copies the first `bytes` of a file and proves by size and checksum that the store holds them.
   * @throws TailcastError `UPLOAD_CONFLICT` with `once`, when another content has the name
   */
  putFile(name: string, path: string, bytes: number, options?: PutOptions): Promise<void>;
  /** @returns undefined when there is no such object. */
  stat(name: string): Promise<ObjectStat | undefined>;
  /** @throws TailcastError `RECORDING_UNKNOWN` when there is no such object. */
  get(name: string, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** That there is none is fine. */
  remove(name: string): Promise<void>;
  list(options: {
    readonly prefix: string;
    /** Only names behind this one. */
    readonly startAfter?: string;
    readonly folders?: boolean;
  }): AsyncIterable<BucketPage>;
  /** Gives up multipart uploads below the prefix that began more than `olderThanMs` ago. @returns how many. */
  sweepUploads(olderThanMs: number): Promise<number>;
}
