/**
 * Documents of the index: one per session and one per moment of a session. Moments also contain the names (user, pod
 * and others) of their session, so that viewer rules and filters are part of the query and need no join. All documents
 * of a session are in one shard. As for all engines, `search/tokens` splits texts into words. Words are indexed but not
 * stored. The text in search results comes from the stored field `content`.
 */
import { hash } from 'node:crypto';
import {
  joinNames,
  placeOf,
  type Moment,
  type SessionDoc,
  type SessionNames,
} from '../../../search/search-index.ts';
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
        // Facet counts read one session more than the maximum, to detect that more sessions match.
        max_result_window: MAX_FACETED + 1,
        // Settings for merges on request, which remove deleted documents from the files.
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
        cluster: NAME,
        ns: NAME,
        /** `<cluster>/<namespace>` for viewer rules. */
        place: NAME,
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

/** State of a session in its document. */
export interface SessionState {
  /** Version of the indexed recording; empty while the session runs, or until all of its documents are written. */
  readonly version: string;
  /** All moments of the session have numbers below this number. */
  readonly reach: number;
  readonly partial: boolean;
  readonly stopped?: number;
  /** Recorder that indexes the session while it runs, and time of the last write of this recorder. */
  readonly owner?: string;
  readonly touched?: number;
}

/** Creates the document of a session. */
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

/** Creates the document of moment `k` of a session. */
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
    // JSON escapes unpaired surrogates, which the search server would replace.
    content: JSON.stringify(moment),
  };
}

/** Returns the sort key of a session. Newer sessions have greater keys, and all keys are unique. */
function placeInTime({ startedAtMs, id }: Pick<SessionNames, 'startedAtMs' | 'id'>): string {
  const ms = String(Math.max(0, Math.floor(startedAtMs))).padStart(ORDER_DIGITS, '0');
  return `${ms}.${hash('sha256', id).slice(0, 16)}`;
}

const ORDER_DIGITS = 16;
/** Format of the sort key of a session. */
export const ORDER = /^\d{16}\.[0-9a-f]{16}$/;

/** Maximum length of a document id in OpenSearch, in bytes. */
const MAX_ID = 512;
/** Space for `#` and the number of a moment, in bytes. */
const ID_SPACE = 16;

/**
 * Returns the document id of a session or of one of its moments. The text after the last `#` is a number for moments
 * and empty for sessions, so a moment and a session never have the same document id. Long session ids are hashed; a
 * field of the document contains the session id.
 */
export function documentId(session: string, k?: number): string {
  const isLong = Buffer.byteLength(session) > MAX_ID - ID_SPACE;
  const name = isLong ? hash('sha256', session) : session;
  return `${name}#${k ?? ''}`;
}

/** Returns the words of a text, separated by spaces. */
function wordsOf(text: string): string {
  return tokenize(text)
    .map((token) => token.text)
    .join(' ');
}

function namesOf(names: SessionNames): Readonly<Record<string, unknown>> {
  const { id, startedAtMs, namespace, nodes, tags, durationSeconds, command: _inWords, ...same } = names;
  return {
    ...same,
    session: id,
    order: placeInTime(names),
    started: Math.max(0, Math.floor(startedAtMs)),
    ns: namespace,
    place: placeOf({ cluster: names.cluster, namespace }),
    node: [...new Set(nodes)],
    tag: [...new Set(tags)],
    duration: durationSeconds,
    exit: exitCodeOf(names.result),
    words: wordsOf(joinNames(names)),
  };
}
