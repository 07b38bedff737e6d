/** A file that only grows, and of which only what is durable counts. */
import { open, stat, truncate, type FileHandle } from 'node:fs/promises';
import { writeAll } from './durable-files.ts';

/** One writer each; calls of `append` one after another. */
export class AppendFile {
  readonly #file: FileHandle;
  #bytes: number;
  /** What a write that failed has left may stand behind that. */
  #isFrayed = false;

  private constructor(file: FileHandle, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
  }

  /**
   * Makes the file, or goes on behind its `bytes` bytes: what a crash has left behind them has been cut. The entry of a new
   * one in its directory is the caller's to make durable.
   */
  static async open(path: string, bytes: number | 'new'): Promise<AppendFile> {
    if (bytes === 'new') return new AppendFile(await open(path, 'ax', 0o600), 0);
    return new AppendFile(await open(path, 'a', 0o600), bytes);
  }

  /** Bytes that are durable. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Resolves when all of it is durable; when it rejects nothing of it counts, and it may be tried again.
   *
   * @param onSync told how long the fsync took, in milliseconds
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

/** Cuts a file to `bytes`, durably, if it is longer. */
export async function cutFile(path: string, bytes: number): Promise<void> {
  const { size } = await stat(path);
  if (size <= bytes) return;
  await truncate(path, bytes);
  const file = await open(path, 'r+');
  try {
    await file.datasync();
  } finally {
    await file.close();
  }
}
