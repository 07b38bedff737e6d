/**
 * In-memory copy of the signed documents in one folder of a store.
 *
 * Anyone with write access to the store can add documents. A refresh therefore reads a limited number of unread
 * documents, starting at a random position. Many forged documents can delay the reading of genuine documents, but
 * cannot prevent it.
 */
import { randomInt } from 'node:crypto';
import type { z } from 'zod';
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { settledWithin } from '../../async/with-timeout.ts';
import { TailcastError } from '../../errors.ts';
import type { DocumentStore } from '../store/document-store.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';
import { encodeStatement, readStatementIn, type StatementPurpose } from './statement.ts';

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
/** Maximum wait of a change until all documents were read once, in milliseconds. */
const MAX_FIRST_WAIT_MS = 10_000;

/** Keys and store of signed documents. */
export interface DocumentSigner {
  readonly store: Pick<
    DocumentStore,
    'listDocuments' | 'readDocument' | 'putDocument' | 'replaceDocument' | 'removeDocument'
  >;
  readonly key: SigningKey;
  /** Public keys of the trusted recorders. Map keys: key id. */
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
}

export interface SignedDocumentsOptions<T> extends DocumentSigner {
  readonly folder: string;
  readonly purpose: StatementPurpose;
  readonly schema: z.ZodType<T>;
  /** Returns the name of a document. A document with another name is invalid. */
  readonly nameOf: (value: T) => string;
  /** True if recorders replace documents. Each refresh then reads all documents again. */
  readonly isReplaced: boolean;
}

/** Creates the in-memory copy of one folder. */
export function createSignedDocuments<T extends object>(options: SignedDocumentsOptions<T>) {
  const { store, key, trusted, nowMs, folder, purpose, schema, nameOf, isReplaced } = options;
  const known = new Map<string, T>();
  const invalid = new Set<string>();
  let shown: ReadonlyMap<string, T> = new Map();
  let readAtMs = -Infinity;
  let isComplete = false;
  let wasComplete = false;
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
      const value = await readStatementIn(store, name, purpose, schema, trusted);
      if (typeof value === 'object' && nameOf(value) === name) known.set(name, value);
      else if (!known.delete(name)) invalid.add(name);
    });
    isComplete = chosen.length === unread.length;
    // Read invalid documents again, because a recorder may replace a forged document.
    if (isComplete) invalid.clear();
    wasComplete ||= isComplete;
    readAtMs = nowMs();
    shown = new Map(known);
  }

  function read(): Promise<void> {
    reading ??= refresh().finally(() => {
      reading = undefined;
    });
    reading.catch(() => undefined);
    return reading;
  }

  async function readAll(): Promise<void> {
    while (!wasComplete) await read();
  }

  async function all(): Promise<ReadonlyMap<string, T>> {
    const isOld = nowMs() - readAtMs >= REFRESH_MS;
    if (isOld || !isComplete) {
      const refreshed = read();
      if (isOld) await settledWithin(MAX_WAIT_MS, refreshed);
    }
    return shown;
  }

  return {
    /**
     * Returns the valid documents, with their names as map keys. Returns the same map until a document changes.
     * @throws TailcastError `STORE_FAILED`
     */
    all,
    /**
     * Returns the valid documents after all documents were read at least once. Use this function to check limits.
     * @throws TailcastError `STORE_FAILED`, or `RECORDER_BUSY` if the first read takes too long
     */
    async complete() {
      if (!wasComplete && !(await settledWithin(MAX_FIRST_WAIT_MS, readAll())))
        throw new TailcastError(
          'RECORDER_BUSY',
          `it still reads the documents in ${folder}; try again later`,
        );
      return all();
    },
    /** Signs and stores a document. If `replaces` is false, the name must be new. @returns the result of `all` */
    async write(value: T, replaces: boolean) {
      const name = nameOf(value);
      const content = Buffer.from(encodeStatement(purpose, value, key));
      if (replaces) await store.replaceDocument(name, content);
      else await store.putDocument(name, content);
      known.set(name, value);
      invalid.delete(name);
      shown = new Map(known);
      return shown;
    },
    async remove(name: string) {
      await store.removeDocument(name);
      known.delete(name);
      shown = new Map(known);
    },
  };
}
