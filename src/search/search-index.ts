/** What an index is asked for and what it answers, whatever keeps it. Plain data: it crosses process boundaries. */
import type { IndexedText, Moment } from './moments.ts';
import type { Query } from './query.ts';
import type { ViewerTerms } from './viewer-terms.ts';

/** Version of what is read from a recording. Another one makes every recording be read anew. */
export const EXTRACTOR = 2;

/** Names of a session: what is looked for besides its text. */
export interface SessionNames {
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
  readonly user?: string;
  readonly tags: readonly string[];
  readonly namespace?: string;
  readonly pod?: string;
  readonly container?: string;
  /** Names and stable ids of both ends. */
  readonly nodes: readonly string[];
  readonly kind: string;
  /** See `wire/recorder-api/recording-status.ts`, as of the two below. */
  readonly state: string;
  readonly result?: string;
  readonly trust?: string;
  readonly command?: string;
  readonly durationSeconds?: number;
  /** Printable characters that were written and never became visible; undefined if the text was not read. */
  readonly hidden?: number;
}

/** Its names in one text, for those who do not say which one they mean. */
export function joinNames({ user, namespace, pod, container, tags, nodes, command }: SessionNames): string {
  const names = [user, namespace, pod, container, ...tags, ...new Set(nodes), command];
  return names.filter((name) => name !== undefined).join(' \n ');
}

export interface SessionDoc {
  readonly names: SessionNames;
  /** Changes when the recording does. */
  readonly version: string;
  readonly text: IndexedText;
  /** What a list shows of it, when it does not grow any more. */
  readonly listing?: SessionListing;
  /** Second at which reading stopped because the session costs too much to render. */
  readonly stoppedAt?: number;
}

/** What a list shows of a session, so that nobody has to read its recording for that. */
export interface SessionListing {
  /** Sorts by time, exactly. */
  readonly order: string;
  /** Of the recording alone, whatever is read from it. */
  readonly version: string;
  /** Its description, JSON. */
  readonly recording: string;
  /** What a list finds it by, in lower case. */
  readonly searched: string;
  /** Of its cast. */
  readonly bytes: number;
}

/** What comes first in a list; of equals the newest. Without a known length: behind those with one. */
export const LIST_SORTS = ['newest', 'oldest', 'longest', 'largest'] as const;
export type ListSort = (typeof LIST_SORTS)[number];

/** Where a session stands in a sorted list. */
export interface ListPosition {
  readonly order: string;
  /**
   * Seconds where the list is of the longest, bytes where it is of the largest; undefined: not known, or by time alone.
   */
  readonly value?: number;
}

/** Which sessions are listed. */
export interface ListAsk {
  readonly query: Query;
  readonly may: ViewerTerms;
  /** Occurs in what a list finds sessions by; in lower case. */
  readonly text?: string;
  /** Orders: not before `from`, before `before`. */
  readonly from?: string;
  readonly before?: string;
  /** Default: newest. */
  readonly sort?: ListSort;
  /** What comes behind this alone. Where the newest come first it is `before`. */
  readonly after?: ListPosition;
  readonly limit: number;
}

export interface ListedSession extends Omit<SessionListing, 'searched' | 'bytes'>, ListPosition {
  readonly id: string;
}

export interface ListedSessions {
  /** Exactly in the order that was asked for. */
  readonly sessions: readonly ListedSession[];
  readonly more: boolean;
}

/** Which version of a recording an index holds; empty while it is being written or grows. */
export interface IndexedSession {
  readonly id: string;
  readonly version: string;
}

/** Something that was looked for, and where it stood. */
export interface Hit {
  /** Seconds of the session. */
  readonly at: number;
  /** A row of the screen, or a command. */
  readonly text: string;
  /** What matched: UTF-16 offsets in `text`. */
  readonly marks: readonly (readonly [start: number, end: number])[];
  readonly isCommand: boolean;
}

export interface FoundSession {
  readonly id: string;
  readonly hits: readonly Hit[];
  /** It has more hits than these. */
  readonly more: boolean;
  /** Not all of its text is in the index. */
  readonly partial: boolean;
  /** Second at which reading stopped because the session costs too much to render. */
  readonly stoppedAt?: number;
}

export interface Found {
  /** Newest first. */
  readonly sessions: readonly FoundSession[];
  /** Where to go on. */
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

export interface Facets {
  /** Sessions that were counted; `more`: there are others. */
  readonly counted: number;
  readonly more: boolean;
  readonly user: readonly FacetValue[];
  readonly ns: readonly FacetValue[];
  readonly pod: readonly FacetValue[];
  readonly node: readonly FacetValue[];
  readonly tag: readonly FacetValue[];
  readonly kind: readonly FacetValue[];
  readonly state: readonly FacetValue[];
  readonly result: readonly FacetValue[];
  readonly trust: readonly FacetValue[];
}

export interface IndexStatus {
  readonly sessions: number;
  /** Of which not all text is in the index. */
  readonly partial: number;
  /** Of the files. */
  readonly bytes: number;
}

export type { Moment };
