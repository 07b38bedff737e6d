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

const LOADING: ListState = { recordings: [], next: undefined, problem: undefined, loading: true };

/** The archive: filter on top, newest first, one row per recording. */
export function ListView({ filter }: { readonly filter: Filter }): JSX.Element {
  const [state, setState] = useState<ListState>(LOADING);
  const filterKey = JSON.stringify(filter);
  const expanded = useRef(false);

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
      <FilterForm filter={filter} />
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

function FilterForm({ filter }: { readonly filter: Filter }): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const change = (name: keyof Filter, value: string): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      history.replaceState(null, '', formatRoute({ view: 'list', filter: { ...filter, [name]: value } }));
      dispatchEvent(new HashChangeEvent('hashchange'));
    }, TYPING_PAUSE_MS);
  };
  const field = (name: keyof Filter, label: string): JSX.Element => {
    const common = {
      name,
      value: filter[name],
      onInput: (event: InputEventOf) => change(name, event.currentTarget.value),
    };
    return (
      <label>
        <span>{label}</span>
        {name === 'from' || name === 'to' ? (
          <input type="date" {...common} />
        ) : (
          <input type="search" {...common} />
        )}
      </label>
    );
  };
  const narrowed = Object.values(filter).some((value) => value !== '');
  return (
    <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
      {field('text', 'Anything')}
      {field('user', 'Who')}
      {field('namespace', 'Namespace')}
      {field('pod', 'Pod')}
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
      {field('from', 'From')}
      {field('to', 'To')}
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
          {['Started', 'Who', 'Where', 'Command', 'Length', 'Size', 'State'].map((name) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
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
