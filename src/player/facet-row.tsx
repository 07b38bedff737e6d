/** Common values in the search results, with their counts. A click on a value adds it to the query, or removes it. */
import type { JSX } from 'preact';
import { useContext, useEffect, useState } from 'preact/hooks';
import type { Query } from '../search/query.ts';
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import type { FacetValue, Facets } from '../search/search-index.ts';
import { FACETS, readFacets } from './archive.ts';
import { findPart, toggled, type OfferedKey } from './query-edit.ts';
import { Recorder } from './recorder-context.ts';
import { searchAddress } from './route.ts';

const LABELS: Readonly<Record<(typeof FACETS)[number], string>> = {
  user: 'Who',
  cluster: 'Cluster',
  ns: 'Namespace',
  kind: 'Kind',
  state: 'State',
  result: 'Result',
  trust: 'Trust',
};
const AGES: readonly (readonly [age: string, says: string])[] = [
  ['1h', 'last hour'],
  ['24h', 'last day'],
  ['7d', 'last week'],
  ['30d', 'last month'],
];
/** Number of values that are always visible. */
const MAX_SHOWN = 3;

export interface FacetRowProps {
  readonly query: string;
  readonly read: Query;
  /** Id of the newest recording in the list. When the id changes, the counts are loaded again. */
  readonly newest: string | undefined;
}

export function FacetRow({ query, read, newest }: FacetRowProps): JSX.Element {
  const facets = useFacets(query, newest);
  return (
    <section class="facets" aria-label="Narrow down">
      <ul aria-label="When">
        {AGES.map(([age, says]) => (
          <FacetLink key={age} name="after" value={age} read={read}>
            {says}
          </FacetLink>
        ))}
      </ul>
      {facets === undefined
        ? null
        : FACETS.filter((key) => facets[key].length > 0).map((key) => (
            <Facet key={key} name={key} values={facets[key]} read={read} />
          ))}
      {facets?.more === true ? (
        <p class="why">The counts cover the newest {facets.counted} sessions.</p>
      ) : null}
    </section>
  );
}

function Facet({
  name,
  values,
  read,
}: {
  readonly name: (typeof FACETS)[number];
  readonly values: readonly FacetValue[];
  readonly read: Query;
}): JSX.Element {
  const [unfolded, unfold] = useState(false);
  const shown = unfolded ? values : values.slice(0, MAX_SHOWN);
  return (
    <ul aria-label={LABELS[name]}>
      {shown.map(({ value, count }) => (
        <FacetLink key={value} name={name} value={value} read={read}>
          {name === 'result' && exitCodeOf(value) !== undefined ? `exit ${value}` : value}{' '}
          <span class="count">{count}</span>
        </FacetLink>
      ))}
      {values.length <= MAX_SHOWN ? null : (
        <li>
          <button type="button" class="chip" aria-expanded={unfolded} onClick={() => unfold(!unfolded)}>
            {unfolded ? 'fewer' : `${values.length - MAX_SHOWN} more`}
          </button>
        </li>
      )}
    </ul>
  );
}

function FacetLink({
  name,
  value,
  read,
  children,
}: {
  readonly name: OfferedKey;
  readonly value: string;
  readonly read: Query;
  readonly children: JSX.Element | string | readonly (JSX.Element | string | number)[];
}): JSX.Element {
  const isChosen = findPart(read, name, value) >= 0;
  return (
    <li>
      <a
        class="chip"
        data-facet={`${name}:${value}`}
        aria-current={isChosen ? 'true' : undefined}
        href={searchAddress(toggled(read, name, value, Date.now()))}
      >
        {children}
      </a>
    </li>
  );
}

/** Loads the facets of a query. The previous facets stay visible meanwhile. */
function useFacets(query: string, newest: string | undefined): Facets | undefined {
  const { ask } = useContext(Recorder);
  const [facets, setFacets] = useState<Facets>();
  useEffect(() => {
    const gone = new AbortController();
    readFacets(ask, query, gone.signal).then(setFacets, () => {
      // the page hides the facets; the list of recordings reports the error
      if (!gone.signal.aborted) setFacets(undefined);
    });
    return () => gone.abort();
  }, [query, newest]);
  return facets;
}
