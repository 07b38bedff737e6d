/** Append-only files with a count of durable bytes. */
import { open, stat, truncate, type FileHandle } from 'node:fs/promises';
import { writeAll } from './durable-files.ts';

/** An append-only file with one writer. Calls of `append` must not overlap. */
export class AppendFile {
  readonly #file: FileHandle;
  #bytes: number;
  /** True if the file may have bytes of a failed write after the durable bytes. */
  #isFrayed = false;

  private constructor(file: FileHandle, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
  }

  /**
   * Creates the file, or opens a file that the caller has truncated to `bytes` bytes. The caller must make the
   * directory entry of a new file durable.
   */
  static async open(path: string, bytes: number | 'new'): Promise<AppendFile> {
    if (bytes === 'new') return new AppendFile(await open(path, 'ax', 0o600), 0);
    return new AppendFile(await open(path, 'a', 0o600), bytes);
  }

  /** Number of durable bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Resolves when all parts are durable. If the promise rejects, no part was appended, and the call may be repeated.
   *
   * @param onSync called with the duration of the fsync, in milliseconds
   * @throws a system error
   */
  async append(parts: readonly Uint8Array[], onSync?: (durationMs: number) => void): Promise<void> {
    if (this.#isFrayed) await this.#file.truncate(this.#bytes);
    this.#isFrayed = true;
    await writeAll(this.#file, parts);
    const startedAt = performance.now();
    await this.#file.datasync();
    onSync?.(performance.now() - startedAt);
    this.#isFrayed = false;
    this.#bytes += parts.reduce((sum, part) => sum + part.length, 0);
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Truncates a longer file to `bytes` bytes, durably. */
export async function cutFile(path: string, bytes: number): Promise<void> {
  const { size } = await stat(path);
  if (size <= bytes) return;
  await truncate(path, bytes);
  await using file = await open(path, 'r+');
  await file.datasync();
}
