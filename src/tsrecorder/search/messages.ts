/** What the recorder and the processes of its index say to each other. */
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

/** Where an index is: in files, or at a server. */
export type IndexPlace = { readonly directory: string } | { readonly server: ServerIndex };

/**
 * How much work a recording may take: `quick` is enough for nearly all recordings, so that costly ones do not delay them; `full` is what a transcript
 * gets.
 */
export type Effort = 'quick' | 'full';

/** What reading a recording has cost. */
export interface WorkDone {
  /** Work units since the last answer. */
  readonly work: number;
  /** True if the budget is exhausted: the rest is read as it was written, without a screen. */
  readonly isStopped: boolean;
  /** True if nothing more is read. */
  readonly isDone: boolean;
}

/** What can be asked, and what comes back. */
export interface IndexOperations {
  /** Opens the files, or finds the server; to be asked first. */
  open(ask: IndexPlace & { readonly mayWrite: boolean }): null;
  /** Of what is fed from now on it is said which of these are true; to be asked before. */
  watch(ask: readonly WatchedRule[]): null;
  /** A recording is going to be fed: `same` when the index has this version already. */
  begin(ask: {
    readonly key: number;
    readonly doc: SessionDoc;
    readonly isLive: boolean;
    readonly effort: Effort;
  }): 'begun' | 'same';
  /** Bytes of its cast. */
  feed(ask: { readonly key: number; readonly bytes: Uint8Array }): WorkDone;
  /** What was fed of a running session, and these bytes, if any, can be found from now on. @returns the rules that have become true of it */
  commit(ask: {
    readonly key: number;
    readonly names: SessionNames;
    readonly bytes?: Uint8Array;
  }): WorkDone & { readonly matches: readonly RuleMatch[] };
  /**
   * These bytes, if any, are its end: with the next flush it replaces what there was. A recording that is too costly for a quick reading is dropped.
   *
   * @returns the rules that are true of it
   */
  finish(ask: {
    readonly key: number;
    readonly bytes?: Uint8Array;
  }): WorkDone & { readonly matches: readonly RuleMatch[] };
  /** What was finished can be found from now on. */
  flush(ask: null): null;
  /** It is not going to be fed to its end. */
  drop(ask: { readonly key: number }): null;
  remove(ask: { readonly ids: readonly string[]; readonly compact: boolean }): null;
  /** For when there is nothing else to do: puts the index together, a step at a time. @returns whether there is more to do */
  tidy(ask: null): boolean;
  ids(ask: { readonly after: string; readonly limit: number }): readonly IndexedSession[];
  /** The same, and of one, asked of a process that only reads. */
  versions(ask: { readonly after: string; readonly limit: number }): readonly IndexedSession[];
  version(ask: { readonly id: string }): string | undefined;
  /** Whether the text that was fed is the text that can be found. */
  compare(ask: { readonly key: number }): boolean;
  status(ask: null): IndexStatus;
  /** @throws Error when this is not the index any more that was opened */
  check(ask: null): null;
  /** Closes the files of an index; nothing is asked after that. What waits at a server stays to be done. */
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
export type Ask<Name extends IndexOperation> = Parameters<IndexOperations[Name]>[0];
export type Answer<Name extends IndexOperation> = ReturnType<IndexOperations[Name]>;

/** One question; answers come in any order. */
export interface IndexRequest {
  readonly number: number;
  readonly operation: IndexOperation;
  readonly ask: unknown;
}

export type IndexResponse =
  | { readonly number: number; readonly value: unknown }
  | { readonly number: number; readonly error: string; readonly isQuery: boolean };
