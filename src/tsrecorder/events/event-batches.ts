/**
 * Batches of events: documents with one event per line. A batch stays durable in the spool until it is signed and
 * stored. A batch ends after `periodMs`, or when it is large enough. The name of a batch starts with the time of its
 * first event.
 *
 * ```
 * events/2026-07-29/2026-07-29T11:45:08.133861649Z_<recorder>.ndjson
 * ```
 */
import { readFile, readdir, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import { errorText, ifPresent, TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { AppendFile } from '../files/append-file.ts';
import { syncDirectory } from '../../directories.ts';
import { removeFile, storageError } from '../files/durable-files.ts';
import { BATCH_FILE, batchName, readBatch } from '../evidence/signed-batch.ts';
import type { DocumentStore } from '../store/document-store.ts';

export interface EventBatchOptions {
  /** Existing directory for batches that are not stored yet. Recorders must not share the directory. */
  readonly directory: string;
  readonly store: DocumentStore;
  /** Part of each batch name, unique among the recorders of a store. Consists of letters and digits. */
  readonly recorder: string;
  /** Maximum time that a batch accepts events, in milliseconds. */
  readonly periodMs: number;
  /** Maximum size of a batch, in bytes. A single larger event has a batch of its own. */
  readonly maxBatchBytes: number;
  /** Pause after a failure of the store, in milliseconds. */
  readonly retryMs: number;
  /** Adds the signature of this recorder to a batch. Must be deterministic. */
  readonly sign: (name: string, lines: Uint8Array) => Uint8Array;
  /** Called after a batch was stored, and before its file is removed from the spool. */
  readonly onStored: (name: string, content: Uint8Array) => Promise<void>;
  readonly log: Logger;
  /** Called when the store failed. The recorder retries. */
  readonly onFailure: () => void;
}

/** Opens the batches of a spool directory, and starts to store the batches of earlier processes. */
export async function openEventBatches(options: EventBatchOptions): Promise<EventBatches> {
  const batches = new EventBatches(options);
  await batches.recover();
  return batches;
}

/** Reads the complete lines of a batch; undefined if the batch is in the store by now. */
export type ReadWaiting = () => Promise<string | undefined>;

/** Received events, which stay in batches on disk until the batches are stored. */
export class EventBatches {
  readonly #options: EventBatchOptions;
  #batch: AppendFile | undefined;
  /** File of the open batch, which still accepts events. */
  #taking: string | undefined;
  #pending: { readonly time: string; readonly line: Uint8Array }[] = [];
  readonly #exclusively = createSequence();
  readonly #written = createSharedStep(this.#exclusively, () => this.#write());
  #period: NodeJS.Timeout | undefined;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: EventBatchOptions) {
    this.#options = options;
  }

  /**
   * Appends an event. Resolves when the event is durable.
   *
   * @param time receive time, in the format of recording keys
   * @param event JSON text
   * @throws TailcastError `STORE_FAILED`
   */
  append(time: string, event: string): Promise<void> {
    // Valid JSON has line breaks only between tokens, so a space can replace them.
    this.#pending.push({ time, line: Buffer.from(`${event.trim().replaceAll(/[\r\n]/g, ' ')}\n`) });
    return this.#written();
  }

  /** Returns functions that read the batches that are not stored yet, with the names of the batches as map keys. */
  async waiting(): Promise<ReadonlyMap<string, ReadWaiting>> {
    const files = await this.#exclusively(() => this.#files());
    return new Map(files.map((file) => [batchName(file), () => this.#readWaiting(file)]));
  }

  async #readWaiting(file: string): Promise<string | undefined> {
    const content = await ifPresent(readFile(join(this.#options.directory, file), 'utf8'));
    return content?.slice(0, content.lastIndexOf('\n') + 1);
  }

  /** After a crash, truncates each file after its last complete line, and starts to store the batches. */
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

  /** Ends the open batch, and tries to store all batches. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#period);
    clearTimeout(this.#retry);
    await this.#endBatch();
    await this.#storeOver();
  }

  async #write(): Promise<void> {
    const pending = this.#pending;
    this.#pending = [];
    const { maxBatchBytes } = this.#options;
    try {
      for (let next = pending[0]; next !== undefined; next = pending[0]) {
        let bytes = this.#batch?.bytes ?? 0;
        const full = pending.findIndex(({ line }) => {
          const isFull = bytes > 0 && bytes + line.length > maxBatchBytes;
          bytes += line.length;
          return isFull;
        });
        const lines = pending.splice(0, full < 0 ? pending.length : full).map(({ line }) => line);
        if (lines.length === 0) {
          await this.#finishBatch();
          continue;
        }
        this.#batch ??= await this.#begin(next.time);
        await this.#batch.append(lines);
      }
    } catch (error) {
      throw storageError(error);
    }
    if ((this.#batch?.bytes ?? 0) >= maxBatchBytes) void this.#endAndStore();
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
    return this.#exclusively(() => this.#finishBatch());
  }

  async #finishBatch(): Promise<void> {
    clearTimeout(this.#period);
    const batch = this.#batch;
    this.#batch = undefined;
    this.#taking = undefined;
    await batch?.close();
  }

  /** Stores every finished batch. The promise never rejects; failures are retried later. */
  async #storeOver(): Promise<void> {
    try {
      let conflict: TailcastError | undefined;
      for (const file of await this.#files()) {
        if (file === this.#taking) continue;
        try {
          await this.#store(file);
        } catch (error) {
          // Another document has the name of this batch. Store the other batches anyway.
          if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
          conflict = error;
        }
      }
      if (conflict !== undefined) throw conflict;
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
    const lines = await ifPresent(readFile(path));
    if (lines === undefined) return;
    if (lines.length > 0) {
      const name = batchName(file);
      const content = sign(name, lines);
      try {
        await store.putDocument(name, content);
      } catch (error) {
        // Ignore a conflict with an equal document: an earlier attempt succeeded, and its response was lost.
        if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
        const existing = await store.readDocument(name, content.length + 1);
        if (existing === undefined) throw error;
        if (Buffer.compare(existing, content) !== 0) {
          // The earlier attempt may have signed the same lines with an earlier key.
          const { text } = readBatch(name, existing, new Map());
          if (Buffer.compare(Buffer.from(text), lines) !== 0) throw error;
          // The store may refuse to overwrite a locked document. Treat the refusal as a conflict, so that the other
          // batches are stored.
          await store.replaceDocument(name, content, true).catch((cause: unknown) => {
            throw new TailcastError('UPLOAD_CONFLICT', errorText(cause), { cause });
          });
        }
      }
      await onStored(name, content);
    }
    await removeFile(path);
  }

  async #files(): Promise<readonly string[]> {
    const { directory } = this.#options;
    const names = await readdir(directory);
    const files: string[] = [];
    for (const name of names.filter((found) => BATCH_FILE.test(found)).toSorted()) {
      if ((await stat(join(directory, name)).catch(() => undefined))?.isFile() === true) files.push(name);
    }
    return files;
  }
}
