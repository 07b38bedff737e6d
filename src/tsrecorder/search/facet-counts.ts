/** Counts the values of facets. Pure functions. */
import type { Facets, FacetValue } from '../../search/search-index.ts';

/** Maximum number of counted sessions. The newest sessions are counted. */
export const MAX_FACETED = 10_000;
const MAX_FACETS = 10;

/** Values of a session for each facet. */
export type Faceted = Readonly<Record<string, readonly (string | number)[]>>;

/**
 * Counts the facet values of sessions, which must be sorted newest first. If there are more sessions than the maximum,
 * stops there and marks the counts as incomplete.
 */
export function countFacets(sessions: Iterable<Faceted>): Facets {
  const counts = new Map<string, Map<string, number>>();
  let counted = 0;
  let more = false;
  for (const session of sessions) {
    more = counted === MAX_FACETED;
    if (more) break;
    counted += 1;
    for (const [facet, values] of Object.entries(session))
      for (const value of new Set(values)) {
        const ofFacet = counts.get(facet) ?? new Map<string, number>();
        counts.set(facet, ofFacet.set(String(value), (ofFacet.get(String(value)) ?? 0) + 1));
      }
  }
  const most = (facet: string): readonly FacetValue[] =>
    Array.from(counts.get(facet) ?? [], ([value, times]) => ({ value, count: times }))
      .toSorted((left, right) => right.count - left.count || (left.value < right.value ? -1 : 1))
      .slice(0, MAX_FACETS);
  return {
    counted,
    more,
    user: most('user'),
    cluster: most('cluster'),
    ns: most('ns'),
    pod: most('pod'),
    node: most('node'),
    tag: most('tag'),
    kind: most('kind'),
    state: most('state'),
    result: most('result'),
    trust: most('trust'),
  };
}
