/**
 * Filter for recorders without a search index. Some fields match complete names; the text field matches parts of names.
 */
import type { JSX, TargetedInputEvent } from 'preact';
import { useRef } from 'preact/hooks';
import { RECORDING_STATES } from '../wire/recorder-api/recording-status.ts';
import { EMPTY_FILTER, type Filter } from './addresses.ts';
import type { KnownNames } from './query-edit.ts';
import { formatRoute, goTo } from './route.ts';

/** Delay between the last key press and the update of the list, in milliseconds. */
const TYPING_PAUSE_MS = 250;

type InputEventOf = TargetedInputEvent<HTMLInputElement>;

/**
 * Fields that match only complete values. The form suggests known names, and applies a value only after the user has
 * left the field or pressed Enter.
 */
const KNOWN_AS = { user: 'user', cluster: 'cluster', namespace: 'ns', pod: 'pod' } as const;
type Name = keyof typeof KNOWN_AS;

export interface FilterFormProps {
  readonly filter: Filter;
  readonly known: KnownNames;
}

export function FilterForm({ filter, known }: FilterFormProps): JSX.Element {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const change = (name: keyof Filter, value: string, pauseMs = 0): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      goTo(formatRoute({ view: 'list', filter: { ...filter, [name]: value }, query: '' }), { replace: true });
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
        {[...known[KNOWN_AS[name]]].toSorted().map((value) => (
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
      {known.cluster.size > 0 || filter.cluster !== '' ? nameField('cluster', 'Cluster') : null}
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
          {RECORDING_STATES.map((state) => (
            <option key={state} value={state}>
              {state}
            </option>
          ))}
        </select>
      </label>
      {day('from', 'From')}
      {day('to', 'To')}
      {narrowed ? (
        <a class="clear" href={formatRoute({ view: 'list', filter: EMPTY_FILTER, query: '' })}>
          Clear
        </a>
      ) : null}
    </form>
  );
}
