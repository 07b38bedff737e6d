/**
 * Batches of events: documents with one event per line. A batch stays durable in the spool until it is signed and
 * stored. A batch ends after `periodMs`, or when it is large enough. Its name starts with the time of its first event.
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
  /** Existing directory for batches that are not stored yet. Each recorder needs its own. */
  readonly directory: string;
  readonly store: DocumentStore;
  /** Distinguishes the names of recorders with a common store: letters and digits. */
  readonly recorder: string;
  /** Maximum time that a batch accepts events, in milliseconds. */
  readonly periodMs: number;
  readonly maxBatchBytes: number;
  /** Pause after a failure of the store, in milliseconds. */
  readonly retryMs: number;
  /** Adds the signature of this recorder to a batch. Must be deterministic. */
  readonly sign: (name: string, lines: Uint8Array) => Uint8Array;
  /** Called when a batch is stored, before the removal from the spool. */
  readonly onStored: (name: string, content: Uint8Array) => Promise<void>;
  readonly log: Logger;
  /** Called when the store failed. The recorder retries. */
  readonly onFailure: () => void;
}

export interface EventBatches {
  /**
   * Appends an event. Resolves when the event is durable.
   *
   * @param time receive time, as in a key
   * @param event JSON text
   * @throws TailcastError `STORE_FAILED`
   */
  append(time: string, event: string): Promise<void>;
  /** Returns the batches that are not stored yet, by name. */
  waiting(): Promise<ReadonlyMap<string, string>>;
  /** Ends the open batch, and tries to store all batches. */
  close(): Promise<void>;
}

const EVENTS_FOLDER = 'events/';
/** File name of a batch. Its length is limited, so that a cursor with the name of any batch is valid. */
const NAME = /^\d{4}-\d{2}-\d{2}T[\d:.]{8,18}Z_[0-9a-z]{1,32}\.ndjson$/;

/** Returns the name prefix of batches of a day (`2026-07-29`), or of all batches. */
export function batchPrefix(day?: string): string {
  return day === undefined ? EVENTS_FOLDER : `${EVENTS_FOLDER}${day}/`;
}

/**
 * Returns the start of a batch in nanoseconds since the epoch.
 *
 * @param name complete name in the store
 * @returns undefined for other documents, such as a document in the folder of another day
 */
export function batchTime(name: string): bigint | undefined {
  const file = name.slice(name.lastIndexOf('/') + 1);
  if (!NAME.test(file) || name !== batchName(file)) return undefined;
  return parseTime(file.slice(0, file.indexOf('_')));
}

/** Opens the batches of a spool directory. Batches of an earlier process are stored first. */
export async function openEventBatches(options: EventBatchOptions): Promise<EventBatches> {
  const batches = new Batches(options);
  await batches.recover();
  return batches;
}

class Batches implements EventBatches {
  readonly #options: EventBatchOptions;
  #batch: AppendFile | undefined;
  /** File of the open batch. It accepts events and is not stored yet. */
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
    // In valid JSON, line feeds occur only between tokens.
    this.#pending.push(`${event.trim().replaceAll(/[\r\n]/g, ' ')}\n`);
    return this.#written();
  }

  waiting(): Promise<ReadonlyMap<string, string>> {
    return this.#exclusively(async () => {
      const found = new Map<string, string>();
      for (const file of await this.#files()) {
        const content = await readIfExists(join(this.#options.directory, file));
        if (content !== undefined)
          found.set(batchName(file), content.slice(0, content.lastIndexOf('\n') + 1));
      }
      return found;
    });
  }

  /** Truncates files to complete lines after a crash, and stores them. */
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

  /** Stores every finished batch. Never rejects; failures are retried later. */
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
      // Another call has stored the batch.
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
        // The response of an earlier attempt was lost, or the process crashed before it arrived.
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

/** Returns the content, or undefined if the batch is already stored. */
async function readIfExists(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}
