/** The file of names, read again when it changes: a mounted ConfigMap is put in place of the one before. */
import { readFile, stat } from 'node:fs/promises';
import { pause } from '../async/pause.ts';
import type { Timer } from '../async/timer.ts';
import { errorText, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { MAX_RECORDS_BYTES, parseRecords, type NameRecords } from './records.ts';

export interface RecordsFile {
  /** The last that could be used; undefined before there was one. */
  readonly current: NameRecords | undefined;
  /** Looks until the signal. */
  follow(signal: AbortSignal): Promise<void>;
}

const CHECK_EVERY_MS = 1000;

/** Reads the file once before it resolves. One that cannot be used is reported, and the last good one stays. */
export async function openRecordsFile(options: {
  readonly path: string;
  readonly log: Logger;
  readonly timer?: Timer;
  readonly checkEveryMs?: number;
}): Promise<RecordsFile> {
  const { path, log, timer, checkEveryMs = CHECK_EVERY_MS } = options;
  let current: NameRecords | undefined;
  let version = '';
  let reported = '';

  async function look(): Promise<void> {
    try {
      const { ino, size, mtimeNs } = await stat(path, { bigint: true });
      const seen = `${ino}/${size}/${mtimeNs}`;
      if (seen === version) return;
      if (size > MAX_RECORDS_BYTES)
        throw new TailcastError('CONFIG_INVALID', `records: ${path} is too large`);
      current = parseRecords(await readFile(path, 'utf8'));
      version = seen;
      reported = '';
      log.info({ file: path, names: current.size }, 'names read');
    } catch (error) {
      const text = errorText(error);
      if (text !== reported)
        log.error({ file: path, error: text }, 'names not read, the last good ones stay');
      reported = text;
    }
  }

  await look();
  return {
    get current() {
      return current;
    },
    async follow(signal) {
      while (await pause(checkEveryMs, signal, timer)) await look();
    },
  };
}
