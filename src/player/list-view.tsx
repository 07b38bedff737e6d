import type { JSX, RefObject } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { EMPTY_FILTER, type Filter } from './addresses.ts';
import type { Listed } from './archive.ts';
import { EmptySearch, EmptyStore } from './empty-list.tsx';
import { FacetRow } from './facet-row.tsx';
import { FilterForm } from './filter-form.tsx';
import { indexTexts } from './format.ts';
import {
  filterOfText,
  plainText,
  queryOfFilter,
  readQuery,
  type KnownNames,
  type ReadQuery,
} from './query-edit.ts';
import type { ListSort } from '../search/search-index.ts';
import { ListToolbar } from './list-toolbar.tsx';
import { NoRule, RecorderProblem } from './problem-view.tsx';
import { RecordingTable } from './recording-rows.tsx';
import { formatRoute, goTo, searchAddress } from './route.ts';
import { SearchForm } from './search-form.tsx';
import { useRecordings, type ListState, type Source } from './use-recordings.ts';

const MAX_OFFERED = 200;
/** Distance from the end of the list at which the next page is requested. */
const END_NEAR = '3000px 0px';

/** The list of recordings: search field, then recordings with their matches, newest first. */
export function ListView({
  filter,
  query,
  sort,
}: {
  readonly filter: Filter;
  readonly query: string;
  readonly sort: ListSort | undefined;
}): JSX.Element {
  const read = useMemo(() => readQuery(query, Date.now()), [query]);
  const { state, more, heights } = useRecordings(sourceOf(filter, query, read, sort));
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const end = useMoreInSight(more);
  const known = useKnownNames(state.recordings);
  useEffect(() => {
    document.title = 'Recordings — tailcast';
  }, []);
  const { recordings, next, problem, loading, searchedTo, canSearch } = state;
  useSameWords(filter, query, canSearch);
  const select = (ids: readonly string[], isSelected: boolean): void =>
    setSelected((old) => {
      const changed = new Set(old);
      for (const id of ids)
        if (isSelected) changed.add(id);
        else changed.delete(id);
      return changed;
    });
  return (
    <>
      <h1 class="hidden-label">Recordings</h1>
      <Narrowing filter={filter} query={query} read={read} known={known} state={state} />
      {problem === undefined ? null : <RecorderProblem problem={problem} seenAt={state.seenAt} />}
      <ListToolbar
        status={statusText(state)}
        recordings={recordings}
        selected={selected}
        onClear={() => setSelected(new Set())}
      />
      {recordings.length > 0 ? (
        <RecordingTable
          recordings={recordings}
          isContinued={next !== undefined}
          text={read.query === undefined || query === '' ? filter.text : plainText(read.query)}
          query={query}
          heights={heights}
          sort={query === '' ? (sort ?? 'newest') : undefined}
          onSort={
            query === '' && canSearch === true
              ? (chosen) =>
                  goTo(formatRoute({ view: 'list', filter, query, sort: chosen }), { replace: false })
              : undefined
          }
          selected={selected}
          onSelect={select}
        />
      ) : null}
      {recordings.length > 0 ? null : <EmptyList state={state} filter={filter} query={query} read={read} />}
      <div ref={end} />
      {next === undefined || loading || searchedTo !== undefined ? null : (
        <button type="button" class="more" onClick={more}>
          Older recordings
        </button>
      )}
    </>
  );
}

/** Text or placeholder that is shown while the list has no rows. */
function EmptyList({
  state: { loading, searchedTo, problem, noRuleFor },
  filter,
  query,
  read,
}: {
  readonly state: ListState;
  readonly filter: Filter;
  readonly query: string;
  readonly read: ReadQuery;
}): JSX.Element | null {
  if (loading) return searchedTo === undefined ? <Skeleton /> : null;
  if (problem !== undefined) return null;
  if (noRuleFor !== undefined) return <NoRule viewer={noRuleFor} />;
  if (query !== '') return read.query === undefined ? null : <EmptySearch query={read.query} />;
  if (Object.values(filter).every((value) => value === '')) return <EmptyStore />;
  return (
    <p class="empty">
      No recording matches.{' '}
      <a href={formatRoute({ view: 'list', filter: EMPTY_FILTER, query: '' })}>Show all recordings</a>
    </p>
  );
}

/** Placeholder rows with the height of real rows. */
function Skeleton(): JSX.Element {
  return (
    <div class="skeleton" aria-hidden="true">
      {Array.from({ length: 8 }, (_, index) => (
        <span key={index} />
      ))}
    </div>
  );
}

function sourceOf(
  filter: Filter,
  query: string,
  read: ReadQuery,
  sort: ListSort | undefined,
): Source | undefined {
  if (query === '') return sort === undefined || sort === 'newest' ? { filter } : { filter, sort };
  return read.query === undefined ? undefined : { query };
}

/**
 * Converts between filter and query. The link may come from another recorder: a recorder with an index creates links
 * with a query, other recorders create links with a filter.
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
  // nothing is shown until the recorder has reported whether it supports search
  if (canSearch === undefined && query === '' && problem === undefined) return null;
  if (canSearch !== true && query === '')
    return (
      <>
        <FilterForm filter={filter} known={known} />
        {canSearch === undefined ? null : (
          <p class="notice" data-notice="no-search">
            This recorder has no search index. The filter covers names and commands. To search the text on the
            screens, start the recorder with <code>--search true</code>.
          </p>
        )}
      </>
    );
  return (
    <>
      <SearchForm query={query} read={read} known={known} />
      {read.query === undefined || canSearch === false ? null : (
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

/**
 * Loads more rows before the user scrolls to the end of the list. The hook does not extend a short list automatically:
 * for a filter with few matches, the recorder would then read all recordings of the store. A button loads more rows
 * without scrolling.
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

function statusText({ recordings, next, loading, searchedTo, problem, noRuleFor }: ListState): string {
  if (searchedTo !== undefined) return 'Searching older recordings…';
  if (loading) return 'Loading…';
  if (recordings.length > 0)
    return `${recordings.length} recording${recordings.length === 1 ? '' : 's'}${next === undefined ? '' : ' so far'}`;
  if (problem !== undefined || noRuleFor !== undefined) return '';
  if (next === undefined) return '0 recordings';
  return 'None of the recordings so far matches.';
}

/** Names in all recordings that this list has shown. The object changes only when names are added. */
function useKnownNames(recordings: readonly Listed[]): KnownNames {
  const known = useRef<KnownNames>({ user: new Set(), cluster: new Set(), ns: new Set(), pod: new Set() });
  return useMemo(() => {
    const sizeOf = ({ user, cluster, ns, pod }: KnownNames): number =>
      user.size + cluster.size + ns.size + pod.size;
    const { user, cluster, ns, pod } = known.current;
    const all = { user: new Set(user), cluster: new Set(cluster), ns: new Set(ns), pod: new Set(pod) };
    const add = (names: Set<string>, name: string | undefined): void => {
      if (name !== undefined && names.size < MAX_OFFERED) names.add(name);
    };
    for (const { source, cluster, kubernetes } of recordings) {
      add(all.user, source.user);
      add(all.cluster, cluster);
      add(all.ns, kubernetes?.namespace);
      add(all.pod, kubernetes?.pod);
    }
    if (sizeOf(all) > sizeOf(known.current)) known.current = all;
    return known.current;
  }, [recordings]);
}
