/**
 * Hook for the list of recordings. Loaded pages stay in memory. Only the newest page is refreshed, and the scroll
 * position is restored when the user returns to the list.
 */
import { BoundedMap } from '../bounded-map.ts';
import { useContext, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Filter } from './addresses.ts';
import { listRecordings, searchPage, type Listed, type Page, type SearchIndexState } from './archive.ts';
import type { ListSort } from '../search/search-index.ts';
import { Recorder, type Ask } from './recorder-context.ts';

/** Interval of refreshes of the newest page, in milliseconds. */
const REFRESH_MS = 5000;
const SEARCH_REFRESH_MS = 10_000;
/** Maximum number of consecutive pages without a match. For each page, the recorder reads a few thousand recordings. */
const MAX_EMPTY_PAGES = 200;
const MAX_KEPT = 8;

/** Selects the recordings of the list, by a filter or by a query. */
export type Source = { readonly filter: Filter; readonly sort?: ListSort } | { readonly query: string };

export interface ListState {
  readonly recordings: readonly Listed[];
  /** Cursor of the next page; undefined at the end. */
  readonly next: string | undefined;
  readonly problem: Error | undefined;
  /** Time of the last response, in milliseconds since the epoch. */
  readonly seenAt: number | undefined;
  readonly loading: boolean;
  /** Cursor of the page that the search reads next; set only while the search has found no match. */
  readonly searchedTo: string | undefined;
  /** State of the index in the newest response; undefined if the response is not from a search. */
  readonly index: SearchIndexState | undefined;
  /** True if the recorder supports search; undefined before the first response. */
  readonly canSearch: boolean | undefined;
  /** Login of the viewer, or name of the viewer's tailnet node, if no viewer rule matches; otherwise undefined. */
  readonly noRuleFor: string | undefined;
}

const LOADING: ListState = {
  recordings: [],
  next: undefined,
  problem: undefined,
  seenAt: undefined,
  loading: true,
  searchedTo: undefined,
  index: undefined,
  canSearch: undefined,
  noRuleFor: undefined,
};

/** The last list and its scroll position, keyed by source. */
const kept = new BoundedMap<Kept>(MAX_KEPT);

interface Kept {
  readonly state: ListState;
  readonly scroll: number;
  readonly heights: Map<number, number>;
}

export interface Recordings {
  readonly state: ListState;
  /** Loads the next page, unless a request is in progress or the list is complete. */
  readonly more: () => void;
  /** Heights of the rendered chunks, for `recording-rows`. */
  readonly heights: Map<number, number>;
}

/** @param source if undefined, the hook loads nothing */
export function useRecordings(source: Source | undefined): Recordings {
  const { ask } = useContext(Recorder);
  const key = JSON.stringify(source ?? '');
  const [state, setState] = useState<ListState>(kept.get(key)?.state ?? LOADING);
  const current = useRef(state);
  current.current = state;
  const abort = useRef<AbortController>(undefined);
  const heights = useMemo(() => kept.get(key)?.heights ?? new Map<number, number>(), [key]);

  useLayoutEffect(() => {
    const gone = new AbortController();
    abort.current = gone;
    const before = kept.get(key);
    const begin = before?.state ?? LOADING;
    setState(({ canSearch }) => ({ ...begin, canSearch, loading: source !== undefined && begin.loading }));
    if (source === undefined) return undefined;
    // without an index, the list view uses a filter instead of the search
    if ('query' in source && current.current.canSearch === false) return undefined;
    // the position is stored on each scroll, because at unmount the page has already lost its height
    let scroll = before?.scroll ?? 0;
    const onScroll = (): void => {
      scroll = scrollY;
    };
    const restoring = requestAnimationFrame(() => {
      scrollTo(0, scroll);
      addEventListener('scroll', onScroll, { passive: true });
    });
    const refresh = (): void => {
      if (document.hidden) return;
      load(ask, source, undefined, gone.signal, setState).then(
        (page) => setState((old) => merge(old, page)),
        (error: unknown) => {
          if (!gone.signal.aborted)
            setState((old) => ({ ...old, loading: false, searchedTo: undefined, problem: errorOf(error) }));
        },
      );
    };
    refresh();
    const timer = setInterval(refresh, 'query' in source ? SEARCH_REFRESH_MS : REFRESH_MS);
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(restoring);
      removeEventListener('scroll', onScroll);
      gone.abort();
      keep(key, { state: current.current, scroll, heights });
    };
  }, [key]);

  const more = (): void => {
    const { next, loading } = current.current;
    const gone = abort.current;
    if (next === undefined || loading || gone === undefined || source === undefined) return;
    setState((old) => ({ ...old, loading: true }));
    load(ask, source, next, gone.signal, setState).then(
      (page) =>
        setState((old) => {
          const ids = new Set(old.recordings.map(({ id }) => id));
          const recordings = [...old.recordings, ...page.recordings.filter(({ id }) => !ids.has(id))];
          return { ...old, ...settled(page), recordings, next: page.next };
        }),
      (error: unknown) => {
        if (!gone.signal.aborted)
          setState((old) => ({ ...old, loading: false, searchedTo: undefined, problem: errorOf(error) }));
      },
    );
  };
  return { state, more, heights };
}

