/**
 * The list of recordings as a hook. What was loaded stays loaded: it is brought up to date from its top, and found again,
 * with the place in it, by whoever comes back.
 */
import { useContext, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import {
  listRecordings,
  searchPage,
  type Filter,
  type Listed,
  type Page,
  type SearchIndexState,
} from './archive.ts';
import { Recorder, type Ask } from './recorder-context.ts';

/** How often the newest page is asked for again, so that running sessions appear by themselves. */
const REFRESH_MS = 5000;
const SEARCH_REFRESH_MS = 10_000;
/** Pages without a match that are read in one go: the recorder looks at some thousand recordings for each. */
const MAX_EMPTY_PAGES = 200;
const MAX_KEPT = 8;

/** Of which recordings the list is: all, those that a filter leaves, or those that a query finds. */
export type Source = { readonly filter: Filter } | { readonly query: string };

export interface ListState {
  readonly recordings: readonly Listed[];
  /** Where older ones begin; undefined when all are here. */
  readonly next: string | undefined;
  readonly problem: string | undefined;
  readonly loading: boolean;
  /** Recordings are being looked through, back to this time so far, and none matches yet. */
  readonly searchedTo: string | undefined;
  /** Of the recorder, as the newest answer says; undefined when it is no answer to a search. */
  readonly index: SearchIndexState | undefined;
  /** Whether the recorder can be searched; undefined before it has said so. */
  readonly canSearch: boolean | undefined;
}

const LOADING: ListState = {
  recordings: [],
  next: undefined,
  problem: undefined,
  loading: true,
  searchedTo: undefined,
  index: undefined,
  canSearch: undefined,
};

/** By source: what was shown last, and where the page stood. */
const kept = new Map<string, Kept>();

interface Kept {
  readonly state: ListState;
  readonly scroll: number;
  readonly heights: Map<number, number>;
}

export interface Recordings {
  readonly state: ListState;
  /** Asks for older ones, unless that is under way or there are none. */
  readonly more: () => void;
  /** Of the chunks of rows, see `recording-rows`. */
  readonly heights: Map<number, number>;
}

/** @param source undefined: nothing is asked for. */
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
    // when the list is taken down, the page has no height any more
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
            setState((old) => ({ ...old, loading: false, searchedTo: undefined, problem: messageOf(error) }));
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
          setState((old) => ({ ...old, loading: false, searchedTo: undefined, problem: messageOf(error) }));
      },
    );
  };
  return { state, more, heights };
}

function keep(key: string, { state, ...place }: Kept): void {
  kept.delete(key);
  kept.set(key, { state: { ...state, loading: false, searchedTo: undefined }, ...place });
  const [oldest] = kept.keys();
  if (kept.size > MAX_KEPT && oldest !== undefined) kept.delete(oldest);
}

type LoadedPage = Omit<Page, 'next'> & { readonly next: string | undefined };

/** What of a list is the same whatever it had before. */
function settled({ search, index }: LoadedPage): Omit<ListState, 'recordings' | 'next'> {
  return {
    problem: undefined,
    loading: false,
    searchedTo: undefined,
    index,
    canSearch: search === true,
  };
}

/** The next page that has something: a recorder may answer with none and say where to go on. */
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
        : await listRecordings(ask, source.filter, cursor, signal);
    const next = page.next ?? undefined;
    if (page.recordings.length > 0 || next === undefined || pages >= MAX_EMPTY_PAGES)
      return { ...page, next };
    cursor = next;
    setState((old) => (old.recordings.length === 0 ? { ...old, searchedTo: next } : old));
  }
}

/**
 * The newest page over what is there: what is new comes first, what has changed changes, what is older stays. What is as it was is
 * the same object, and all of it when nothing has changed: then nothing is drawn again.
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
  // nothing of the page was there: there may be a gap between them, so it begins anew
  const older = end < 0 ? [] : old.recordings.slice(end + 1).filter(({ id }) => !ids.has(id));
  const isSame =
    end >= 0 && end + 1 === newest.length && newest.every((each, index) => each === old.recordings[index]);
  const next = older.length === 0 ? page.next : old.next;
  const state = { recordings: isSame ? old.recordings : [...newest, ...older], next, ...settled(page) };
  return isSame && JSON.stringify({ ...old, recordings: [] }) === JSON.stringify({ ...state, recordings: [] })
    ? old
    : state;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
