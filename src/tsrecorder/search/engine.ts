/** Interface of search engines. The embedded engine returns results synchronously, and a server returns promises. */
import { z } from 'zod';
import type { Query } from '../../search/query.ts';
import type {
  Facets,
  Found,
  Hit,
  IndexedSession,
  IndexStatus,
  ListAsk,
  ListedSessions,
  Moment,
  Page,
  SessionDoc,
  SessionNames,
} from '../../search/search-index.ts';
import type { ViewerTerms } from '../../search/viewer-terms.ts';

type Answered<T> = T | Promise<T>;

/** Format of a stored moment. */
export const MOMENT = z.object({
  t0: z.number(),
  t1: z.number(),
  rows: z.array(z.object({ at: z.number(), text: z.string() })),
  command: z.object({ text: z.string(), isGuessed: z.boolean() }).exactOptional(),
}) satisfies z.ZodType<Moment>;

/** A complete session. */
export interface CompleteSession {
  readonly doc: SessionDoc;
  readonly moments: readonly Moment[];
  readonly partial: boolean;
}

/** The part of a search engine that writes the index. */
export interface WritingEngine {
  /**
   * Returns the indexed version of a session, or undefined. Called before the session is read. If two recorders write
   * the session, the recorder that called `version` later wins.
   */
  version(id: string): Answered<string | undefined>;
  /**
   * Adds a session. The next flush writes the session and removes its older version. Add each session once per flush.
   */
  add(session: CompleteSession): Answered<void>;
  /** Writes the added sessions. @returns their number */
  flush(): Answered<number>;
  /**
   * Appends moments to a running session. The version of the session is empty until `add` and `flush` are called. If
   * `fresh` is true, deletes the earlier text of the session.
   */
  append(names: SessionNames, moments: readonly Moment[], fresh: boolean, partial: boolean): Answered<void>;
  remove(id: string): Answered<void>;
  /** Erases removed words from the files. */
  compact(): Answered<void>;
  /** Merges index segments, one step per call. @returns true if there is more to merge */
  tidy(): Answered<boolean>;
  /** Returns indexed sessions in the order of their ids. */
  ids(after: string, limit: number): Answered<readonly IndexedSession[]>;
  status(): Answered<IndexStatus>;
  /** Checks that the opened index still exists. @throws Error if another index has replaced the opened index */
  check(): Answered<void>;
}

/** The part of a search engine that executes queries. */
export interface ReadingEngine {
  find(query: Query, may: ViewerTerms, page: Page): Answered<Found>;
  within(
    id: string,
    query: Query,
    may: ViewerTerms,
    limit: number,
  ): Answered<{ readonly hits: readonly Hit[]; readonly more: boolean }>;
  facets(query: Query, may: ViewerTerms): Answered<Facets>;
  list(ask: ListAsk): Answered<ListedSessions>;
  versions(after: string, limit: number): Answered<readonly IndexedSession[]>;
  version(id: string): Answered<string | undefined>;
}
