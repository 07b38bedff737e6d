/** Lists recordings in an order other than newest first. This requires an index. */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { ListAsk, ListPosition, ListSort } from '../../search/search-index.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { describeCandidate } from './candidates.ts';
import { matches, type CatalogQuery } from './catalog-query.ts';
import { askOf, MAX_ASKED, recordingOf, type IndexedListOptions, type IndexedState } from './indexed-list.ts';
import type { Scope } from './scope.ts';

type Sort = Exclude<ListSort, 'newest'>;

interface Placed {
  readonly at: ListPosition;
  readonly recording: Recording | undefined;
}

const POSITION = z.strictObject({ order: z.string(), value: z.number().exactOptional() });

/**
 * Returns a page. Sessions that the index lacks are read and merged into the result.
 *
 * @throws TailcastError `USAGE` for an empty name; `SEARCH_BUSY`, `SEARCH_UNAVAILABLE`
 */
export async function listSorted(
  state: IndexedState,
  query: CatalogQuery & { readonly sort: Sort },
  scope: Scope,
  options: IndexedListOptions,
): Promise<{ readonly recordings: readonly Recording[]; readonly next?: string }> {
  const { sort, limit, cursor, ...narrowed } = query;
  const ask = askOf({ ...narrowed, limit }, scope);
  if (ask === undefined) throw new TailcastError('USAGE', `sort=${sort}: a name that is asked for is empty`);
  const begin = cursor === undefined ? undefined : parseCursor(cursor);
  const waiting = await placeUnindexed(state, sort, ask, begin);
  const found: Placed[] = [];
  const add = (placed: Placed): void => {
    if (placed.recording !== undefined && matches(placed.recording, query)) found.push(placed);
  };
  /** Adds the sessions outside the index that come before `at`. */
  const addUnindexed = (at: ListPosition | undefined): void => {
    for (
      let next = waiting.at(-1);
      next !== undefined && found.length <= limit && (at === undefined || compare(sort, next.at, at) < 0);
      next = waiting.at(-1)
    ) {
      waiting.pop();
      add(next);
    }
  };
  let after = begin;
  let isWhole = false;
  for (let asked = 0; !isWhole && found.length <= limit && asked < MAX_ASKED; asked += 1) {
    const { sessions, more } = await state.index.list({
      ...ask,
      sort,
      ...(after === undefined ? {} : { after }),
      limit: limit + 1 - found.length,
    });
    for (const session of sessions) {
      const at = positionOf(sort, session.order, session.value);
      addUnindexed(at);
      if (found.length > limit) break;
      add({ at, recording: await recordingOf(state, session, scope, options) });
      after = at;
    }
    isWhole = !more;
  }
  if (isWhole) addUnindexed(undefined);
  const page = found.slice(0, limit);
  const recordings = page.flatMap(({ recording }) => (recording === undefined ? [] : [recording]));
  // The next page must not read removed recordings again.
  const last = found.length > limit ? page.at(-1)?.at : isWhole ? undefined : after;
  return last === undefined ? { recordings } : { recordings, next: JSON.stringify(last) };
}

function parseCursor(cursor: string): ListPosition {
  const position = POSITION.safeParse(jsonOrUndefined(cursor)).data;
  if (position === undefined) throw new TailcastError('USAGE', 'cursor is none of this list');
  return position;
}

/** Returns the sessions outside the index within the requested times and behind `begin`, in reverse order. */
async function placeUnindexed(
  { unindexed }: IndexedState,
  sort: Sort,
  { from = '', before = '' }: ListAsk,
  begin: ListPosition | undefined,
): Promise<Placed[]> {
  const wanted = unindexed.filter(({ order }) => order >= from && (before === '' || order < before));
  const described = await Promise.all(wanted.map(describeCandidate));
  return described
    .flatMap((entry, at): readonly Placed[] => {
      if (entry === undefined) return [];
      const { recording } = entry;
      const value = sort === 'longest' ? recording.durationSeconds : recording.bytes;
      return [{ at: positionOf(sort, wanted[at]?.order ?? '', value), recording }];
    })
    .filter(({ at }) => begin === undefined || compare(sort, at, begin) > 0)
    .toSorted((left, right) => compare(sort, right.at, left.at));
}

function positionOf(sort: Sort, order: string, value: number | undefined): ListPosition {
  return sort === 'oldest' || value === undefined ? { order } : { order, value };
}

/** Returns a negative number if the left position comes first. */
function compare(sort: Sort, left: ListPosition, right: ListPosition): number {
  if (left.value !== right.value) {
    if (left.value === undefined) return 1;
    return right.value === undefined ? -1 : right.value - left.value;
  }
  if (left.order === right.order) return 0;
  return left.order < right.order === (sort === 'oldest') ? -1 : 1;
}
