/**
 * In-memory copy of the signed documents in one folder of a store.
 *
 * Anyone with write access to the store can add documents. A refresh therefore reads a limited number of unread
 * documents, starting at a random position. Many forged documents can delay genuine ones, but not hide them.
 */
import { randomInt } from 'node:crypto';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { settledWithin } from '../../async/with-timeout.ts';
import type { DocumentStore } from '../store/document-store.ts';

const READ_CONCURRENCY = 8;
/** Maximum number of unread documents that one refresh reads. */
const MAX_READ = 5000;
/**
 * Maximum age of the list of documents, in milliseconds. Changes of other recorders appear at the latest after this
 * time.
 */
const REFRESH_MS = 30_000;
/** Maximum wait for a refresh, in milliseconds. After this time, the refresh continues in the background. */
const MAX_WAIT_MS = 2000;

export interface SignedDocumentsOptions<T> {
  readonly store: Pick<DocumentStore, 'listDocuments'>;
  readonly folder: string;
  /** Reads and checks a document; returns undefined if it has no trusted signature. */
  readonly read: (name: string) => Promise<T | undefined>;
  /** True if recorders replace documents. Each refresh then reads all documents again. */
  readonly isReplaced: boolean;
  readonly nowMs: () => number;
}

export interface SignedDocuments<T> {
  /**
   * Returns the valid documents, with their names as map keys. Returns the same map until a document changes.
   * @throws TailcastError `STORE_FAILED`
   */
  all(): Promise<ReadonlyMap<string, T>>;
  /** Adds or removes a document that this recorder has written or removed. */
  changed(name: string, value: T | undefined): ReadonlyMap<string, T>;
}

/** Creates the reader of a folder. */
export function createSignedDocuments<T>(options: SignedDocumentsOptions<T>): SignedDocuments<T> {
  const { store, folder, read, isReplaced, nowMs } = options;
  const known = new Map<string, T>();
  const invalid = new Set<string>();
  let shown: ReadonlyMap<string, T> = new Map();
  let readAtMs = -Infinity;
  let isComplete = false;
  let reading: Promise<void> | undefined;

  async function refresh(): Promise<void> {
    const names = await store.listDocuments(folder);
    const listed = new Set(names);
    for (const kept of [known, invalid])
      for (const name of kept.keys()) if (!listed.has(name)) kept.delete(name);
    const again = isReplaced ? [...known.keys()] : [];
    const unread = names.filter((name) => !known.has(name) && !invalid.has(name));
    const start = unread.length === 0 ? 0 : randomInt(unread.length);
    const chosen = [...unread.slice(start), ...unread.slice(0, start)].slice(0, MAX_READ);
    await forEachConcurrent([...again, ...chosen], READ_CONCURRENCY, async (name) => {
      const value = await read(name);
      if (value !== undefined) known.set(name, value);
      else if (!known.delete(name)) invalid.add(name);
    });
    isComplete = chosen.length === unread.length;
    // Read invalid documents again, because a recorder may replace a forged document.
    if (isComplete) invalid.clear();
    readAtMs = nowMs();
    shown = new Map(known);
  }

  return {
    async all() {
      const isOld = nowMs() - readAtMs >= REFRESH_MS;
      if (isOld || !isComplete) {
        reading ??= refresh().finally(() => {
          reading = undefined;
        });
        reading.catch(() => undefined);
        if (isOld) await settledWithin(MAX_WAIT_MS, reading);
      }
      return shown;
    },
    changed(name, value) {
      if (value === undefined) known.delete(name);
      else known.set(name, value);
      invalid.delete(name);
      shown = new Map(known);
      return shown;
    },
  };
}
