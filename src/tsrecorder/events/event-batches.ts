/**
 * Events, many to a document: one line each, kept durably in the spool until the batch is signed and stored. A batch is
 * over after a minute or when it is large, whichever comes first; its name begins with the time of its first event.
 *
 * ```
 * events/2026-07-29/2026-07-29T11:45:08.133861649Z_<recorder>.ndjson
 * ```
 */
import { readFile, readdir, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { AppendFile } from '../files/append-file.ts';
import { isSystemError, removeFile, storageError, syncDirectory } from '../files/durable-files.ts';
import type { DocumentStore } from '../store/document-store.ts';
import { parseTime } from '../store/key.ts';

export interface EventBatchOptions {
  /** For batches that are not stored yet; must exist. One recorder each. */
  readonly directory: string;
  readonly store: DocumentStore;
  /** Makes names differ between recorders that share a store: letters and digits. */
  readonly recorder: string;
  /** How long a batch takes events. */
  readonly periodMs: number;
  readonly maxBatchBytes: number;
  /** Pause after the store has failed. */
  readonly retryMs: number;
  /** Adds the signature of this recorder to a batch. The same batch must give the same bytes. */
  readonly sign: (name: string, lines: Uint8Array) => Uint8Array;
  /** A batch is stored; called before its spool is removed. */
  readonly onStored: (name: string, content: Uint8Array) => Promise<void>;
  readonly log: Logger;
  /** The store has failed; it will be tried again. */
  readonly onFailure: () => void;
}

export interface EventBatches {
  /**
   * Resolves when the event is durable.
   *
   * @param time its receive time, as in a key
   * @param event JSON text
   * @throws TailcastError `STORE_FAILED`
   */
  append(time: string, event: string): Promise<void>;
  /** Batches that are not stored yet, by name. */
  waiting(): Promise<ReadonlyMap<string, string>>;
  /** Ends the batch that is open, and tries to store what is not. */
  close(): Promise<void>;
}

const EVENTS_FOLDER = 'events/';
const NAME = /^(\d{4}-\d{2}-\d{2})T[\d:.]+Z_[0-9a-z]+\.ndjson$/;

/** Where batches of a day (`2026-07-29`), or of all days, are kept. */
export function batchPrefix(day?: string): string {
  return day === undefined ? EVENTS_FOLDER : `${EVENTS_FOLDER}${day}/`;
}

/** Nanoseconds since the epoch at which a batch began; undefined when the name is none of a batch. */
export function batchTime(name: string): bigint | undefined {
  const file = name.slice(name.lastIndexOf('/') + 1);
  return NAME.test(file) ? parseTime(file.slice(0, file.indexOf('_'))) : undefined;
}

/** One per spool directory. What an earlier process left is stored first. */
export async function openEventBatches(options: EventBatchOptions): Promise<EventBatches> {
  const batches = new Batches(options);
  await batches.recover();
  return batches;
}

class Batches implements EventBatches {
  readonly #options: EventBatchOptions;
  #batch: AppendFile | undefined;
  /** The file of the batch that is open or begins: it takes events, and is not stored yet. */
  #taking: string | undefined;
  #pending: string[] = [];
  #firstTime = '';
  readonly #exclusively = createSequence();
  readonly #written = createSharedStep(this.#exclusively, () => this.#write());
  #period: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: EventBatchOptions) {
    this.#options = options;
  }

  append(time: string, event: string): Promise<void> {
    if (this.#pending.length === 0) this.#firstTime = time;
    // line feeds can only stand between the tokens of JSON
    this.#pending.push(`${event.trim().replaceAll(/[\r\n]/g, ' ')}\n`);
    return this.#written();
  }

  waiting(): Promise<ReadonlyMap<string, string>> {
    return this.#exclusively(async () => {
      const found = new Map<string, string>();
      for (const file of await this.#files()) {
        const content = await readUnlessGone(join(this.#options.directory, file));
        if (content !== undefined)
          found.set(batchName(file), content.slice(0, content.lastIndexOf('\n') + 1));
      }
      return found;
    });
  }

  /** Cuts what a crash left to whole lines, and stores it. */
  async recover(): Promise<void> {
    for (const file of await this.#files()) {
      const path = join(this.#options.directory, file);
      const content = await readFile(path);
      const whole = content.lastIndexOf(0x0a) + 1;
      if (whole === 0) await removeFile(path);
      else if (whole < content.length) await truncate(path, whole);
    }
    void this.#storeOver();
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#period);
    clearTimeout(this.#retry);
    await this.#endBatch();
    await this.#storeOver();
  }

  async #write(): Promise<void> {
    const lines = this.#pending;
    this.#pending = [];
    const bytes = Buffer.from(lines.join(''));
    try {
      this.#batch ??= await this.#begin(this.#firstTime);
      await this.#batch.append([bytes]);
    } catch (error) {
      throw storageError(error);
    }
    if (this.#batch.bytes >= this.#options.maxBatchBytes) void this.#endAndStore();
  }

  async #begin(time: string): Promise<AppendFile> {
    const { directory, recorder, periodMs } = this.#options;
    const name = `${time}_${recorder}.ndjson`;
    this.#taking = name;
    const file = await AppendFile.open(join(directory, name), 'new');
    await syncDirectory(directory);
    if (!this.#closed) this.#period = setTimeout(() => void this.#endAndStore(), periodMs);
    return file;
  }

  async #endAndStore(): Promise<void> {
    await this.#endBatch();
    await this.#storeOver();
  }

  #endBatch(): Promise<void> {
    return this.#exclusively(async () => {
      clearTimeout(this.#period);
      const batch = this.#batch;
      this.#batch = undefined;
      this.#taking = undefined;
      await batch?.close();
    });
  }

  /** Stores every batch that is over. Never rejects: what fails is tried again later. */
  async #storeOver(): Promise<void> {
    try {
      for (const file of await this.#files()) if (file !== this.#taking) await this.#store(file);
    } catch (error) {
      this.#options.onFailure();
      this.#options.log.error(
        { error: errorText(error) },
        'events could not be stored and will be tried again',
      );
      if (this.#closed) return;
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => void this.#storeOver(), this.#options.retryMs);
    }
  }

  async #store(file: string): Promise<void> {
    const { directory, store, sign, onStored } = this.#options;
    const path = join(directory, file);
    const lines = await readFile(path).catch((error: unknown) => {
      // another call was faster
      if (isSystemError(error, 'ENOENT')) return undefined;
      throw error;
    });
    if (lines === undefined) return;
    if (lines.length > 0) {
      const name = batchName(file);
      const content = sign(name, lines);
      try {
        await store.putDocument(name, content);
      } catch (error) {
        // an answer that was lost, or that came after a crash
        if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
        if ((await store.readDocument(name))?.length !== content.length) throw error;
      }
      await onStored(name, content);
    }
    await removeFile(path);
  }

  async #files(): Promise<readonly string[]> {
    const { directory } = this.#options;
    const names = await readdir(directory);
    const files: string[] = [];
    for (const name of names.filter((found) => NAME.test(found)).toSorted()) {
      if ((await stat(join(directory, name)).catch(() => undefined))?.isFile() === true) files.push(name);
    }
    return files;
  }
}

function batchName(file: string): string {
  return `${batchPrefix(file.slice(0, 10))}${file}`;
}

/** Undefined: it has been stored meanwhile, and is found there. */
async function readUnlessGone(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}
