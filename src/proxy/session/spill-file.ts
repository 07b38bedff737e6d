/**
 * A file without a name that holds what waits of one session. It is unlinked before the first byte is written: nobody can
 * open it, and it is gone with the process, however that ends.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { BLOCK_BYTES, takeBlock } from '../../memory/block-pool.ts';

export interface SpillFile {
  /** @param bytes one whole block. @throws when it is not written */
  write(block: number, bytes: Uint8Array): Promise<void>;
  /** @returns a block of the pool. @throws when the block cannot be read as it was written */
  read(block: number): Promise<Buffer>;
  /** Gives the space of all blocks back. */
  clear(): Promise<void>;
  close(): Promise<void>;
}

/** @throws when the file cannot be made, or keeps its name */
export async function openSpillFile(directory: string): Promise<SpillFile> {
  const path = join(directory, `.tailcast-${randomUUID()}`);
  const { O_RDWR, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const handle = await open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    await unlink(path);
  } catch (error) {
    await handle.close();
    throw error;
  }
  return {
    write: (block, bytes) => writeAll(handle, bytes, block * BLOCK_BYTES),
    read: (block) => readBlock(handle, block * BLOCK_BYTES),
    clear: () => handle.truncate(0),
    close: () => handle.close(),
  };
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  // a disk that fills up takes a part, and says why at the next write
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new Error('the disk takes no more');
    done += bytesWritten;
  }
}

async function readBlock(handle: FileHandle, position: number): Promise<Buffer> {
  const bytes = takeBlock();
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, position + done);
    if (bytesRead === 0) throw new Error('the file is shorter than what was written');
    done += bytesRead;
  }
  return bytes;
}
