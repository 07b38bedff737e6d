import type { JSX, TargetedInputEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { EMPTY_FILTER, listRecordings, type Filter, type Recording } from './archive.ts';
import { durationText, sizeText, stateText, whereText, whoText } from './format.ts';
import { formatRoute } from './route.ts';

/** How often the first page is asked for again, so that running sessions appear by themselves. */
const REFRESH_MS = 5000;
/** How long typing must pause before the list follows the filter. */
const TYPING_PAUSE_MS = 250;

interface ListState {
  readonly recordings: readonly Recording[];
  readonly next: string | undefined;
  readonly problem: string | undefined;
  readonly loading: boolean;
}

type InputEventOf = TargetedInputEvent<HTMLInputElement>;

/** The fields whose value must be whole: they follow when typing is over, and offer what is known. */
const NAMES = ['user', 'namespace', 'pod'] as const;
type Name = (typeof NAMES)[number];
const MAX_OFFERED = 200;

const LOADING: ListState = { recordings: [], next: undefined, problem: undefined, loading: true };

/** The archive: filter on top, newest first, one row per recording. */
export function ListView({ filter }: { readonly filter: Filter }): JSX.Element {
  const [state, setState] = useState<ListState>(LOADING);
  const filterKey = JSON.stringify(filter);
  const expanded = useRef(false);
  const known = useKnownNames(state.recordings);

  useEffect(() => {
    const abort = new AbortController();
    expanded.current = false;
    const refresh = (): void => {
      if (expanded.current || document.hidden) return;
      listRecordings(filter, undefined, abort.signal).then(
        (page) => {
          if (expanded.current) return;
          setState({
            recordings: page.recordings,
            next: page.next ?? undefined,
            problem: undefined,
            loading: false,
          });
        },
        (error: unknown) => {
          if (!abort.signal.aborted)
            setState((old) => ({ ...old, loading: false, problem: messageOf(error) }));
        },
      );
    };
    refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => {
      clearInterval(timer);
      abort.abort();
    };
  }, [filterKey]);

  const more = (): void => {
    expanded.current = true;
    listRecordings(filter, state.next, AbortSignal.timeout(30_000)).then(
      (page) =>
        setState((old) => ({
          recordings: [...old.recordings, ...page.recordings],
          next: page.next ?? undefined,
          problem: undefined,
          loading: false,
        })),
      (error: unknown) => setState((old) => ({ ...old, problem: messageOf(error) })),
    );
  };

  return (
    <>
      <FilterForm filter={filter} known={known} />
      {state.problem === undefined ? null : (
        <p class="notice problem" role="alert">
          {state.problem}
        </p>
      )}
      {state.loading ? <p class="notice">Loading…</p> : <RecordingTable recordings={state.recordings} />}
      {state.next === undefined ? null : (
        <button type="button" class="more" onClick={more}>
          Older recordings
        </button>
      )}
    </>
  );
}

type KnownNames = Readonly<Record<Name, ReadonlySet<string>>>;

/** The names in all recordings that this list has shown so far. */
function useKnownNames(recordings: readonly Recording[]): KnownNames {
  const known = useRef({ user: new Set<string>(), namespace: new Set<string>(), pod: new Set<string>() });
  for (const { source, kubernetes } of recordings) {
    const names = { user: source.user, namespace: kubernetes?.namespace, pod: kubernetes?.pod };
    for (const name of NAMES) {
      const value = names[name];
      if (value !== undefined && known.current[name].size < MAX_OFFERED) known.current[name].add(value);
    }
  }
  return known.current;
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

function RecordingTable({ recordings }: { readonly recordings: readonly Recording[] }): JSX.Element {
  if (recordings.length === 0) return <p class="notice">No recording matches.</p>;
  return (
    <table>
      <thead>
        <tr>
          {['Started', 'Who', 'Where', 'Command'].map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
          {['Length', 'Size'].map((name) => (
            <th key={name} scope="col" class="number">
              {name}
            </th>
          ))}
          <th scope="col">State</th>
        </tr>
      </thead>
      <tbody>
        {recordings.map((recording) => (
          <RecordingRow key={recording.id} recording={recording} />
        ))}
      </tbody>
    </table>
  );
}

function RecordingRow({ recording }: { readonly recording: Recording }): JSX.Element {
  const address = formatRoute({ view: 'recording', id: recording.id, at: undefined });
  return (
    <tr class={`state-${recording.state}`} onClick={() => location.assign(address)}>
      <td>
        <a href={address}>
          <time dateTime={recording.startedAt}>{new Date(recording.startedAt).toLocaleString()}</time>
        </a>
      </td>
      <td>{whoText(recording)}</td>
      <td>{whereText(recording)}</td>
      <td>
        <code>{recording.command ?? recording.kind}</code>
      </td>
      <td class="number">{durationText(recording.durationSeconds)}</td>
      <td class="number">{sizeText(recording.bytes)}</td>
      <td title={recording.problem}>
        <span class="badge">{stateText(recording)}</span>
      </td>
    </tr>
  );
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
