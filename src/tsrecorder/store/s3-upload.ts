/** Uploads a file to a bucket in one request or in parts, with bounded memory, and verifies the stored object. */
import { open, type FileHandle } from 'node:fs/promises';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  PutObjectCommand,
  UploadPartCommand,
  type CompletedPart,
} from '@aws-sdk/client-s3';
import { TailcastError } from '../../errors.ts';
import { createLimiter } from '../../async/limiter.ts';
import type { PutOptions } from './bucket.ts';
import { nameExists, errorName, httpStatusOf, type S3Connection, type S3Settings } from './s3-client.ts';
import { compareDigest, createDigest, type ContentDigest, type PartDigest } from './s3-digest.ts';
import type { ObjectStat } from './store.ts';
import { equalsFile, readExactly } from './stored-copy.ts';

/** Maximum number of parts in memory, of all uploads together. */
const MAX_PARTS = 4;
/**
 * Maximum number of parts of one upload. S3 allows 10 000 parts. If a file needs more parts, its parts become larger.
 */
const MAX_PARTS_PER_UPLOAD = 9000;
const DAY_MS = 86_400_000;

/** Metadata of a stored object. */
export interface ObjectHead {
  readonly stat: ObjectStat;
  readonly crc32: string | undefined;
  readonly etag: string | undefined;
}

export interface UploaderParts {
  readonly settings: S3Settings;
  readonly connection: S3Connection;
  readonly nowMs: () => number;
  readonly head: (name: string) => Promise<ObjectHead | undefined>;
  readonly get: (name: string) => AsyncIterable<Uint8Array>;
}

interface Target {
  readonly Bucket: string;
  readonly Key: string;
}

/** Uploader of one bucket. Methods reject with errors of the SDK or with a TailcastError. */
export class S3Uploader {
  readonly #settings: S3Settings;
  readonly #connection: S3Connection;
  readonly #parts: UploaderParts;
  readonly #partTurns = createLimiter({ maxActive: MAX_PARTS });
  /**
   * True until the store rejects `If-None-Match`. After that, the uploader looks for an existing object before each
   * write with `once`.
   */
  #knowsConditions = true;

  constructor(parts: UploaderParts) {
    this.#settings = parts.settings;
    this.#connection = parts.connection;
    this.#parts = parts;
  }

