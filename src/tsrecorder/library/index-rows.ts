/**
 * Rows of a list of recordings, from the search index. The index returns the matching sessions. Sessions that are not
 * in the index are read from the store or the spool. The resulting list is the same as without an index.
 */
import type { FieldTerm, Term } from '../../search/query.ts';
import type { ListAsk, ListedSession, ListPosition, ListSort } from '../../search/search-index.ts';
import type { ViewerTerm, ViewerTerms } from '../../search/viewer-terms.ts';
import { decodeRecording, type Recording } from '../../wire/recorder-api/recording.ts';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { FILTERS, type CatalogQuery } from './catalog-query.ts';
import type { CurrentListing } from './listing.ts';
import { isWithin, newestFirst, type Scope, type ScopeIndex } from './scope.ts';
import type { SessionIndex } from './session-index.ts';
import {
  candidateWithin,
  describeCandidate,
  isNamed,
  uploadsByMark,
  withoutCopies,
  type Candidate,
} from './sessions.ts';
import { mergeUploads, sessionsOf, sessionWith, type MergedUploads } from './uploads.ts';
import { formatTime } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

/**
 * Maximum number of unindexed recordings that are read for one list. If there are more, the list is created without the
 * index.
 */
const MAX_UNINDEXED = 2000;

/** Number of recordings of a list that are read concurrently. */
const READ_BATCH = 32;

/** The index and all uploads at one moment. */
export interface IndexedState {
  readonly index: Pick<SessionIndex, 'list'>;
  /** Uploads in the store, and uploads of other recorders. */
  readonly uploads: MergedUploads;
  /** Sessions within the scope that are not in the index, newest first. */
  readonly unindexed: readonly Candidate[];
  /** Ids of all uploads of sessions that are not in the index, regardless of the scope. */
  readonly covered: ReadonlySet<string>;
}

export interface IndexOptions {
  readonly readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>;
  readonly version: (stored: StoredRecording) => Promise<string | undefined>;
}

/** A session in a list. */
export interface ListedRow {
  readonly at: ListPosition;
  /** Reads the recording. Returns undefined if the recording was removed, or no longer belongs in the list. */
  readonly recording: () => Promise<Recording | undefined>;
}

/** Reads the recordings of rows in batches, before the consumer needs them. */
export async function* readAhead(
  rows: Iterable<ListedRow> | AsyncIterable<ListedRow>,
): AsyncGenerator<ListedRow> {
  let batch: ListedRow[] = [];
  for await (const { at, recording } of rows) {
    const read = recording();
    // Ignore the error here: the consumer gets it when it reads the recording.
    read.catch(() => undefined);
    batch.push({ at, recording: () => read });
    if (batch.length < READ_BATCH) continue;
    yield* batch;
    batch = [];
  }
  yield* batch;
}

/**
 * Finds the sessions that are not in the index.
 *
 * @param live sessions of this recorder
 * @returns undefined if more than {@link MAX_UNINDEXED} sessions are not in the index, or if their number is unknown
 */
