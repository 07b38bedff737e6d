/**
 * Lists recordings with an index. The index names the matches. Sessions that the index lacks are read directly. The
 * result is the same as without an index.
 */
import { z } from 'zod';
import type { FieldTerm, Term } from '../../search/query.ts';
import type { ListAsk, ListedSession } from '../../search/search-index.ts';
import type { ViewerTerm, ViewerTerms } from '../../search/viewer-terms.ts';
import { decodeRecording, type Recording } from '../../wire/recorder-api/recording.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import {
  createPartFinder,
  describeCandidate,
  groupSessions,
  isNamed,
  newestFirst,
  withoutCopies,
  type Candidate,
} from './candidates.ts';
import { matches, type CatalogQuery } from './catalog-query.ts';
import type { Listing } from './listing.ts';
import { isWithin, type Scope, type ScopeIndex } from './scope.ts';
import type { SessionIndex } from './session-index.ts';
import { formatTime, orderOf, parseRecordingId } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

/** Maximum number of recordings that are read in addition to the index. With more, the index has no benefit. */
const MAX_UNINDEXED = 2000;
/** Maximum number of index queries for one page. Several are necessary only if many results no longer exist. */
export const MAX_ASKED = 50;

/** Snapshot of the index and the listings. */
export interface IndexedState {
  readonly index: SessionIndex;
  readonly listing: Listing;
  /** Sessions within the scope that are read in addition to the index, newest first. */
  readonly unindexed: readonly Candidate[];
  /** Ids of all uploads of sessions that are read in addition to the index, independent of the scope. */
  readonly covered: ReadonlySet<string>;
}

export interface IndexedListOptions {
  readonly readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>;
  readonly version: (stored: StoredRecording) => Promise<string | undefined>;
}

/**
 * Finds the sessions that must be read in addition to the index.
 *
 * @param live sessions of this recorder
 * @returns undefined if there are too many, or if their number is unknown
 */