  /** Writes an object from memory. @throws TailcastError `UPLOAD_CONFLICT` if `once` is set and the name exists */
  async put(name: string, content: Uint8Array, options: PutOptions): Promise<void> {
    if (options.once === true && !this.#knowsConditions && (await this.#parts.head(name)) !== undefined) {
      throw taken(undefined);
    }
    const digest = createDigest(this.#settings.checksums).part(content);
    await this.#put(name, content, digest, options).catch((error: unknown) => {
      throw options.once === true && nameExists(error) ? taken(error) : error;
    });
  }

  /**
   * Writes the first `bytes` bytes of a file. @throws TailcastError `UPLOAD_CONFLICT` if `once` is set and the name
   * exists with other content
   */
  async putFile(name: string, path: string, bytes: number, options: PutOptions): Promise<void> {
    await using file = await open(path, 'r');
    const there = options.once === true ? await this.#parts.head(name) : undefined;
    if (there === undefined) await this.#upload(name, file, bytes, options);
    else await this.#assertSame(name, file, bytes);
  }

  async #put(name: string, content: Uint8Array, digest: PartDigest, options: PutOptions): Promise<void> {
    const fields = {
      ...this.#target(name),
      Body: content,
      ...this.#checksum(digest),
      ...this.#encryption(),
      ...(options.retain === true ? this.#retention() : {}),
    };
    await this.#conditionally(options.once === true, (condition) =>
      this.#connection.run((client) => client.send(new PutObjectCommand({ ...fields, ...condition }))),
    );
  }

  /** Sends a request with `If-None-Match`, or without it if the store does not support the header. */
  async #conditionally(
    once: boolean,
    request: (condition: { readonly IfNoneMatch?: string }) => Promise<unknown>,
  ): Promise<void> {
    if (!once || !this.#knowsConditions) {
      await request({});
      return;
    }
    try {
      await request({ IfNoneMatch: '*' });
    } catch (error) {
      if (httpStatusOf(error) !== 501) throw error;
      this.#knowsConditions = false;
      await request({});
    }
  }

  /** Uploads a small file in one request and a large file in parts, and verifies the stored object. */
  async #upload(name: string, file: FileHandle, bytes: number, options: PutOptions): Promise<void> {
    const digests = createDigest(this.#settings.checksums);
    const partBytes = Math.max(this.#settings.partBytes, Math.ceil(bytes / MAX_PARTS_PER_UPLOAD));
    try {
      if (bytes <= partBytes) {
        await this.#partTurns.run(async () => {
          const content = await readExactly(file, 0, bytes);
          await this.#put(name, content, digests.part(content), options);
        });
      } else
        await this.#uploadParts(name, file, bytes, partBytes, (content) => digests.part(content), options);
    } catch (error) {
      // The name belongs to another object, or to an earlier attempt of this upload whose response was lost.
      if (!nameExists(error) && errorName(error) !== 'NoSuchUpload') throw error;
      await this.#assertSame(name, file, bytes);
      return;
    }
    if (!(await this.#matches(name, file, digests.finish()))) {
      throw new TailcastError('STORE_FAILED', 'the stored object differs from the sent one');
    }
  }

  async #uploadParts(
    name: string,
    file: FileHandle,
    bytes: number,
    partBytes: number,
    digestPart: (content: Uint8Array) => PartDigest,
    options: PutOptions,
  ): Promise<void> {
    const target = this.#target(name);
    const create = new CreateMultipartUploadCommand({
      ...target,
      ...this.#encryption(),
      ...(options.retain === true ? this.#retention() : {}),
      ...(this.#settings.checksums === 'crc32' ? { ChecksumAlgorithm: 'CRC32' as const } : {}),
    });
    const { UploadId } = await this.#connection.run((client) => client.send(create));
    const upload = { ...target, UploadId };
    try {
      const parts: CompletedPart[] = [];
      const running: Promise<void>[] = [];
      let failed = false;
      const count = Math.ceil(bytes / partBytes);
      for (let index = 0; index < count && !failed; index += 1) {
        const start = index * partBytes;
        const read = Promise.withResolvers<void>();
        const part = this.#partTurns
          .run(async () => {
            // Read the parts in order, because the digest of the file depends on the order.
            const content = await readExactly(file, start, Math.min(partBytes, bytes - start));
            const digest = digestPart(content);
            read.resolve();
            parts[index] = await this.#sendPart(upload, index + 1, content, digest);
          })
          .catch((error: unknown) => {
            failed = true;
            read.resolve();
            throw error;
          });
        part.catch(() => undefined);
        running.push(part);
        await read.promise;
      }
      await allSettledOrThrow(running);
      await this.#conditionally(options.once === true, (condition) =>
        this.#connection.run((client) =>
          client.send(
            new CompleteMultipartUploadCommand({
              ...upload,
              MultipartUpload: { Parts: parts },
              ...condition,
            }),
          ),
        ),
      );
    } catch (error) {
      // If the upload cannot be aborted now, `sweepUploads` aborts it later.
      await this.#connection
        .run((client) => client.send(new AbortMultipartUploadCommand(upload)))
        .catch(() => undefined);
      throw error;
    }
  }

  async #sendPart(
    upload: Target & { readonly UploadId: string | undefined },
    PartNumber: number,
    Body: Uint8Array,
    digest: PartDigest,
  ): Promise<CompletedPart> {
    const checksum = this.#checksum(digest);
    const request = new UploadPartCommand({ ...upload, PartNumber, Body, ...checksum });
    const { ETag } = await this.#connection.run((client) => client.send(request));
    const { ChecksumCRC32 } = checksum;
    return { ETag, PartNumber, ...(ChecksumCRC32 === undefined ? {} : { ChecksumCRC32 }) };
  }

  /**
   * Compares the first `bytes` bytes of the file with an object that another upload may have written. Reads the object,
   * because other content can have the same checksum. @throws TailcastError `UPLOAD_CONFLICT` if they differ
   */
  async #assertSame(name: string, file: FileHandle, bytes: number): Promise<void> {
    const head = await this.#parts.head(name);
    // `sweepUploads` aborted this upload, and no other upload has created the object.
    if (head === undefined) throw new TailcastError('STORE_FAILED', 'the upload was aborted');
    if (head.stat.bytes !== bytes || !(await equalsFile(this.#parts.get(name), file, bytes)))
      throw taken(undefined);
  }

  /**
   * Returns true if an object that this call has written matches the digest: by the checksum of the store, or by
   * reading the object.
   */
  async #matches(name: string, file: FileHandle, digest: ContentDigest): Promise<boolean> {
    const head = await this.#parts.head(name);
    if (head === undefined || head.stat.bytes !== digest.bytes) return false;
    return compareDigest(digest, head) ?? (await equalsFile(this.#parts.get(name), file, digest.bytes));
  }

  #target(name: string): Target {
    return { Bucket: this.#settings.bucket, Key: this.#settings.prefix + name };
  }

  #checksum({ crc32, md5 }: PartDigest): { readonly ChecksumCRC32?: string; readonly ContentMD5?: string } {
    if (this.#settings.checksums === 'crc32') return { ChecksumCRC32: crc32 };
    return md5 === undefined ? {} : { ContentMD5: md5.toString('base64') };
  }

  #encryption(): { readonly ServerSideEncryption?: 'AES256' | 'aws:kms'; readonly SSEKMSKeyId?: string } {
    const { encryption, kmsKey } = this.#settings;
    if (encryption === 'none') return {};
    return {
      ServerSideEncryption: encryption,
      ...(kmsKey === undefined || encryption !== 'aws:kms' ? {} : { SSEKMSKeyId: kmsKey }),
    };
  }

  #retention() {
    const { retention } = this.#settings;
    if (retention === undefined) return {};
    const until = new Date(this.#parts.nowMs() + retention.days * DAY_MS);
    return { ObjectLockMode: retention.mode, ObjectLockRetainUntilDate: until };
  }
}

function taken(cause: unknown): TailcastError {
  return new TailcastError('UPLOAD_CONFLICT', 'another recording has this key', { cause });
}

/** Waits for all parts, so that no part is in flight when the upload is aborted. Then throws the first error. */
async function allSettledOrThrow(parts: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(parts)) if (result.status === 'rejected') throw result.reason;
}
