/** A mounted file that is read again when it changes. Kubernetes replaces the file with each change. */
import { readFile, stat } from 'node:fs/promises';
import { pause } from './async/pause.ts';
import type { Timer } from './async/timer.ts';
import { errorText, TailcastError } from './errors.ts';
import type { Logger } from './observe/logger.ts';

export interface FollowedFile<Content> {
  /** Last valid content; undefined before the first valid read. */
  readonly current: Content | undefined;
  /** Polls the file until `signal` aborts. */
  follow(signal: AbortSignal): Promise<void>;
}

export interface FollowedFileOptions<Content> {
  readonly path: string;
  /** Name of the setting with the path of the file, for error messages. */
  readonly setting: string;
  /** Maximum size of the file, in bytes. */
  readonly maxBytes: number;
  /** Parses the text. @throws the reason why the content is invalid */
  readonly read: (text: string) => Content;
  /** Messages that are logged after a successful read (`read`) and after a failed read (`kept`). */
  readonly words: { readonly read: string; readonly kept: string };
  readonly describe: (content: Content) => Readonly<Record<string, number>>;
  readonly log: Logger;
  readonly timer?: Timer | undefined;
  readonly checkEveryMs?: number | undefined;
}

/** The file, and the clock that reads it. */
export type FileToFollow = Pick<FollowedFileOptions<unknown>, 'path' | 'log' | 'timer' | 'checkEveryMs'>;

const CHECK_EVERY_MS = 1000;

/**
 * Resolves after the file has been read once. If the file is invalid, the error is logged, and the last valid content
 * stays in use.
 */
export async function openFollowedFile<Content>(
  options: FollowedFileOptions<Content>,
): Promise<FollowedFile<Content>> {
  const { path, setting, maxBytes, read, words, describe, log, timer } = options;
  const { checkEveryMs = CHECK_EVERY_MS } = options;
  let current: Content | undefined;
  let version = '';
  let reported = '';

  async function reload(): Promise<void> {
    try {
      const { ino, size, mtimeNs } = await stat(path, { bigint: true });
      const seen = `${ino}/${size}/${mtimeNs}`;
      if (seen === version) return;
      if (size > maxBytes) throw new TailcastError('CONFIG_INVALID', `${setting}: ${path} is too large`);
      current = read(await readFile(path, 'utf8'));
      version = seen;
      reported = '';
      log.info({ file: path, ...describe(current) }, words.read);
    } catch (error) {
      const text = errorText(error);
      if (text !== reported) log.error({ file: path, error: text }, words.kept);
      reported = text;
    }
  }

  await reload();
  return {
    get current() {
      return current;
    },
    async follow(signal) {
      while (await pause(checkEveryMs, signal, timer)) await reload();
    },
  };
}
