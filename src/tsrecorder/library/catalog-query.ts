/** Filters for a list of recordings. Pure functions. */
import type { ListSort } from '../../search/search-index.ts';
import type { Recording, RecordingKind } from '../../wire/recorder-api/recording.ts';
import {
  searchedResult,
  type RecordingResult,
  type RecordingState,
  type TrustLevel,
} from '../../wire/recorder-api/recording-status.ts';

/**
 * Filters for a list of recordings. The filter `text` matches substrings. All other filters must equal a value of the
 * recording.
 */
export interface CatalogQuery {
  /**
   * Case-insensitive substring of: command, user, tags, tailnet nodes, cluster, namespace, pod, container, id, problem,
   * result, or trust reason.
   */
  readonly text?: string;
  /** Name or id of the source or destination tailnet node. */
  readonly node?: string;
  readonly user?: string;
  readonly tag?: string;
  readonly cluster?: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  readonly kind?: RecordingKind;
  readonly state?: RecordingState;
  readonly result?: RecordingResult;
  readonly trust?: TrustLevel;
  /** Time range in nanoseconds since the epoch: `from` is inclusive, `to` is exclusive. */
  readonly from?: bigint;
  readonly to?: bigint;
  /** Sort order. Default: newest. All sort orders except `newest` require an index. */
  readonly sort?: ListSort;
  readonly limit: number;
  /** `next` of the previous page, from a list with the same sort order. */
  readonly cursor?: string;
}

/** True if a recording matches all filters except the time range. */
export function matches(recording: Recording, query: CatalogQuery): boolean {
  const { source, destination, cluster, kubernetes, kind, state, result, trust } = recording;
  const nodes = [source.node, source.nodeId, destination.node, destination.nodeId];
  const filters: readonly (readonly [wanted: string | undefined, found: readonly (string | undefined)[]])[] =
    [
      [query.node, nodes],
      [query.user, [source.user]],
      [query.tag, source.tags ?? []],
      [query.cluster, [cluster]],
      [query.namespace, [kubernetes?.namespace]],
      [query.pod, [kubernetes?.pod]],
      [query.container, [kubernetes?.container]],
      [query.kind, [kind]],
      [query.state, [state]],
      [query.result, [result]],
      [query.trust, [trust]],
    ];
  return (
    filters.every(([wanted, found]) => wanted === undefined || found.includes(wanted)) &&
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
