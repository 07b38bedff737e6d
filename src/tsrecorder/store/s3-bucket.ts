/** A bucket in S3. `bucket.ts` describes the interface and its guarantees. */
import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandOutput,
} from '@aws-sdk/client-s3';
import { TailcastError } from '../../errors.ts';
import type { Bucket, BucketPage, PutOptions } from './bucket.ts';
import { asStoreError, connectS3, httpStatusOf, type S3Connection, type S3Settings } from './s3-client.ts';
import { readBucketRules, type BucketRules } from './s3-rules.ts';
import { S3Uploader, type ObjectHead } from './s3-upload.ts';
import type { ByteRange } from '../files/file-range.ts';
import type { ObjectStat } from './store.ts';

/** Maximum number of sockets for reads: twice the number of requests that viewers may have in progress. */
const MAX_READ_SOCKETS = 1024;

export class S3Bucket implements Bucket {
  readonly #settings: S3Settings;
  readonly #connection: S3Connection;
  /**
   * Connection for reads of objects. A slow viewer occupies a socket of this connection, so writes, lists and deletions
   * use another connection.
   */
  readonly #reads: S3Connection;
  readonly #nowMs: () => number;
  readonly #uploader: S3Uploader;

  /** @param nowMs returns the time in milliseconds since the epoch */
  constructor(settings: S3Settings, nowMs: () => number) {
    this.#settings = settings;
    this.#nowMs = nowMs;
    this.#connection = connectS3(settings);
    this.#reads = connectS3(settings, undefined, MAX_READ_SOCKETS);
    this.#uploader = new S3Uploader({
      settings,
      connection: this.#connection,
      nowMs,
      head: (name) => this.#head(name),
      get: (name) => this.get(name),
    });
  }

  close(): void {
    this.#connection.close();
    this.#reads.close();
  }

  /** Writes and deletes an object to check access. @throws Error of the SDK */
  async probe(): Promise<void> {
    const name = `.write-access-${this.#nowMs().toString(36)}-${process.pid}`;
    await this.#uploader.put(name, new Uint8Array(), {});
    await this.#connection.run((client) => client.send(new DeleteObjectCommand(this.#target(name))));
  }

  /** Reads the object lock and lifecycle rules of the bucket. Never rejects. */
  rules(): Promise<BucketRules> {
    return readBucketRules(this.#connection, this.#settings.bucket);
  }

  async put(name: string, content: Uint8Array, options: PutOptions = {}): Promise<void> {
    await this.#uploader.put(name, content, options).catch(rethrow);
  }

  async putFile(name: string, path: string, bytes: number, options: PutOptions = {}): Promise<void> {
    await this.#uploader.putFile(name, path, bytes, options).catch(rethrow);
  }

  async stat(name: string): Promise<ObjectStat | undefined> {
    return (await this.#head(name).catch(rethrow))?.stat;
  }

  async *get(name: string, range?: ByteRange): AsyncIterable<Uint8Array> {
    if (range !== undefined && range.end <= range.start) return;
    const bounds = range === undefined ? {} : { Range: `bytes=${range.start}-${range.end - 1}` };
    const request = new GetObjectCommand({ ...this.#target(name), ...bounds });
    try {
      const { Body } = await this.#reads.run((client) => client.send(request));
      if (!(Body instanceof Readable)) return;
      for await (const chunk of Body) if (chunk instanceof Uint8Array) yield chunk;
    } catch (error) {
      // The range starts after the end of the object, so there are no bytes to yield.
      if (httpStatusOf(error) === 416) return;
      if (httpStatusOf(error) === 404)
        throw new TailcastError('RECORDING_UNKNOWN', undefined, { cause: error });
      throw asStoreError(error);
    }
  }

  async remove(name: string): Promise<void> {
    await this.#connection
      .run((client) => client.send(new DeleteObjectCommand(this.#target(name))))
      .catch((error: unknown) => {
        if (httpStatusOf(error) !== 404) throw asStoreError(error);
      });
  }

  async *list(options: Parameters<Bucket['list']>[0]): AsyncIterable<BucketPage> {
    const { startAfter, folders } = options;
    let token: string | undefined;
    do {
      const request = new ListObjectsV2Command({
        Bucket: this.#settings.bucket,
        Prefix: this.#key(options.prefix),
        // Names must be encoded: other programs may have written names with characters that XML cannot represent.
        EncodingType: 'url',
        ...(folders === true ? { Delimiter: '/' } : {}),
        ...(token === undefined ? {} : { ContinuationToken: token }),
        ...(token === undefined && startAfter !== undefined ? { StartAfter: this.#key(startAfter) } : {}),
      });
      const answer = await this.#connection.run((client) => client.send(request)).catch(rethrow);
      yield this.#page(answer);
      token = answer.IsTruncated === true ? answer.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  async sweepUploads(olderThanMs: number): Promise<number> {
    let swept = 0;
    const { bucket, prefix } = this.#settings;
    // Request the first page again until it contains no old upload, because aborted uploads disappear from the list.
    for (let more = true; more;) {
      const request = new ListMultipartUploadsCommand({ Bucket: bucket, Prefix: prefix });
      const { Uploads = [], IsTruncated } = await this.#connection
        .run((client) => client.send(request))
        .catch(rethrow);
      const old = Uploads.filter(
        ({ Initiated }) => Initiated !== undefined && this.#nowMs() - Initiated.getTime() > olderThanMs,
      );
      for (const { Key, UploadId } of old) {
        const abort = new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId });
        await this.#connection.run((client) => client.send(abort)).catch(rethrow);
        swept += 1;
      }
      more = IsTruncated === true && old.length > 0;
    }
    return swept;
  }

  async #head(name: string): Promise<ObjectHead | undefined> {
    const mode = this.#settings.checksums === 'crc32' ? { ChecksumMode: 'ENABLED' as const } : {};
    const request = new HeadObjectCommand({ ...this.#target(name), ...mode });
    try {
      const answer = await this.#connection.run((client) => client.send(request));
      const { ContentLength = 0, LastModified, ChecksumCRC32, ETag } = answer;
      return {
        stat: { bytes: ContentLength, modifiedAtMs: wholeSeconds(LastModified), ...identityOf(ETag) },
        crc32: ChecksumCRC32,
        etag: ETag,
      };
    } catch (error) {
      if (httpStatusOf(error) === 404) return undefined;
      throw error;
    }
  }

  #page({ Contents = [], CommonPrefixes = [], EncodingType }: ListObjectsV2CommandOutput): BucketPage {
    const { prefix } = this.#settings;
    const nameOfKey = (key: string): string =>
      (EncodingType === 'url' ? decodeKey(key) : key).slice(prefix.length);
    return {
      objects: Contents.flatMap(({ Key, Size = 0, LastModified, ETag }) => {
        const stat = { bytes: Size, modifiedAtMs: wholeSeconds(LastModified), ...identityOf(ETag) };
        return Key === undefined ? [] : [{ name: nameOfKey(Key), ...stat }];
      }),
      folders: CommonPrefixes.flatMap(({ Prefix }) => (Prefix === undefined ? [] : [nameOfKey(Prefix)])),
    };
  }

  #key(name: string): string {
    return this.#settings.prefix + name;
  }

  #target(name: string): { readonly Bucket: string; readonly Key: string } {
    return { Bucket: this.#settings.bucket, Key: this.#key(name) };
  }
}

/** Rounds a time down to seconds, because some responses of S3 have milliseconds and others do not. */
function wholeSeconds(time: Date | undefined): number {
  return Math.floor((time?.getTime() ?? 0) / 1000) * 1000;
}

function decodeKey(key: string): string {
  try {
    return decodeURIComponent(key.replaceAll('+', ' '));
  } catch {
    return key;
  }
}

function rethrow(error: unknown): never {
  throw asStoreError(error);
}

function identityOf(etag: string | undefined): Pick<ObjectStat, 'identity'> {
  return etag === undefined ? {} : { identity: etag };
}
