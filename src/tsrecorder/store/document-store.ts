/**
 * Small documents beside the recordings, listed in the order of their names. A store keeps them as files or as objects;
 * nothing appends. Almost all are written once and never changed.
 */
export interface DocumentStore {
  /**
   * Keeps a document, durably.
   *
   * @param name path segments of letters, digits, `.`, `_`, `%`, `:` and `-`, joined with `/`
   * @throws TailcastError `UPLOAD_CONFLICT` when the name is taken, `STORE_FAILED`
   */
  putDocument(name: string, content: Uint8Array): Promise<void>;
  /**
   * Keeps a document, durably, unless the name is taken. It is no part of the archive, and can be removed at any time.
   *
   * @returns True if this call kept it. Of several concurrent calls, one returns true; more than one in an S3 store
   *   without `If-None-Match`, and in a file system without hard links.
   * @throws TailcastError `STORE_FAILED`
   */
  claimDocument(name: string, content: Uint8Array): Promise<boolean>;
  /** Keeps a document, durably, in the place of one that has the name. @throws TailcastError `STORE_FAILED` */
  replaceDocument(name: string, content: Uint8Array): Promise<void>;
  /** Names that begin with `prefix`, which ends in `/`, in order. */
  listDocuments(prefix: string): Promise<readonly string[]>;
  /**
   * @param maxBytes reads at most that many bytes from the beginning. Default: all
   * @returns undefined when there is none. @throws TailcastError `STORE_FAILED`
   */
  readDocument(name: string, maxBytes?: number): Promise<Uint8Array | undefined>;
  /** That there is none is fine. */
  removeDocument(name: string): Promise<void>;
}

/** Whether `name` is one that every store can keep: see {@link DocumentStore.putDocument}. */
export function isDocumentName(name: string): boolean {
  return name.length <= 500 && name.split('/').every((part) => /^(?!\.{1,2}$)[\w.%:-]+$/.test(part));
}
