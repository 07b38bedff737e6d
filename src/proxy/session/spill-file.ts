/**
 * A file without a name that holds what waits of one session. It is unlinked before the first byte is written: nobody can
 * open it, and it is gone with the process, however that ends.
 */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { open, unlink, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';

/** Bytes of one block. */
export const BLOCK_BYTES = 64 * 1024;

export interface SpillFile {
  /** @param pieces together one whole block. @throws when it is not written */
  write(block: number, pieces: readonly Uint8Array[]): Promise<void>;
  /** @throws when the block cannot be read as it was written */
  read(block: number): Promise<Uint8Array>;
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
    write: (block, pieces) => writeAll(handle, pieces, block * BLOCK_BYTES),
    read: (block) => readBlock(handle, block * BLOCK_BYTES),
    clear: () => handle.truncate(0),
    close: () => handle.close(),
  };
}

async function writeAll(handle: FileHandle, pieces: readonly Uint8Array[], position: number): Promise<void> {
  const { bytesWritten } = await handle.writev(pieces, position);
  if (bytesWritten === BLOCK_BYTES) return;
  // a disk that fills up takes a part, and says why at the next write
  const rest = Buffer.concat(pieces).subarray(bytesWritten);
  for (let done = 0; done < rest.length;) {
    const more = await handle.write(rest, done, rest.length - done, position + bytesWritten + done);
    if (more.bytesWritten === 0) throw new Error('the disk takes no more');
    done += more.bytesWritten;
  }
}

async function readBlock(handle: FileHandle, position: number): Promise<Uint8Array> {
  const bytes = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await handle.read(bytes, done, bytes.length - done, position + done);
    if (bytesRead === 0) throw new Error('the file is shorter than what was written');
    done += bytesRead;
  }
  return bytes;
}
