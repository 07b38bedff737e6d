/** Messages between the recorder and its index processes. */
import type { RuleMatch, WatchedRule } from '../../search/match.ts';
import type { Query } from '../../search/query.ts';
import type {
  Facets,
  Found,
  Hit,
  IndexedSession,
  IndexStatus,
  ListAsk,
  ListedSessions,
  Page,
  SessionDoc,
  SessionNames,
} from '../../search/search-index.ts';
import type { ViewerTerms } from '../../search/viewer-terms.ts';
import type { ServerIndex } from './opensearch/server-index.ts';

/** Location of an index: files, or a server. */
export type IndexPlace = { readonly directory: string } | { readonly server: ServerIndex };

/**
 * Work limit of a recording. `quick` is enough for nearly all recordings. A `quick` reading stops at this limit, so
 * that a costly recording does not delay other recordings. `full` is the limit that also applies to transcripts.
 */
export type Effort = 'quick' | 'full';

/** Cost of reading a recording. */
export interface WorkDone {
  /** Work units since the last response. */
  readonly work: number;
  /** True if the budget is exhausted. The remaining output is then read as plain lines, without terminal emulation. */
  readonly isStopped: boolean;
  /** True if the process reads no more of the recording. */
  readonly isDone: boolean;
}

/** Operations with their requests and responses. */
export interface IndexOperations {
  /** Opens the files or connects to the server. Must be the first request. */
  open(ask: IndexPlace & { readonly mayWrite: boolean }): null;
  /** Sets the alert rules for recordings whose reading starts after this call. */
  watch(ask: readonly WatchedRule[]): null;
  /** Starts a recording. Returns `same` if the index has this version already. */
  begin(ask: {
    readonly key: number;
    readonly doc: SessionDoc;
    readonly isLive: boolean;
    readonly effort: Effort;
  }): 'begun' | 'same';
  /**
   * Adds sessions without text. The next flush writes them.
   * @returns matching rules of each session; `same` if the index has this version already
   */
  put(ask: readonly SessionDoc[]): readonly (readonly RuleMatch[] | 'same')[];
  /** Sends bytes of the cast. */
  feed(ask: { readonly key: number; readonly bytes: Uint8Array }): WorkDone;
  /**
   * Indexes the sent bytes of a running session, and the bytes in this request, if any. @returns newly matching alert
   * rules
   */
  commit(ask: {
    readonly key: number;
    readonly names: SessionNames;
    readonly bytes?: Uint8Array;
  }): WorkDone & { readonly matches: readonly RuleMatch[] };
  /**
   * Adds the bytes in this request, if any, and ends the recording. The next flush writes the recording and removes its
   * older version. A recording that is too costly for a quick reading is dropped.
   *
   * @returns matching rules
   */
  finish(ask: {
    readonly key: number;
    readonly bytes?: Uint8Array;
  }): WorkDone & { readonly matches: readonly RuleMatch[] };
  /** Writes the finished recordings to the index. */
  flush(ask: null): null;
  /** Drops an unfinished recording. */
  drop(ask: { readonly key: number }): null;
  remove(ask: { readonly ids: readonly string[]; readonly compact: boolean }): null;
  /**
   * Called while the indexer is idle: merges index segments, one step per request. @returns true if there is more to
   * merge
   */
  tidy(ask: null): boolean;
  ids(ask: { readonly after: string; readonly limit: number }): readonly IndexedSession[];
  /**
   * Returns the same sessions as `ids`. Query processes answer this request, and the index writer process answers
   * `ids`.
   */
  versions(ask: { readonly after: string; readonly limit: number }): readonly IndexedSession[];
  version(ask: { readonly id: string }): string | undefined;
  status(ask: null): IndexStatus;
  /** Checks that the opened index still exists. @throws Error if another index has replaced the opened index */
  check(ask: null): null;
  /** Closes the index. Must be the last request. Unfinished work on a server is completed after the next start. */
  close(ask: null): null;
  find(ask: { readonly query: Query; readonly may: ViewerTerms; readonly page: Page }): Found;
  within(ask: {
    readonly id: string;
    readonly query: Query;
    readonly may: ViewerTerms;
    readonly limit: number;
  }): { readonly hits: readonly Hit[]; readonly more: boolean };
  list(ask: ListAsk): ListedSessions;
  facets(ask: { readonly query: Query; readonly may: ViewerTerms }): Facets;
}

export type IndexOperation = keyof IndexOperations;
/** Request that starts an operation. */
export type Ask<Name extends IndexOperation> = Parameters<IndexOperations[Name]>[0];
/** Response of an operation. */
export type Answer<Name extends IndexOperation> = ReturnType<IndexOperations[Name]>;

/** A request. Responses arrive in any order. */
export interface IndexRequest {
  readonly number: number;
  readonly operation: IndexOperation;
  readonly ask: unknown;
}

export type IndexResponse =
  | { readonly number: number; readonly value: unknown }
  | { readonly number: number; readonly error: string; readonly isQuery: boolean };
