import type { JSX, RefObject } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Filter, Listed } from './archive.ts';
import { FacetRow } from './facet-row.tsx';
import { FilterForm } from './filter-form.tsx';
import { indexTexts } from './format.ts';
import {
  begunWith,
  filterOfText,
  plainText,
  queryOfFilter,
  readQuery,
  type KnownNames,
  type ReadQuery,
} from './query-edit.ts';
import type { Query } from '../search/query.ts';
import { secretNotice } from '../search/secret-notice.ts';
import { RecordingTable } from './recording-rows.tsx';
import { formatRoute, goTo, searchAddress } from './route.ts';
import { SearchForm } from './search-form.tsx';
import { useRecordings, type ListState, type Source } from './use-recordings.ts';

const MAX_OFFERED = 200;
/** Distance from the end of the list at which the next page is requested. */
const END_NEAR = '3000px 0px';

/** The archive: search field, then recordings with their matches, newest first. */
export function ListView({
  filter,
  query,
}: {
  readonly filter: Filter;
  readonly query: string;
}): JSX.Element {
  const read = useMemo(() => readQuery(query, Date.now()), [query]);
  const { state, more, heights } = useRecordings(sourceOf(filter, query, read));
  const end = useMoreInSight(more);
  const known = useKnownNames(state.recordings);
  useEffect(() => {
    document.title = 'Recordings — tailcast';
  }, []);
  const { recordings, next, problem, loading, searchedTo, canSearch } = state;
  useSameWords(filter, query, canSearch);
  return (
    <>
      <h1 class="hidden-label">Recordings</h1>
      <Narrowing filter={filter} query={query} read={read} known={known} state={state} />
      {problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {problem}
        </p>
      )}
      {recordings.length === 0 ? null : (
        <RecordingTable
          recordings={recordings}
          isContinued={next !== undefined}
          text={read.query === undefined || query === '' ? filter.text : plainText(read.query)}
          query={query}
          heights={heights}
        />
      )}
      <div ref={end} />
      <p class={recordings.length === 0 ? 'notice empty' : 'notice'} role="status">
        {read.query === undefined ? '' : statusText(state, read.query)}
        {recordings.length > 0 || loading || query === '' ? null : <BegunWith read={read} />}
      </p>
      {next === undefined || loading || searchedTo !== undefined ? null : (
        <button type="button" class="more" onClick={more}>
          Older recordings
        </button>
      )}
    </>
  );
}

function sourceOf(filter: Filter, query: string, read: ReadQuery): Source | undefined {
  if (query === '') return { filter };
  return read.query === undefined ? undefined : { query };
}

/**
 * Converts a filter to a query, or a query to a filter, if the link came from a recorder with the other kind of search.
 */
function useSameWords(filter: Filter, query: string, canSearch: boolean | undefined): void {
  useEffect(() => {
    const asQuery = queryOfFilter(filter);
    if (canSearch === true && asQuery !== '')
      goTo(searchAddress([query, asQuery].filter(Boolean).join(' ')), { replace: true });
    if (canSearch === false && query !== '')
      goTo(formatRoute({ view: 'list', filter: filterOfText(query), query: '' }), { replace: true });
  }, [filter, query, canSearch]);
}

/** Search field and facets, or the filter for recorders without an index. */
function Narrowing({
  filter,
  query,
  read,
  known,
  state: { canSearch, problem, index, recordings },
}: {
  readonly filter: Filter;
  readonly query: string;
  readonly read: ReadQuery;
  readonly known: KnownNames;
  readonly state: ListState;
}): JSX.Element | null {
  // wait until the recorder has reported its features
  if (canSearch === undefined && query === '' && problem === undefined) return null;
  if (canSearch !== true && query === '')
    return (
      <>
        <FilterForm filter={filter} known={known} />
        {canSearch === undefined ? null : (
          <p class="notice" data-notice="no-search">
            This recorder keeps no search index, so this looks at names and commands only. Started with{' '}
            <code>--search true</code> it also finds what was on the screens.
          </p>
        )}
      </>
    );
  return (
    <>
      <SearchForm query={query} read={read} known={known} />
      {read.query === undefined ? null : (
        <FacetRow query={query} read={read.query} newest={recordings[0]?.id} />
      )}
      {indexTexts(index).map((text) => (
        <p key={text} class="notice warning" data-notice="index">
          {text}
        </p>
      ))}
    </>
  );
}

/** Suggests a prefix search if the query has no results. */
function BegunWith({ read }: { readonly read: ReadQuery }): JSX.Element | null {
  const begun = read.query === undefined ? undefined : begunWith(read.query, Date.now());
  if (begun === undefined) return null;
  return (
    <>
      {' '}
      Words are looked for whole. Begun so: <a href={searchAddress(begun)}>{begun}</a>
    </>
  );
}

/**
 * Loads more rows before the user reaches the end of the list. Only scrolling loads automatically; otherwise a filter
 * with few matches would read the complete archive. The button loads without scrolling.
 *
 * @returns a ref for the element at the end
 */
function useMoreInSight(more: () => void): RefObject<HTMLDivElement | null> {
  const end = useRef<HTMLDivElement>(null);
  const current = useRef(more);
  current.current = more;
  useEffect(() => {
    if (end.current === null) return undefined;
    let scrolled = false;
    let isNear = false;
    const look = (): void => {
      if (!scrolled || !isNear) return;
      scrolled = false;
      current.current();
    };
    const observer = new IntersectionObserver(
      (entries) => {
        isNear = entries.at(-1)?.isIntersecting === true;
        look();
      },
      { rootMargin: END_NEAR },
    );
    const onScroll = (): void => {
      scrolled = true;
      look();
    };
    observer.observe(end.current);
    addEventListener('scroll', onScroll, { passive: true });
    return () => {
      observer.disconnect();
      removeEventListener('scroll', onScroll);
    };
  }, []);
  return end;
}

function statusText({ recordings, next, loading, searchedTo, problem }: ListState, query: Query): string {
  if (searchedTo !== undefined) return 'Looking through older recordings; none matches so far…';
  if (loading) return 'Loading…';
  if (recordings.length > 0)
    return `${recordings.length} recording${recordings.length === 1 ? '' : 's'}${next === undefined ? '' : ' so far'}`;
  if (problem !== undefined) return '';
  return next === undefined
    ? (secretNotice(query) ?? 'No recording matches.')
    : 'None of the recordings looked through so far matches.';
}

/** Names in all recordings that this list has shown. The object changes only when names are added. */
function useKnownNames(recordings: readonly Listed[]): KnownNames {
  const known = useRef<KnownNames>({ user: new Set(), ns: new Set(), pod: new Set() });
  return useMemo(() => {
    const sizeOf = ({ user, ns, pod }: KnownNames): number => user.size + ns.size + pod.size;
    const { user, ns, pod } = known.current;
    const all = { user: new Set(user), ns: new Set(ns), pod: new Set(pod) };
    const add = (names: Set<string>, name: string | undefined): void => {
      if (name !== undefined && names.size < MAX_OFFERED) names.add(name);
    };
    for (const { source, kubernetes } of recordings) {
      add(all.user, source.user);
      add(all.ns, kubernetes?.namespace);
      add(all.pod, kubernetes?.pod);
    }
    if (sizeOf(all) > sizeOf(known.current)) known.current = all;
    return known.current;
  }, [recordings]);
}
