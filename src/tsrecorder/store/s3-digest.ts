/** Checksums in the formats of S3. */
import { createHash, type Hash } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** Checksum header of uploads: CRC-32, Content-MD5 for stores without CRC-32, or none. */
export type ChecksumMode = 'crc32' | 'md5' | 'none';

/** Checksums that a store may report for the digested content. */
export interface ContentDigest {
  readonly bytes: number;
  /** CRC-32 of the content, base64. */
  readonly crc32: string;
  /**
   * Checksum that S3 reports for multipart uploads: the CRC-32 of the CRC-32s of all parts, and the number of parts.
   */
  readonly crc32OfParts: string;
  /** The same two checksums with MD5 instead of CRC-32, in hexadecimal. Undefined unless the mode is `md5`. */
  readonly md5: string | undefined;
  readonly md5OfParts: string | undefined;
}

/** One part of an upload. */
export interface PartDigest {
  readonly crc32: string;
  readonly md5: Buffer | undefined;
}

/** Creates a digest of content in parts. */
export function createDigest(mode: ChecksumMode): {
  part(content: Uint8Array): PartDigest;
  finish(): ContentDigest;
} {
  const withMd5 = mode === 'md5';
  const whole: Hash | undefined = withMd5 ? createHash('md5') : undefined;
  const crcs: Buffer[] = [];
  const md5s: Buffer[] = [];
  let running = 0;
  let bytes = 0;
  return {
    part(content) {
      const own = crcBytes(crc32(content));
      running = crc32(content, running);
      bytes += content.length;
      crcs.push(own);
      whole?.update(content);
      const md5 = withMd5 ? createHash('md5').update(content).digest() : undefined;
      if (md5 !== undefined) md5s.push(md5);
      return { crc32: own.toString('base64'), md5 };
    },
    finish: () => ({
      bytes,
      crc32: crcBytes(running).toString('base64'),
      crc32OfParts: `${crcBytes(crc32(Buffer.concat(crcs))).toString('base64')}-${crcs.length}`,
      md5: whole?.digest('hex'),
      md5OfParts: withMd5
        ? `${createHash('md5').update(Buffer.concat(md5s)).digest('hex')}-${md5s.length}`
        : undefined,
    }),
  };
}

/**
 * Compares the checksums that a store reports with the expected checksums.
 *
 * @returns undefined if the store reports no comparable checksum
 */
export function compareDigest(
  digest: ContentDigest,
  said: { readonly crc32: string | undefined; readonly etag: string | undefined },
): boolean | undefined {
  if (said.crc32 !== undefined) {
    return said.crc32.includes('-') ? said.crc32 === digest.crc32OfParts : said.crc32 === digest.crc32;
  }
  const etag = said.etag?.replaceAll('"', '');
  if (etag === undefined || digest.md5 === undefined) return undefined;
  // With encryption, for example, an ETag is not an MD5. A different ETag therefore proves nothing.
  return etag === digest.md5 || etag === digest.md5OfParts ? true : undefined;
}

function crcBytes(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
}