function keep(key: string, { state, ...place }: Kept): void {
  kept.set(key, { state: { ...state, loading: false, searchedTo: undefined }, ...place });
}

type LoadedPage = Omit<Page, 'next'> & { readonly next: string | undefined };

/** Fields of the list state that come only from the newest page. */
function settled({ search, index, noRuleFor }: LoadedPage): Omit<ListState, 'recordings' | 'next'> {
  return {
    problem: undefined,
    seenAt: Date.now(),
    loading: false,
    searchedTo: undefined,
    index,
    canSearch: search === true,
    noRuleFor,
  };
}

/** Loads the next page with a match. A recorder may return an empty page with a cursor. */
async function load(
  ask: Ask,
  source: Source,
  from: string | undefined,
  signal: AbortSignal,
  setState: (change: (old: ListState) => ListState) => void,
): Promise<LoadedPage> {
  let cursor = from;
  for (let pages = 1; ; pages += 1) {
    const page =
      'query' in source
        ? await searchPage(ask, source.query, cursor, signal)
        : await listRecordings(ask, source.filter, cursor, signal, source.sort);
    const next = page.next ?? undefined;
    if (page.recordings.length > 0 || next === undefined || pages >= MAX_EMPTY_PAGES)
      return { ...page, next };
    cursor = next;
    setState((old) => (old.recordings.length === 0 ? { ...old, searchedTo: next } : old));
  }
}

/**
 * Merges the newest page into the list: adds new recordings, updates changed recordings and keeps older recordings. An
 * unchanged recording keeps the same JavaScript object, and so does an unchanged list, so that neither is rendered
 * again.
 */
function merge(old: ListState, page: LoadedPage): ListState {
  const known = new Map(old.recordings.slice(0, 2 * page.recordings.length).map((each) => [each.id, each]));
  const newest = page.recordings.map((recording) => {
    const before = known.get(recording.id);
    return before !== undefined && JSON.stringify(before) === JSON.stringify(recording) ? before : recording;
  });
  const ids = new Set(newest.map(({ id }) => id));
  const last = newest.at(-1);
  const end = old.recordings.findIndex(({ id }) => id === last?.id);
  // the newest page and the list do not overlap, so recordings between them may be missing; the list starts again with
  // the newest page
  const older = end < 0 ? [] : old.recordings.slice(end + 1).filter(({ id }) => !ids.has(id));
  const isSame =
    end >= 0 && end + 1 === newest.length && newest.every((each, index) => each === old.recordings[index]);
  const next = older.length === 0 ? page.next : old.next;
  const state = {
    recordings: isSame ? old.recordings : [...newest, ...older],
    next,
    ...settled(page),
  };
  const comparable = (list: ListState): string =>
    JSON.stringify({ ...list, recordings: [], problem: list.problem?.message, seenAt: undefined });
  return isSame && old.problem === undefined && comparable(old) === comparable(state) ? old : state;
}

function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
