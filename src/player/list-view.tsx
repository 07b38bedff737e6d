import type { JSX, RefObject, TargetedInputEvent } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { EMPTY_FILTER, type Filter } from './archive.ts';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { RecordingTable } from './recording-rows.tsx';
import { formatRoute } from './route.ts';
import { useRecordings, type ListState } from './use-recordings.ts';

/** How long typing must pause before the list follows the filter. */
const TYPING_PAUSE_MS = 250;

type InputEventOf = TargetedInputEvent<HTMLInputElement>;

/** The fields whose value must be whole: they follow when typing is over, and offer what is known. */
const NAMES = ['user', 'namespace', 'pod'] as const;
type Name = (typeof NAMES)[number];
const MAX_OFFERED = 200;
/** How far from the end of what is loaded more is asked for. */
const END_NEAR = '3000px 0px';

/** The archive: filter on top, newest first, one row per recording. */
export function ListView({ filter }: { readonly filter: Filter }): JSX.Element {
  const { state, more, heights } = useRecordings(filter);
  const end = useMoreInSight(more);
  const known = useKnownNames(state.recordings);
  const form = useMemo(() => <FilterForm filter={filter} known={known} />, [filter, known]);
  useEffect(() => {
    document.title = 'Recordings — tailcast';
  }, []);
  const { recordings, next, problem, loading, searchedTo } = state;
  return (
    <>
      <h1 class="hidden-label">Recordings</h1>
      {form}
      {problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {problem}
        </p>
      )}
      {recordings.length === 0 ? null : (
        <RecordingTable
          recordings={recordings}
          goesOn={next !== undefined}
          text={filter.text}
          heights={heights}
        />
      )}
      <div ref={end} />
      <p class={recordings.length === 0 ? 'notice empty' : 'notice'} role="status">
        {statusText(state)}
      </p>
      {next === undefined || loading || searchedTo !== undefined ? null : (
        <button type="button" class="more" onClick={more}>
          Older recordings
        </button>
      )}
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

function statusText({ recordings, next, loading, searchedTo, problem }: ListState): string {
  if (searchedTo !== undefined) return 'Looking through older recordings; none matches so far…';
  if (loading) return 'Loading…';
  if (recordings.length > 0)
    return `${recordings.length} recording${recordings.length === 1 ? '' : 's'}${next === undefined ? '' : ' so far'}`;
  if (problem !== undefined) return '';
  return next === undefined
    ? 'No recording matches.'
    : 'None of the recordings looked through so far matches.';
}

type KnownNames = Readonly<Record<Name, ReadonlySet<string>>>;

/** The names in all recordings that this list has shown so far. The same object until there are more. */
function useKnownNames(recordings: readonly ListedRecording[]): KnownNames {
  const known = useRef<KnownNames>({ user: new Set(), namespace: new Set(), pod: new Set() });
  return useMemo(() => {
    const sizeOf = (names: KnownNames): number => NAMES.reduce((sum, name) => sum + names[name].size, 0);
    const all = {
      user: new Set(known.current.user),
      namespace: new Set(known.current.namespace),
      pod: new Set(known.current.pod),
    };
    for (const { source, kubernetes } of recordings) {
      const names = { user: source.user, namespace: kubernetes?.namespace, pod: kubernetes?.pod };
      for (const name of NAMES) {
        const value = names[name];
        if (value !== undefined && all[name].size < MAX_OFFERED) all[name].add(value);
      }
    }
    if (sizeOf(all) > sizeOf(known.current)) known.current = all;
    return known.current;
  }, [recordings]);
}

function FilterForm({ filter, known }: { readonly filter: Filter; readonly known: KnownNames }): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const change = (name: keyof Filter, value: string, pauseMs = 0): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      history.replaceState(null, '', formatRoute({ view: 'list', filter: { ...filter, [name]: value } }));
      dispatchEvent(new HashChangeEvent('hashchange'));
    }, pauseMs);
  };
  const day = (name: 'from' | 'to', label: string): JSX.Element => (
    <label>
      <span>{label}</span>
      <input
        type="date"
        name={name}
        value={filter[name]}
        onInput={(event: InputEventOf) => change(name, event.currentTarget.value, TYPING_PAUSE_MS)}
      />
    </label>
  );
  const nameField = (name: Name, label: string): JSX.Element => (
    <label>
      <span>{label}</span>
      <input
        type="search"
        name={name}
        list={`known-${name}`}
        placeholder="whole name"
        value={filter[name]}
        onChange={(event: InputEventOf) => change(name, event.currentTarget.value)}
      />
      <datalist id={`known-${name}`}>
        {[...known[name]].toSorted().map((value) => (
          <option key={value} value={value} />
        ))}
      </datalist>
    </label>
  );
  const narrowed = Object.values(filter).some((value) => value !== '');
  return (
    <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span>Anything</span>
        <input
          type="search"
          name="text"
          value={filter.text}
          onInput={(event: InputEventOf) => change('text', event.currentTarget.value, TYPING_PAUSE_MS)}
        />
      </label>
      {nameField('user', 'Who')}
      {nameField('namespace', 'Namespace')}
      {nameField('pod', 'Pod')}
      <label>
        <span>State</span>
        <select
          name="state"
          value={filter.state}
          onChange={(event) => change('state', event.currentTarget.value)}
        >
          <option value="">any</option>
          <option value="open">live</option>
          <option value="closed">complete</option>
          <option value="interrupted">interrupted</option>
          <option value="violated">broken stream</option>
          <option value="damaged">damaged</option>
        </select>
      </label>
      {day('from', 'From')}
      {day('to', 'To')}
      {narrowed ? (
        <a class="clear" href={formatRoute({ view: 'list', filter: EMPTY_FILTER })}>
          Clear
        </a>
      ) : null}
    </form>
  );
}
