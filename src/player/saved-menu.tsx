/** Menu with saved searches: shared and personal searches on the recorder, and searches of this browser. */
import { Bookmark } from 'lucide';
import type { JSX } from 'preact';
import { useContext, useState } from 'preact/hooks';
import {
  MAX_SEARCH_NAME,
  type SavedSearch,
  type SavedSearches,
  type SearchChange,
  type SharedSearch,
} from '../wire/recorder-api/saved-search.ts';
import { changeSavedSearches, readSavedSearches } from './archive.ts';
import { Drop } from './drop.tsx';
import { Recorder } from './recorder-context.ts';
import { searchAddress } from './route.ts';
import { keepSearches, savedSearches, withSearch } from './saved-searches.ts';

/** Storage place of a saved search. */
type Place = 'shared' | 'personal' | 'browser';

const PLACES: readonly (readonly [place: Place, title: string])[] = [
  ['shared', 'Shared'],
  ['personal', 'My searches'],
  ['browser', 'This browser'],
];

interface Saved {
  readonly lists: Readonly<Record<Place, readonly (SavedSearch & Partial<SharedSearch>)[]>>;
  /** Places in which the viewer may save and remove searches. */
  readonly places: readonly Place[];
  readonly problem: string | undefined;
  readonly load: () => void;
  readonly save: (place: Place, search: SavedSearch) => void;
  readonly remove: (place: Place, name: string) => void;
}

/** Saved searches of this browser and, after `load`, of the recorder. */
export function useSaved(): Saved {
  const { ask } = useContext(Recorder);
  const [browser, setBrowser] = useState(savedSearches);
  const [stored, setStored] = useState<SavedSearches>();
  const [problem, setProblem] = useState<string>();
  const show = (response: Promise<SavedSearches>): void => {
    setProblem(undefined);
    response.then(setStored, (error: unknown) =>
      setProblem(error instanceof Error ? error.message : String(error)),
    );
  };
  const change = (wanted: SearchChange): void => show(changeSavedSearches(ask, wanted));
  const keep = (searches: readonly SavedSearch[]): void => {
    setBrowser(searches);
    keepSearches(searches);
  };
  return {
    lists: { shared: stored?.shared ?? [], personal: stored?.personal ?? [], browser },
    places: [
      ...(stored?.mayWrite === true ? (['personal'] as const) : []),
      ...(stored?.mayShare === true ? (['shared'] as const) : []),
      'browser',
    ],
    problem,
    load: () => show(readSavedSearches(ask, new AbortController().signal)),
    save(place, search) {
      if (place === 'browser') keep(withSearch(browser, search));
      else change({ kind: 'save', ...search, isShared: place === 'shared' });
    },
    remove(place, name) {
      if (place === 'browser') keep(browser.filter((search) => search.name !== name));
      else change({ kind: 'remove', name, isShared: place === 'shared' });
    },
  };
}

/** @param query query to save; empty without a search */
export function SavedMenu({ query }: { readonly query: string }): JSX.Element {
  const saved = useSaved();
  const { lists, places, problem } = saved;
  const count = PLACES.reduce((sum, [place]) => sum + lists[place].length, 0);
  return (
    <Drop
      class="saved"
      icon={Bookmark}
      label={count === 0 ? 'Saved' : `Saved (${count})`}
      onOpen={saved.load}
    >
      {problem === undefined ? null : (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {PLACES.map(([place, title]) =>
        lists[place].length === 0 ? null : (
          <section key={place}>
            <h2>{title}</h2>
            <ul>
              {lists[place].map(({ name, query: kept, by }) => (
                <li key={name}>
                  <a href={searchAddress(kept)} title={by === undefined ? kept : `${kept} (saved by ${by})`}>
                    {name}
                  </a>
                  {places.includes(place) ? (
                    <button
                      type="button"
                      class="chip"
                      aria-label={`Forget ${name}`}
                      onClick={() => saved.remove(place, name)}
                    >
                      <span aria-hidden="true">×</span>
                    </button>
                  ) : null}
                </li>
              ))}
            </ul>
          </section>
        ),
      )}
      {count === 0 ? <p class="notice">There are no saved searches.</p> : null}
      <SaveForm query={query} places={places} onSave={saved.save} />
    </Drop>
  );
}

function SaveForm({
  query,
  places,
  onSave,
}: {
  readonly query: string;
  readonly places: Saved['places'];
  readonly onSave: Saved['save'];
}): JSX.Element {
  const [name, setName] = useState('');
  const [chosen, setPlace] = useState<Place>();
  const [first = 'browser'] = places;
  const place = chosen ?? first;
  const save = (): void => {
    const trimmed = name.trim();
    if (trimmed === '' || query === '') return;
    onSave(place, { name: trimmed, query });
    setName('');
  };
  return (
    <div class="naming">
      <input
        name="search-name"
        aria-label="Name for this search"
        placeholder="name"
        maxLength={MAX_SEARCH_NAME}
        value={name}
        disabled={query === ''}
        onInput={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          save();
        }}
      />
      {places.length > 1 ? (
        <select
          aria-label="Place of the saved search"
          value={place}
          onChange={({ currentTarget: { value } }) => setPlace(places.find((known) => known === value))}
        >
          {places.map((known) => (
            <option key={known} value={known}>
              {PLACES.find(([listed]) => listed === known)?.[1]}
            </option>
          ))}
        </select>
      ) : null}
      <button type="button" disabled={query === '' || name.trim() === ''} onClick={save}>
        Save
      </button>
    </div>
  );
}
