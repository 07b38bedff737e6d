/**
 * Temporary file for the queued output of one session. Its name is removed before the first byte is written.
 * No other process can then open the file, and the kernel deletes it when this process exits.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { BLOCK_BYTES, takeBlock } from '../../memory/block-pool.ts';

/** File that consists of blocks of equal size. */
export type SpillFile = Awaited<ReturnType<typeof openSpillFile>>;

/** Creates the file. @throws Error if it cannot be created or unlinked */
export async function openSpillFile(directory: string) {
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
    /** Writes one complete block. @throws Error if the write fails */
    write: (block: number, bytes: Uint8Array): Promise<void> => writeAll(handle, bytes, block * BLOCK_BYTES),
    /** Reads one block of the file into a block of the memory pool. @throws Error if the read fails */
    read: (block: number): Promise<Buffer> => readBlock(handle, block * BLOCK_BYTES),
    /** Truncates the file. */
    clear: (): Promise<void> => handle.truncate(0),
    close: (): Promise<void> => handle.close(),
  };
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  // When a disk becomes full, a write may store only a part of the bytes. The next write then reports the
  // error.
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new Error('the disk is full');
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
