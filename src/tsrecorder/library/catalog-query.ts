/** Filters for a list of recordings. Pure functions. */
import { z } from 'zod';
import { LIST_SORTS } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { RECORDING_STATES, searchedResult, TRUST_LEVELS } from '../../wire/recorder-api/recording-status.ts';
import { parseTime } from '../store/key.ts';
import { RESULT_SCHEMA } from './sidecar.ts';

/** Text of a filter. */
export const QUERY_TEXT = z.string().max(1000).exactOptional();

/** RFC 3339 time of a filter. The value is in nanoseconds since the epoch. */
export const QUERY_TIME = z
  .string()
  .transform((value, context) => {
    const nanoseconds = parseTime(value);
    if (nanoseconds !== undefined) return nanoseconds;
    context.addIssue('is not an RFC 3339 time in UTC');
    return z.NEVER;
  })
  .exactOptional();

/** Number of entries of one page. */
export const QUERY_LIMIT = z.coerce.number().int().min(1).max(500).default(50);

/**
 * Query parameters of a list of recordings. The filter `text` matches substrings. All other filters must equal a value
 * of the recording.
 */
export const CATALOG_QUERY = z.strictObject({
  limit: QUERY_LIMIT,
  /** `next` of the previous page, from a list with the same sort order. */
  cursor: QUERY_TEXT,
  /**
   * Case-insensitive substring of: command, user, tags, tailnet nodes, cluster, namespace, pod, container, id, problem,
   * result, or trust reason.
   */
  text: QUERY_TEXT,
  /** Name or id of the source or destination tailnet node. */
  node: QUERY_TEXT,
  user: QUERY_TEXT,
  tag: QUERY_TEXT,
  cluster: QUERY_TEXT,
  namespace: QUERY_TEXT,
  pod: QUERY_TEXT,
  container: QUERY_TEXT,
  kind: z.enum(['exec', 'attach', 'ssh', 'unknown']).exactOptional(),
  state: z.enum(RECORDING_STATES).exactOptional(),
  result: RESULT_SCHEMA.exactOptional(),
  trust: z.enum(TRUST_LEVELS).exactOptional(),
  /** Time range: `from` is inclusive, `to` is exclusive. */
  from: QUERY_TIME,
  to: QUERY_TIME,
  /** Sort order. Default: newest. All sort orders except `newest` require an index. */
  sort: z.enum(LIST_SORTS).exactOptional(),
});
export type CatalogQuery = Readonly<z.output<typeof CATALOG_QUERY>>;

/** Filters that compare whole values. */
export const FILTERS = [
  'node',
  'user',
  'tag',
  'cluster',
  'namespace',
  'pod',
  'container',
  'kind',
  'state',
  'result',
  'trust',
] as const;

/** True if a recording matches all filters except the time range. */
export function matches(recording: Recording, query: CatalogQuery): boolean {
  const { source, destination, cluster, kubernetes, kind, state, result, trust } = recording;
  const found: Readonly<Record<(typeof FILTERS)[number], readonly (string | undefined)[]>> = {
    node: [source.node, source.nodeId, destination.node, destination.nodeId],
    user: [source.user],
    tag: source.tags ?? [],
    cluster: [cluster],
    namespace: [kubernetes?.namespace],
    pod: [kubernetes?.pod],
    container: [kubernetes?.container],
    kind: [kind],
    state: [state],
    result: [result],
    trust: [trust],
  };
  return (
    FILTERS.every((name) => query[name] === undefined || found[name].includes(query[name])) &&
    containsText(recording, query.text)
  );
}

function containsText(recording: Recording, text: string | undefined): boolean {
  if (text === undefined) return true;
  const wanted = text.toLowerCase();
  return searchedNames(recording).some((value) => value.includes(wanted));
}

/** Returns all texts that the `text` filter searches, in lower case, one per line. */
export function searchedText(recording: Recording): string {
  return searchedNames(recording).join('\n');
}

function searchedNames(recording: Recording): readonly string[] {
  const { id, command, source, destination, cluster, kubernetes, problem, trustReason } = recording;
  const names = [
    id,
    command,
    problem,
    searchedResult(recording),
    trustReason,
    source.user,
    ...(source.tags ?? []),
    source.node,
    source.nodeId,
    destination.node,
    destination.nodeId,
    cluster,
    kubernetes?.namespace,
    kubernetes?.pod,
    kubernetes?.container,
  ];
  return names.filter((name) => name !== undefined).map((name) => name.toLowerCase());
}
