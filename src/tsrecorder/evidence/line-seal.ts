/**
 * Hash chain over the lines of a file (cast or notes).
 *
 * A file is split into blocks of complete lines. A block ends with the first line that makes it at least `blockBytes`
 * long. The chain starts with 32 zero bytes. Each block changes the chain value to `SHA-256(chain ‖ SHA-256(block))`.
 * The last value identifies the complete file.
 */
import { createHash, type Hash } from 'node:crypto';

/** The seal of a file, as stored in the evidence log. */
export interface Seal {
  readonly bytes: number;
  readonly blockBytes: number;
  /** Last value of the hash chain, in hexadecimal. */
  readonly chain: string;
}

/** Length in bytes and SHA-256 (hexadecimal) of one block. */
export type SealedBlock = readonly [bytes: number, sha256: string];

/** The seal of a file, as stored in the sidecar. */
export interface LineSeal extends Seal {
  readonly blocks: readonly SealedBlock[];
}

/** Maximum number of blocks of a file. */
export const MAX_BLOCKS = 256;
const MIN_BLOCK_BYTES = 4096;
const LINE_FEED = 0x0a;

/** Returns the block length for a file of `bytes` bytes. A file has at most 256 blocks, so that seals stay small. */
export function blockBytesFor(bytes: number): number {
  return Math.max(MIN_BLOCK_BYTES, Math.ceil(bytes / MAX_BLOCKS));
}

/**
 * Creates a sealer for one file. The sealer computes the hashes of a {@link LineSeal} from chunks, encrypts nothing,
 * and keeps no content in memory.
 */
export function createLineSealer(blockBytes: number) {
  const blocks: SealedBlock[] = [];
  let block: Hash | undefined;
  let used = 0;
  let bytes = 0;
  let chain = EMPTY_CHAIN;

  function close(): void {
    if (block === undefined) return;
    const digest = block.digest();
    blocks.push([used, digest.toString('hex')]);
    chain = extendChain(chain, digest);
    block = undefined;
    used = 0;
  }

  return {
    push(chunk: Uint8Array): void {
      bytes += chunk.length;
      for (let start = 0; start < chunk.length;) {
        const earliest = start + Math.max(0, blockBytes - used - 1);
        const found = earliest < chunk.length ? chunk.indexOf(LINE_FEED, earliest) : -1;
        const end = found < 0 ? chunk.length : found + 1;
        block ??= createHash('sha256');
        block.update(chunk.subarray(start, end));
        used += end - start;
        if (found >= 0) close();
        start = end;
      }
    },
    /** Returns the seal after the last chunk. Bytes after the last line feed belong to the last block. */
    finish(): LineSeal {
      close();
      return { bytes, blockBytes, chain: chain.toString('hex'), blocks };
    },
  };
}

/** Returns the value of the chain after these blocks, in hexadecimal. */
export function chainOf(blocks: readonly SealedBlock[]): string {
  let chain = EMPTY_CHAIN;
  for (const [, digest] of blocks) chain = extendChain(chain, Buffer.from(digest, 'hex'));
  return chain.toString('hex');
}

const EMPTY_CHAIN: Buffer = Buffer.alloc(32);

function extendChain(chain: Uint8Array, digest: Uint8Array): Buffer {
  return createHash('sha256').update(chain).update(digest).digest();
}