export async function outsideIndex(
  index: Pick<SessionIndex, 'pending' | 'list'>,
  live: readonly Candidate[],
  listing: CurrentListing,
  scope: Scope,
  { readScopes }: IndexOptions,
): Promise<IndexedState | undefined> {
  const pending = index.pending();
  if (pending === undefined || pending.size + live.length + listing.remote.length > MAX_UNINDEXED)
    return undefined;
  const uploads = mergeUploads([...listing.added.values()], listing);
  const named = [...pending].map((id) => uploads.find(id)).filter((found) => found !== undefined);
  const few = withoutCopies(live, [...listing.remote, ...named]);
  const marks = new Set(few.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const all = withoutCopies(
    few,
    [...marks].flatMap((mark) => uploads.ofMark(mark)),
  );
  const covered = new Set(all.map(({ id }) => id));
  const sorted = all.toSorted(newestFirst);
  const visible =
    scope === 'everything'
      ? sorted
      : (await (await readScopes(sorted)).within(scope)).map((upload) => candidateWithin(scope, upload));
  return { index, uploads, covered, unindexed: await joinSessions(visible) };
}

/** Groups uploads into sessions, newest first. */
async function joinSessions(uploads: readonly Candidate[]): Promise<readonly Candidate[]> {
  const all = uploads.toSorted(newestFirst);
  const byMark = await uploadsByMark(all);
  return Array.fromAsync(sessionsOf(mergeUploads([], { all, candidate: (upload) => upload, byMark })));
}

/** Yields the sessions of the index after the position `begin`, in the order of the list. */
export async function* indexRows(
  state: IndexedState,
  ask: ListAsk & { readonly sort: ListSort },
  begin: ListPosition | undefined,
  scope: Scope,
  options: IndexOptions,
): AsyncGenerator<ListedRow> {
  const { sort } = ask;
  for (let after = begin, isMore = true; isMore;) {
    const { sessions, more } = await state.index.list({ ...ask, ...positionIn(ask, after) });
    const rows = sessions.map((session) => ({
      at: positionOf(sort, session.order, session.value),
      recording: () => recordingOf(state, session, scope, options),
    }));
    yield* readAhead(rows);
    after = rows.at(-1)?.at;
    isMore = more && sessions.length > 0;
  }
}

function positionIn({ sort, before = '' }: ListAsk, after: ListPosition | undefined): Partial<ListAsk> {
  if (after === undefined || sort !== 'newest') return after === undefined ? {} : { after };
  return { before: before === '' || after.order < before ? after.order : before };
}

/** Returns the position of a session in a list. */
export function positionOf(sort: ListSort, order: string, value: number | undefined): ListPosition {
  return sort === 'newest' || sort === 'oldest' || value === undefined ? { order } : { order, value };
}

/**
 * True if the index finds a session within the scope. The lookup takes the same time for hidden and for missing
 * sessions.
 */
export async function isFound(
  { index, uploads }: IndexedState,
  id: string,
  scope: readonly string[],
): Promise<boolean> {
  const session = (await sessionWith(uploads, id))?.id ?? id;
  const clauses = [[termOf('id', session)]];
  const { sessions } = await index.list({ query: { clauses }, may: termsOf(scope), limit: 1 });
  return sessions.some((found) => found.id === session);
}

/**
 * Returns the session of a stored upload, if it is within the scope. The scope is compared with the current content of
 * the recordings.
 */
export async function storedSession(
  uploads: MergedUploads,
  id: string,
  scope: Scope,
): Promise<Candidate | undefined> {
  if (scope === 'everything') return sessionWith(uploads, id);
  const named = uploads.find(id);
  if (named === undefined) return undefined;
  const ofSession = named.mark === undefined ? [named] : uploads.ofMark(named.mark);
  const sessions = await joinSessions(await onlyWithin(scope, ofSession));
  return sessions.find((session) => isNamed(session, id));
}

/** Returns the uploads whose recordings are within the scope. */
export async function onlyWithin(scope: Scope, uploads: readonly Candidate[]): Promise<readonly Candidate[]> {
  const described = await Promise.all(uploads.map((upload) => upload.describe()));
  return uploads.filter((_, at) => {
    const recording = described[at]?.entry.recording;
    return recording !== undefined && recording.state !== 'damaged' && isWithin(scope, recording);
  });
}

/**
 * Returns the current recording of an index result. Returns undefined if the recording is:
 * - no longer in the store
 * - a later part of a session
 * - an upload of a session whose current version is not in the index
 * - outside the scope
 */
async function recordingOf(
  { uploads, covered }: IndexedState,
  { id, version, recording }: ListedSession,
  scope: Scope,
  options: IndexOptions,
): Promise<Recording | undefined> {
  const candidate = uploads.find(id);
  if (candidate === undefined || covered.has(id)) return undefined;
  const { mark, stored } = candidate;
  const isSingle = mark === undefined || uploads.ofMark(mark).length === 1;
  if (isSingle && stored !== undefined && (await options.version(stored)) === version) {
    const known = RECORDING.safeParse(jsonOrUndefined(recording)).data;
    const isVisible = known !== undefined && (scope === 'everything' || known.state !== 'damaged');
    if (isVisible) return isWithin(scope, known) ? known : undefined;
  }
  const session = await storedSession(uploads, id, scope);
  return session?.id === id ? (await describeCandidate(session))?.recording : undefined;
}

const RECORDING = z.custom<Recording>((value) => decodeRecording(value) !== undefined);

/** Returns the index query for a list, or undefined if the index does not support a filter of the list. */
export function askOf(query: CatalogQuery, scope: Scope): ListAsk | undefined {
  const { text = '', from, to } = query;
  const fields = FILTERS.map((name) => [name === 'namespace' ? 'ns' : name, query[name]] as const);
  if (fields.some(([, value]) => value === '')) return undefined;
  const clauses = fields.flatMap(([name, value]) => (value === undefined ? [] : [[termOf(name, value)]]));
  return {
    query: { clauses },
    may: termsOf(scope),
    text: text.toLowerCase(),
    from: from === undefined ? '' : formatTime(from),
    before: to === undefined ? '' : formatTime(to),
    limit: query.limit + 1,
  };
}

function termOf(field: FieldTerm['field'], value: string): Term {
  return { isNot: false, kind: 'field', field, value, isPrefix: false };
}

/** Converts a scope to terms of the index. */
export function termsOf(scope: Scope): ViewerTerms {
  if (scope === 'everything') return scope;
  return scope.flatMap((mark): readonly ViewerTerm[] => {
    const [kind, ...rest] = mark.split(':');
    if (kind === 'tag') return [{ kind, value: mark }];
    return kind === 'cluster' || kind === 'namespace' || kind === 'user'
      ? [{ kind, value: rest.join(':') }]
      : [];
  });
}
