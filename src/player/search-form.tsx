/**
 * The search field. The page uses the same query parser as the recorder. The form shows the parts of the query and the
 * saved searches below the field.
 */
import { Search } from 'lucide';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { queryOffers, readQuery, type KnownNames, type ReadQuery } from './query-edit.ts';
import { partsOf, withoutPart } from '../search/nearest-query.ts';
import { Icon } from './icon.tsx';
import { useKeys } from './keyboard.tsx';
import { goTo, searchAddress } from './route.ts';
import { SavedMenu } from './saved-menu.tsx';
import { SearchHelp } from './search-help.tsx';

/** Delay between the last key press and the search, in milliseconds. */
const TYPING_PAUSE_MS = 250;
/** Marks a history entry that was created while the user typed. The next input replaces such an entry. */
const TYPING = 'typing';

export interface SearchFormProps {
  /** Query in the address. */
  readonly query: string;
  readonly read: ReadQuery;
  readonly known: KnownNames;
}

export function SearchForm({ query, read, known }: SearchFormProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const { typed, problem, onType, settle } = useTyped(query, read);
  useKeys([{ keys: ['/'], does: 'Focus the search field', run: () => field.current?.select() }]);
  return (
    <>
      <div class="search" role="search">
        <div class="search-field">
          <Icon icon={Search} />
          <input
            ref={field}
            type="search"
            name="q"
            aria-label="Search recordings"
            placeholder="Search screens, commands and names"
            autocomplete="off"
            autocapitalize="off"
            spellcheck={false}
            list="search-offers"
            aria-invalid={problem !== undefined}
            aria-describedby="search-problem"
            value={typed}
            onInput={(event) => onType(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Enter') settle();
              // arrow keys select a suggestion while suggestions are visible
              if (event.key !== 'ArrowDown' || (event.currentTarget.list?.options.length ?? 0) > 0) return;
              const first =
                document.querySelector<HTMLElement>('tr.hits a') ??
                document.querySelector<HTMLElement>('td.command a');
              if (first !== null) event.preventDefault();
              first?.focus();
            }}
          />
          <kbd aria-hidden="true">/</kbd>
        </div>
        <datalist id="search-offers">
          {queryOffers(typed, known).map((offer) => (
            <option key={offer} value={offer} />
          ))}
        </datalist>
        <SavedMenu query={read.query === undefined ? '' : query} />
        <SearchHelp />
      </div>
      <p id="search-problem" class="problem search-problem" role="status">
        {problem?.problem}
        {problem?.meant === undefined ? null : (
          <>
            {' '}
            <a href={searchAddress(problem.meant)}>{problem.meant}</a>
          </>
        )}
      </p>
      {read.query === undefined || query === '' ? null : (
        <Chips parts={partsOf(read.query)} without={withoutPart.bind(undefined, read.query)} field={field} />
      )}
    </>
  );
}

interface Typed {
  readonly typed: string;
  /** Syntax error of the input; undefined if the query is valid. */
  readonly problem: Extract<ReadQuery, { problem: string }> | undefined;
  readonly onType: (text: string) => void;
  /** Searches immediately. Makes the next input create a new history entry. */
  readonly settle: () => void;
}

/**
 * Synchronises the field and the URL. Valid input is written to the URL after a pause, and a changed URL is written to
 * the field.
 */
function useTyped(query: string, read: ReadQuery): Typed {
  const [typed, setTyped] = useState(query);
  const [problem, setProblem] = useState(problemOf(read));
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const went = useRef(query);
  useEffect(() => {
    // something else changed the URL: a chip, a link, or the back button
    if (query !== went.current) setTyped(query);
    went.current = query;
    setProblem(problemOf(read));
    clearTimeout(timer.current);
  }, [query]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const follow = (text: string, isSettled: boolean): void => {
    clearTimeout(timer.current);
    const wanted = text.trim();
    const found = problemOf(readQuery(wanted, Date.now()));
    setProblem(found);
    if (found !== undefined) return;
    const isTyping = history.state === TYPING;
    if (wanted !== went.current) {
      went.current = wanted;
      goTo(searchAddress(wanted), { replace: isTyping, state: isSettled ? null : TYPING });
    } else if (isSettled && isTyping) history.replaceState(null, '');
  };
  return {
    typed,
    problem,
    onType(text) {
      setTyped(text);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => follow(text, false), TYPING_PAUSE_MS);
    },
    settle: () => follow(typed, true),
  };
}

function problemOf(read: ReadQuery): Typed['problem'] {
  return read.problem === undefined ? undefined : read;
}

/** Each part of the query as a chip. A click, Enter, Delete or Backspace removes the part. */
function Chips({
  parts,
  without,
  field,
}: {
  readonly parts: readonly string[];
  readonly without: (index: number) => string;
  readonly field: { readonly current: HTMLInputElement | null };
}): JSX.Element {
  const list = useRef<HTMLUListElement>(null);
  const remove = (index: number): void => {
    goTo(searchAddress(without(index)), { replace: false });
    // the focus stays at the same position, so that the user can remove several chips
    requestAnimationFrame(() => {
      const chips = list.current?.querySelectorAll('button') ?? [];
      (chips[Math.min(index, chips.length - 1)] ?? field.current)?.focus();
    });
  };
  return (
    <ul ref={list} class="chips" aria-label="Parts of the search">
      {parts.map((part, index) => (
        <li key={part}>
          <button
            type="button"
            class="chip"
            aria-label={`Remove ${part}`}
            onClick={() => remove(index)}
            onKeyDown={(event) => {
              if (event.key !== 'Delete' && event.key !== 'Backspace') return;
              event.preventDefault();
              remove(index);
            }}
          >
            {part} <span aria-hidden="true">×</span>
          </button>
        </li>
      ))}
      <li>
        <a href={searchAddress('')}>Clear</a>
      </li>
    </ul>
  );
}
