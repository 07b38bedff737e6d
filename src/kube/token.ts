/** Reads small files that other programs rotate: service-account tokens, certificates and keys. */
import { readFile } from 'node:fs/promises';
import { TailcastError, errorReason } from '../errors.ts';

/** Time after which a file is read again. */
export const RECHECK_MS = 5_000;
const MAX_FILE_BYTES = 256 * 1024;

export interface ReloadedFileOptions {
  readonly path: string;
  /** Name with which errors refer to the file: `the service-account token`. */
  readonly what: string;
  /** Monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly recheckMs?: number;
  /** Maximum size of the file, in bytes. A larger file is treated as unreadable. */
  readonly maxBytes?: number;
}

/**
 * Returns a function that returns the trimmed text of a file. The file is read again after `recheckMs`. While the file
 * is unreadable or empty, for example during a rotation, the last text stays in use, and the API server decides
 * whether it is still valid.
 *
 * @returns the function, which throws TailcastError `CONFIG_INVALID` until it has read the file once
 */
export function createReloadedFile(options: ReloadedFileOptions): () => Promise<string> {
  const { path, what, now, recheckMs = RECHECK_MS, maxBytes = MAX_FILE_BYTES } = options;
  let text: string | undefined;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let reading: Promise<string> | undefined;

  async function read(): Promise<string> {
    try {
      text = await readCredential(path, maxBytes);
    } catch (cause) {
      if (text === undefined) {
        throw new TailcastError('CONFIG_INVALID', `cannot read ${what} ${path}: ${errorReason(cause)}`, {
          cause,
        });
      }
    } finally {
      checkedAtMs = now();
      reading = undefined;
    }
    return text;
  }

  return async () => {
    if (text !== undefined && now() - checkedAtMs < recheckMs) return text;
    return (reading ??= read());
  };
}

async function readCredential(path: string, maxBytes: number): Promise<string> {
  const text = (await readFile(path, 'utf8')).trim();
  if (text === '') throw new Error('the file is empty');
  if (text.length > maxBytes) throw new Error(`the file is larger than ${maxBytes} bytes`);
  return text;
}
