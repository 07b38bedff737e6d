/** What an engine of the search does: the embedded one answers at once, a server later. */
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

/** All of a session. */
export interface WholeSession {
  readonly doc: SessionDoc;
  readonly moments: readonly Moment[];
  readonly partial: boolean;
}

export interface WritingEngine {
  /** Which version there is of a session; undefined: none. Asked before it is read, so that who reads it later wins. */
  version(id: string): Answered<string | undefined>;
  /** Takes a session, which replaces what there is of it with the next flush. Each once until then. */
  add(session: WholeSession): Answered<void>;
  /** Writes what was added. @returns how many there were to write */
  flush(): Answered<number>;
  /** A session that grows: its version is empty until it is put. `fresh`: what there is of it goes. */
  append(names: SessionNames, moments: readonly Moment[], fresh: boolean, partial: boolean): Answered<void>;
  remove(id: string): Answered<void>;
  /** Takes removed words out of the bytes of the files. */
  compact(): Answered<void>;
  /** Puts what is there together, a step at a time. @returns whether there is more to do */
  tidy(): Answered<boolean>;
  /** In the order of ids. */
  ids(after: string, limit: number): Answered<readonly IndexedSession[]>;
  status(): Answered<IndexStatus>;
  /** @throws Error when this is not the index any more that it was opened as */
  check(): Answered<void>;
}

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
  /** Whether these are the moments of a session, and their words are found. */
  holds(id: string, moments: readonly Moment[]): Answered<boolean>;
}
