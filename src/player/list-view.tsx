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
/** How far from the end of what is loaded more is asked for. */
const END_NEAR = '3000px 0px';

/** The archive: what is looked for on top, newest first, one row per recording with what was found in it. */
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
          goesOn={next !== undefined}
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

/** A link from a recorder that can be searched leads to the same words at one that cannot, and the other way round. */
function useSameWords(filter: Filter, query: string, canSearch: boolean | undefined): void {
  useEffect(() => {
    const asQuery = queryOfFilter(filter);
    if (canSearch === true && asQuery !== '')
      goTo(searchAddress([query, asQuery].filter(Boolean).join(' ')), { replace: true });
    if (canSearch === false && query !== '')
      goTo(formatRoute({ view: 'list', filter: filterOfText(query), query: '' }), { replace: true });
  }, [filter, query, canSearch]);
}

/** The field and the facets; where there is no index, the filter. */
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
  // until the recorder has said what it can
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

/** Nothing was found: the word may only have been begun. */
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
 * Whoever scrolls to the end of what is loaded gets more, before the end is in sight. Who does not scroll has the button: a
 * filter that nearly nothing matches would have the whole archive looked through otherwise.
 *
 * @returns for the element at the end.
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

/** The names in all recordings that this list has shown so far. The same object until there are more. */
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
