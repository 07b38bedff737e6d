/**
 * Small documents next to the recordings, listed in the order of their names. They are files in a directory or objects
 * in a bucket. Most documents are written once and never changed.
 */
import { TailcastError } from '../../errors.ts';
import { readBounded } from '../../async/read-bounded.ts';

export interface DocumentStore {
  /**
   * Writes a new document durably.
   *
   * @param name path segments of letters, digits, `.`, `_`, `%`, `:` and `-`, joined with `/`
   * @throws TailcastError `UPLOAD_CONFLICT` if the name exists, `STORE_FAILED` if the store fails
   */
  putDocument(name: string, content: Uint8Array): Promise<void>;
  /**
   * Writes a document durably, unless the name exists. The document is not part of the archive and may be removed at
   * any time.
   *
   * @returns true if this call wrote it. If several calls are concurrent, exactly one returns true. With S3 servers
   *   without `If-None-Match` and with file systems without hard links, several calls may return true.
   * @throws TailcastError `STORE_FAILED`
   */
  claimDocument(name: string, content: Uint8Array): Promise<boolean>;
  /**
   * Writes a document durably, and replaces an existing document.
   * @param retain true to write it with the configured object-lock retention, as `putDocument` does. Default: false
   * @throws TailcastError `STORE_FAILED`
   */
  replaceDocument(name: string, content: Uint8Array, retain?: boolean): Promise<void>;
  /**
   * Lists the names that start with `prefix`, sorted. The prefix ends with `/`. Leaves out names that no recorder
   * writes, such as backup files of editors and folder markers in a bucket.
   * @param maximum number of names after which the listing stops. Default: all names
   */
  listDocuments(prefix: string, maximum?: number): Promise<readonly string[]>;
  /**
   * Reads a document.
   * @param maxBytes maximum number of bytes to read, from the start. Default: the complete document
   * @returns undefined if it does not exist. @throws TailcastError `STORE_FAILED`
   */
  readDocument(name: string, maxBytes?: number): Promise<Uint8Array | undefined>;
  /** Removes a document, if it exists. */
  removeDocument(name: string): Promise<void>;
}

/**
 * Maximum size of a document, in bytes. Recorders write at most about 17 MiB, so larger documents come from other
 * programs.
 */
const MAX_DOCUMENT_BYTES = 64 * 1024 ** 2;

/**
 * Joins the bytes of a document.
 *
 * @throws TailcastError `STORE_FAILED` if the document is larger than {@link MAX_DOCUMENT_BYTES}
 */
export function joinDocument(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const tooLong = (): Error => new TailcastError('STORE_FAILED', 'a document is too large');
  return readBounded(chunks, MAX_DOCUMENT_BYTES, tooLong);
}

/** Result of {@link readLimited} and {@link listLimited} if the limit is exceeded. */
export const OVERSIZED = 'oversized';

/**
 * Reads a document of at most `maxBytes` bytes. Other programs may write larger documents.
 *
 * @returns {@link OVERSIZED} for a larger document; undefined for a missing document
 * @throws TailcastError `STORE_FAILED`
 */
export async function readLimited(
  store: Pick<DocumentStore, 'readDocument'>,
  name: string,
  maxBytes: number,
): Promise<Uint8Array | typeof OVERSIZED | undefined> {
  const content = await store.readDocument(name, maxBytes + 1);
  return content !== undefined && content.length > maxBytes ? OVERSIZED : content;
}

/**
 * Lists at most `maximum` names; see {@link DocumentStore.listDocuments}. Returns {@link OVERSIZED} for more names,
 * which other programs may have written.
 */
export async function listLimited(
  store: Pick<DocumentStore, 'listDocuments'>,
  prefix: string,
  maximum: number,
): Promise<readonly string[] | typeof OVERSIZED> {
  const names = await store.listDocuments(prefix, maximum + 1);
  return names.length > maximum ? OVERSIZED : names;
}

/** Writes a document durably, unless the name exists. @throws TailcastError `STORE_FAILED` */
export async function putIfMissing(
  store: Pick<DocumentStore, 'putDocument'>,
  name: string,
  content: Uint8Array,
): Promise<void> {
  try {
    await store.putDocument(name, content);
  } catch (error) {
    if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
  }
}

/** Returns true for a valid document name; see {@link DocumentStore.putDocument}. */
export function isDocumentName(name: string): boolean {
  return name.length <= 500 && name.split('/').every((part) => /^(?!\.{1,2}$)[\w.%:-]+$/.test(part));
}
