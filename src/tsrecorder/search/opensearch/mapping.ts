/**
 * Documents of the index: one for each session, and one for each of its moments with the names of the session and its
 * words, so that viewer rules and filters are part of the query instead of a join. All documents of a session are in
 * one shard. `search/tokens` splits the words, as for all engines. Words are not stored; `content` is shown.
 */
import { createHash } from 'node:crypto';
import { joinNames, type Moment, type SessionDoc, type SessionNames } from '../../../search/search-index.ts';
import { exitCodeOf } from '../../../wire/recorder-api/recording-status.ts';
import { tokenize } from '../../../search/tokens.ts';
import { MAX_FACETED } from '../facet-counts.ts';
import { LAYOUT_OF_SERVER } from '../layout.ts';

const NAME = { type: 'keyword', ignore_above: 8191 };
const WORDS = { type: 'text', analyzer: 'words', norms: false };
/** A stored field that is not indexed. */
const KEPT = { type: 'keyword', index: false, doc_values: false };

/** Returns the settings and mappings of a new index. */
export function indexBody(shards: number): Readonly<Record<string, unknown>> {
  return {
    settings: {
      index: {
        number_of_shards: shards,
        auto_expand_replicas: '0-1',
        // The writer refreshes the index explicitly.
        refresh_interval: '-1',
        codec: 'best_compression',
        // One more than the number of counted sessions.
        max_result_window: MAX_FACETED + 1,
        // what is removed leaves the files with the next merge that is asked for
        merge: { policy: { expunge_deletes_allowed: 0 } },
        sort: { field: ['order', 'k'], order: ['desc', 'asc'] },
        analysis: {
          analyzer: {
            words: { type: 'custom', tokenizer: 'whitespace' },
            trigrams: { type: 'custom', tokenizer: 'trigrams' },
          },
          tokenizer: { trigrams: { type: 'ngram', min_gram: 3, max_gram: 3 } },
        },
      },
    },
    mappings: {
      dynamic: 'strict',
      _meta: { layout: LAYOUT_OF_SERVER },
      _routing: { required: true },
      _source: { excludes: ['text', 'cmd', 'words', 'low'] },
      properties: {
        what: { type: 'keyword' },
        session: { type: 'keyword' },
        order: { type: 'keyword' },
        k: { type: 'integer' },
        started: { type: 'long' },
        user: NAME,
        ns: NAME,
        pod: NAME,
        container: NAME,
        node: NAME,
        tag: NAME,
        kind: NAME,
        state: NAME,
        result: NAME,
        trust: NAME,
        duration: { type: 'double', ignore_malformed: true },
        exit: { type: 'long', ignore_malformed: true },
        hidden: { type: 'long' },
        text: WORDS,
        cmd: WORDS,
        words: WORDS,
        content: KEPT,
        version: { type: 'keyword' },
        reach: { type: 'integer' },
        partial: { type: 'boolean' },
        stopped: { type: 'double' },
        owner: { type: 'keyword' },
        touched: { type: 'long' },
        ord: { type: 'keyword' },
        listed: KEPT,
        bytes: { type: 'long' },
        low: { type: 'text', analyzer: 'trigrams', norms: false },
      },
    },
  };
}

/** What the document of a session says of its state. */
export interface SessionState {
  /** Empty while it is being written or grows. */
  readonly version: string;
  /** No moment has this number, or a higher one. */
  readonly reach: number;
  readonly partial: boolean;
  readonly stopped?: number;
  /** Who follows it while it runs, and when that one wrote last. */
  readonly owner?: string;
  readonly touched?: number;
}

export function sessionDocument(
  names: SessionNames,
  state: SessionState,
  listing?: SessionDoc['listing'],
): Readonly<Record<string, unknown>> {
  return {
    what: 'session',
    k: -1,
    ...namesOf(names),
    ...state,
    ...(listing === undefined
      ? {}
      : {
          ord: listing.order,
          low: listing.searched,
          bytes: listing.bytes,
          listed: JSON.stringify({
            version: listing.version,
            recording: listing.recording,
            searched: listing.searched,
          }),
        }),
  };
}

export function momentDocument(
  names: SessionNames,
  k: number,
  moment: Moment,
): Readonly<Record<string, unknown>> {
  return {
    what: 'moment',
    k,
    ...namesOf(names),
    text: wordsOf(moment.rows.map((row) => row.text).join('\n')),
    cmd: wordsOf(moment.command?.text ?? ''),
    // a text of its own: so that half a character of a screen comes back as it was
    content: JSON.stringify(moment),
  };
}

/** The newest is the greatest; each session has its own. */
function placeInTime({ startedAtMs, id }: Pick<SessionNames, 'startedAtMs' | 'id'>): string {
  const ms = String(Math.max(0, Math.floor(startedAtMs))).padStart(ORDER_DIGITS, '0');
  return `${ms}.${createHash('sha256').update(id).digest('hex').slice(0, 16)}`;
}

const ORDER_DIGITS = 16;
export const ORDER = /^\d{16}\.[0-9a-f]{16}$/;

/** Longest id that OpenSearch takes, in bytes. */
const MAX_ID = 512;
/** For `#` and the number of a moment. */
const ID_SPACE = 16;

/**
 * A session's document, or that of its moment. What is behind the last `#` is a number or nothing, so that no name of a
 * session is that of another's moment. It is never read back: the session's name is a field.
 */
export function documentId(session: string, k?: number): string {
  const isLong = Buffer.byteLength(session) > MAX_ID - ID_SPACE;
  const name = isLong ? createHash('sha256').update(session).digest('hex') : session;
  return `${name}#${k ?? ''}`;
}

/** Words with spaces between them. */
function wordsOf(text: string): string {
  return tokenize(text)
    .map((token) => token.text)
    .join(' ');
}

function namesOf(names: SessionNames): Readonly<Record<string, unknown>> {
  const { id, startedAtMs, user, namespace, pod, container, nodes, tags, kind, state, result, trust } = names;
  const { durationSeconds: duration, hidden } = names;
  return {
    session: id,
    order: placeInTime(names),
    started: Math.max(0, Math.floor(startedAtMs)),
    user,
    ns: namespace,
    pod,
    container,
    node: [...new Set(nodes)],
    tag: [...new Set(tags)],
    kind,
    state,
    result,
    trust,
    duration,
    exit: exitCodeOf(result),
    hidden,
    words: wordsOf(joinNames(names)),
  };
}