export async function outsideIndex(
  index: SessionIndex,
  live: readonly Candidate[],
  listing: Listing,
  scope: Scope,
  { readScopes }: IndexedListOptions,
): Promise<IndexedState | undefined> {
  const pending = index.pending();
  if (pending === undefined || pending.size + live.length + listing.remote.length > MAX_UNINDEXED)
    return undefined;
  const named = [...pending].map((id) => listing.find(id)).filter((found) => found !== undefined);
  const uploads = withoutCopies(live, [...listing.remote, ...named]);
  const marks = new Set(uploads.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const others = [...marks].flatMap((mark) => listing.byMark.get(mark) ?? []);
  const all = [...new Map([...others, ...uploads].map((upload) => [upload.id, upload])).values()];
  const covered = new Set(all.map(({ id }) => id));
  const sorted = all.toSorted(newestFirst);
  const visible = scope === 'everything' ? sorted : await (await readScopes(sorted)).within(scope);
  return { index, listing, covered, unindexed: await groupSessions(visible.toSorted(newestFirst)) };
}

/** Returns a page, or undefined if the query requires a list without the index. */
export async function listIndexed(
  state: IndexedState,
  query: CatalogQuery,
  scope: Scope,
  options: IndexedListOptions,
): Promise<{ readonly recordings: readonly Recording[]; readonly next?: string } | undefined> {
  const ask = askOf(query, scope);
  if (ask === undefined) return undefined;
  const { from = '', before = '' } = ask;
  const unindexed = state.unindexed
    .filter(({ order }) => order >= from && (before === '' || order < before))
    .toReversed();
  const found: Recording[] = [];
  const add = (recording: Recording | undefined): void => {
    if (recording !== undefined && matches(recording, query)) found.push(recording);
  };
  /** Adds the sessions outside the index that are newer than `order`. */
  const addUnindexed = async (order: string): Promise<void> => {
    for (
      let next = unindexed.at(-1);
      next !== undefined && next.order > order && found.length <= query.limit;
      next = unindexed.at(-1)
    ) {
      unindexed.pop();
      add((await describeCandidate(next))?.recording);
    }
  };
  let position: string | undefined = before;
  for (let asked = 0; position !== undefined && found.length <= query.limit; asked += 1) {
    if (asked === MAX_ASKED) return undefined;
    const { sessions, more } = await state.index.list({
      ...ask,
      before: position,
      limit: query.limit + 1 - found.length,
    });
    for (const session of sessions) {
      await addUnindexed(session.order);
      if (found.length > query.limit) break;
      add(await recordingOf(state, session, scope, options));
    }
    position = more ? sessions.at(-1)?.order : undefined;
  }
  await addUnindexed('');
  const recordings = found.slice(0, query.limit);
  const last = recordings.at(-1);
  return found.length <= query.limit || last === undefined ? { recordings } : { recordings, next: last.id };
}

/**
 * True if the index finds a session within the scope. The lookup takes the same time for hidden and for missing
 * sessions.
 */
export async function isFound(
  { index, listing }: IndexedState,
  id: string,
  scope: readonly string[],
): Promise<boolean> {
  const named = listing.find(id);
  const parts = named === undefined ? [] : await createPartFinder(listing.byMark)(named);
  const session = parts.some((part) => part.id === id) ? (parts.at(-1)?.id ?? id) : id;
  const clauses = [[termOf('id', session)]];
  const { sessions } = await index.list({ query: { clauses }, may: termsOf(scope), limit: 1 });
  return sessions.some((found) => found.id === session);
}

/**
 * Returns the session of a stored upload, if it is within the scope. The check uses the current content of the
 * recordings.
 */
export async function storedSession(
  listing: Listing,
  id: string,
  scope: Scope,
): Promise<Candidate | undefined> {
  const named = listing.find(id);
  if (named === undefined) return undefined;
  const uploads = named.mark === undefined ? [named] : (listing.byMark.get(named.mark) ?? [named]);
  const visible = scope === 'everything' ? uploads : await onlyWithin(scope, uploads);
  const sessions = await groupSessions(visible);
  return sessions.find((session) => isNamed(session, id));
}

async function onlyWithin(scope: Scope, uploads: readonly Candidate[]): Promise<readonly Candidate[]> {
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
 * - covered by a read outside the index
 * - outside the scope
 */
export async function recordingOf(
  { listing, covered }: IndexedState,
  { id, version, recording }: ListedSession,
  scope: Scope,
  options: IndexedListOptions,
): Promise<Recording | undefined> {
  const candidate = listing.find(id);
  if (candidate === undefined || covered.has(id)) return undefined;
  const { mark, stored } = candidate;
  const isSingle = mark === undefined || listing.byMark.get(mark)?.length === 1;
  if (isSingle && stored !== undefined && (await options.version(stored)) === version) {
    const known = RECORDING.safeParse(jsonOrUndefined(recording)).data;
    const isVisible = known !== undefined && (scope === 'everything' || known.state !== 'damaged');
    if (isVisible) return isWithin(scope, known) ? known : undefined;
  }
  const session = await storedSession(listing, id, scope);
  return session?.id === id ? (await describeCandidate(session))?.recording : undefined;
}

const RECORDING = z.custom<Recording>((value) => decodeRecording(value) !== undefined);

/** Returns the index query, or undefined if the index cannot represent it. */
export function askOf(query: CatalogQuery, scope: Scope): ListAsk | undefined {
  const { node, user, tag, namespace: ns, pod, container, kind, text = '', from, to, limit } = query;
  const fields: readonly (readonly [FieldTerm['field'], string | undefined])[] = [
    ['node', node],
    ['user', user],
    ['tag', tag],
    ['ns', ns],
    ['pod', pod],
    ['container', container],
    ['kind', kind],
    ['state', query.state],
    ['result', query.result],
    ['trust', query.trust],
  ];
  if (fields.some(([, value]) => value === '')) return undefined;
  const clauses = fields.flatMap(([name, value]) => (value === undefined ? [] : [[termOf(name, value)]]));
  const after = query.cursor === undefined ? undefined : parseRecordingId(query.cursor);
  const ends = [
    ...(to === undefined ? [] : [formatTime(to)]),
    ...(after === undefined ? [] : [orderOf(after)]),
  ].toSorted();
  return {
    query: { clauses },
    may: termsOf(scope),
    text: text.toLowerCase(),
    from: from === undefined ? '' : formatTime(from),
    before: ends[0] ?? '',
    limit,
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
    return kind === 'namespace' || kind === 'user' ? [{ kind, value: rest.join(':') }] : [];
  });
}
