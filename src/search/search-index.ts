/**
 * Queries and results of an index, independent of its engine. All types are plain data, because they cross process
 * boundaries.
 */
import type { IndexedText, Moment } from './moments.ts';
import type { FieldTerm, Query } from './query.ts';
import type { ViewerTerms } from './viewer-terms.ts';

/**
 * Version of the content that is extracted from recordings. After a change of the version, every recording is indexed
 * again.
 */
export const EXTRACTOR = 3;

/** Names of a session, which searches match in addition to its text. */
export interface SessionNames {
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
  readonly user?: string;
  readonly tags: readonly string[];
  readonly cluster?: string;
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  /** Names and stable ids of the client's tailnet node and the target's tailnet node. */
  readonly nodes: readonly string[];
  readonly kind: string;
  /** `state`, `result` and `trust` are the status of the recording, as in `wire/recorder-api/recording-status.ts`. */
  readonly state: string;
  readonly result?: string;
  readonly trust?: string;
  readonly command?: string;
  readonly durationSeconds?: number;
  /** Number of printable characters that were written and never became visible; undefined if the text was not read. */
  readonly hidden?: number;
}

/** Returns all names in one text, for terms without a key. */
export function joinNames(session: SessionNames): string {
  const { user, cluster, namespace, pod, container, tags, nodes, command } = session;
  const names = [user, cluster, namespace, pod, container, ...tags, ...new Set(nodes), command];
  return names.filter((name) => name !== undefined).join(' \n ');
}

/** Returns the names of a session in one field of a query. */
export function fieldNames(field: FieldTerm['field'], names: SessionNames): readonly string[] {
  if (field === 'tag') return names.tags;
  if (field === 'node') return names.nodes;
  // Fields of reviews never match here, because a review is not part of the session.
  if (field === 'reviewed') return [];
  const name = field === 'ns' ? names.namespace : names[field];
  return name === undefined || name === '' ? [] : [name];
}

interface Place {
  readonly cluster?: string | undefined;
  readonly namespace?: string | undefined;
}

/**
 * Returns the names under which viewer rules can list a namespace: `<name>`, and `<cluster>/<name>` for a session with
 * a cluster. A `<name>` that contains a slash is left out, because an uploader could choose a name that equals
 * `<cluster>/<name>` of another cluster.
 */
export function ruledNamespaces(place: Place): readonly string[] {
  const { namespace = '' } = place;
  const names = [namespace === '' || namespace.includes('/') ? undefined : namespace, placeOf(place)];
  return names.filter((name) => name !== undefined);
}

/** Returns `<cluster>/<name>` for the namespace of a session; undefined if the cluster or the namespace is unknown. */
export function placeOf({ cluster, namespace = '' }: Place): string | undefined {
  return cluster === undefined || namespace === '' ? undefined : `${cluster}/${namespace}`;
}

export interface SessionDoc {
  readonly names: SessionNames;
  /** Version of the recording. It changes when the recording changes. */
  readonly version: string;
  readonly text: IndexedText;
  /** Entry of a finished session in lists; undefined for a running session. */
  readonly listing?: SessionListing;
  /** Second of the session at which reading stopped, because rendering the session costs too much. */
  readonly stoppedAt?: number;
}

/**
 * Fields of a session that lists need. The index stores these fields, so that the recorder creates lists without
 * reading recordings.
 */
export interface SessionListing {
  /** Exact sort key of the start time. */
  readonly order: string;
  /** Version of the recording, without the version of the extracted content ({@link EXTRACTOR}). */
  readonly version: string;
  /** Description of the recording, as JSON. */
  readonly recording: string;
  /** Lower-case text in which the `text` filter of lists searches. */
  readonly searched: string;
  /** Size of the cast, in bytes. */
  readonly bytes: number;
}

/**
 * Sort orders. Of two sessions with the same duration or size, the newer session comes first. Sessions without a known
 * duration or size come last.
 */
export const LIST_SORTS = ['newest', 'oldest', 'longest', 'largest'] as const;
export type ListSort = (typeof LIST_SORTS)[number];

/** Position of a session in a sorted list. */
export interface ListPosition {
  readonly order: string;
  /**
   * Sort value: duration in seconds for `longest`, size in bytes for `largest`. Undefined if unknown, and for `newest`
   * and `oldest`.
   */
  readonly value?: number;
}

/** Query for a list of sessions. */
export interface ListAsk {
  readonly query: Query;
  readonly may: ViewerTerms;
  /** Substring to find in {@link SessionListing.searched}, in lower case. */
  readonly text?: string;
  /** Range of sort keys: `from` is inclusive, `before` is exclusive. */
  readonly from?: string;
  readonly before?: string;
  /** Default: newest. */
  readonly sort?: ListSort;
  /** Last session of the previous page. With `sort: newest`, set `before` instead. */
  readonly after?: ListPosition;
  readonly limit: number;
}

export interface ListedSession extends Omit<SessionListing, 'searched' | 'bytes'>, ListPosition {
  readonly id: string;
}

export interface ListedSessions {
  /** Sessions in the requested order. */
  readonly sessions: readonly ListedSession[];
  readonly more: boolean;
}

/**
 * An indexed session with its version. The version is empty for a running session, and while the index writes the
 * session.
 */
export interface IndexedSession {
  readonly id: string;
  readonly version: string;
}

/** A match and its position. */
export interface Hit {
  /** Position in the session, in seconds. */
  readonly at: number;
  /** A row of the screen, or a command. */
  readonly text: string;
  /** Matches: UTF-16 offsets in `text`. */
  readonly marks: readonly (readonly [start: number, end: number])[];
  readonly isCommand: boolean;
}

export interface FoundSession {
  readonly id: string;
  readonly hits: readonly Hit[];
  /** True if there are more hits. */
  readonly more: boolean;
  /** True if only a part of the session's text is in the index. */
  readonly partial: boolean;
  /** Second of the session at which reading stopped, because rendering the session costs too much. */
  readonly stoppedAt?: number;
}

export interface Found {
  /** Newest first. */
  readonly sessions: readonly FoundSession[];
  /** Cursor of the next page. */
  readonly next?: string;
}

export interface Page {
  readonly limit: number;
  readonly cursor?: string;
}

export interface FacetValue {
  readonly value: string;
  readonly count: number;
}

/** Fields whose most common values are counted. */
export const FACET_FIELDS = [
  'user',
  'cluster',
  'ns',
  'pod',
  'node',
  'tag',
  'kind',
  'state',
  'result',
  'trust',
] as const;

/** Most common values of each facet. */
export type FacetValues = Readonly<Record<(typeof FACET_FIELDS)[number], readonly FacetValue[]>>;

export interface Facets extends FacetValues {
  /** Number of sessions that were counted. `more` is true if further sessions match. */
  readonly counted: number;
  readonly more: boolean;
}

export interface IndexStatus {
  readonly sessions: number;
  /** Number of sessions with only a part of their text in the index. */
  readonly partial: number;
  /** Size of the files, in bytes. */
  readonly bytes: number;
}

export type { Moment };
