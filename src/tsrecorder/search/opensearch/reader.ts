/** Executes queries. The rules of the viewer are part of every query: see `compile.ts`. */
import { z } from 'zod';
import { hitOf } from '../../../search/hit.ts';
import { QueryError, type Query } from '../../../search/query.ts';
import {
  FACET_FIELDS,
  type Facets,
  type Found,
  type FoundSession,
  type Hit,
  type IndexedSession,
  type ListAsk,
  type ListedSession,
  type ListedSessions,
  type ListPosition,
  type ListSort,
  type Page,
} from '../../../search/search-index.ts';
import type { ViewerTerms } from '../../../search/viewer-terms.ts';
import { jsonOrUndefined } from '../../../wire/json-value.ts';
import { MOMENT, type ReadingEngine } from '../engine.ts';
import { countFacets, MAX_FACETED } from '../facet-counts.ts';
import { ServerError, type SearchServer } from './client.ts';
import { compileSearch, searchFor, type CompiledSearch, type SearchCondition } from './compile.ts';
import { aliasOf } from './indices.ts';
import { documentId, ORDER } from './mapping.ts';
import type { ServerIndex } from './server-index.ts';
import { listIds } from './session-ids.ts';

const HITS_PER_SESSION = 3;
/** Timeout of a search in the server. The server timeout is shorter than the query timeout of the recorder. */
const SEARCH_TIMEOUT = '1900ms';
const SEARCH_MS = 10_000;
/** Number of sessions per request if this process checks the text of each session. */
const TRIED = 500;

const SOURCE = z.object({
  session: z.string().default(''),
  order: z.string().default(''),
  partial: z.boolean().default(false),
  stopped: z.number().exactOptional(),
  content: z.string().default(''),
  version: z.string().default(''),
  ord: z.string().default(''),
  listed: z.string().default(''),
  duration: z.number().exactOptional(),
  bytes: z.number().exactOptional(),
});
const HIT = z.object({
  _source: SOURCE.prefault({}),
  fields: z.record(z.string(), z.array(z.union([z.string(), z.number()]))).default({}),
  inner_hits: z
    .object({ first: z.object({ hits: z.object({ hits: z.array(z.object({ _source: SOURCE })) }) }) })
    .optional(),
});
type SearchHit = z.output<typeof HIT>;
const FOUND = z.object({
  timed_out: z.boolean().default(false),
  hits: z.object({ hits: z.array(HIT).default([]), total: z.object({ value: z.number() }).optional() }),
});
const DOCUMENTS = z.object({
  docs: z.array(
    z.object({
      found: z.boolean().default(false),
      _source: SOURCE.prefault({}),
      /** Error of the lookup. The state of the document is then unknown. */
      error: z.unknown().optional(),
    }),
  ),
});
const LISTED = z.object({ version: z.string(), recording: z.string(), searched: z.string() });

/** Executes queries with OpenSearch. */
export class ServerIndexReader implements ReadingEngine {
  readonly #server: SearchServer;
  readonly #index: ServerIndex;
  readonly #path: string;
  readonly #nowMs: () => number;

  constructor(server: SearchServer, index: ServerIndex, nowMs: () => number = Date.now) {
    this.#server = server;
    this.#index = index;
    this.#path = `/${encodeURIComponent(aliasOf(index))}`;
    this.#nowMs = nowMs;
  }

  async find(query: Query, may: ViewerTerms, { limit, cursor }: Page): Promise<Found> {
    const compiled = compileSearch(query, may);
    const after = cursor === undefined ? undefined : parseCursor(cursor);
    if (cursor !== undefined && after === undefined) return { sessions: [] };
    const hits = await this.#search({
      // NOTE: OpenSearch does not support `search_after` with `collapse`. Use a range condition instead. The result is
      // the same, because each sort key belongs to one session.
      ...sessionsOf(compiled, ...(after === undefined ? [] : [{ range: { order: { lt: after } } }])),
      ...(compiled.hasText ? { collapse: { field: 'order', inner_hits: FIRST_MOMENTS } } : {}),
      size: limit + 1,
      _source: ['session', 'order', 'partial'],
    });
    const page = hits.slice(0, limit);
    const last = page.at(-1);
    return {
      sessions: await this.#shown(page, compiled),
      ...(hits.length > limit && last !== undefined ? { next: formatCursor(last._source.order) } : {}),
    };
  }

  async within(
    id: string,
    query: Query,
    may: ViewerTerms,
    limit: number,
  ): Promise<{ readonly hits: readonly Hit[]; readonly more: boolean }> {
    const compiled = compileSearch(query, may);
    if (!compiled.hasWords) return { hits: [], more: false };
    const found = await this.#search(
      {
        query: searchFor(compiled, isMoment, { term: { session: { value: id } } }),
        sort: [{ k: 'asc' }],
        size: limit + 1,
        _source: ['content'],
      },
      id,
    );
    return {
      hits: found.slice(0, limit).flatMap((hit) => hitsOf(hit._source.content, compiled)),
      more: found.length > limit,
    };
  }

  async facets(query: Query, may: ViewerTerms): Promise<Facets> {
    const compiled = compileSearch(query, may);
    const hits = await this.#search({
      ...sessionsOf(compiled),
      ...(compiled.hasText ? { collapse: { field: 'order' } } : {}),
      size: MAX_FACETED + 1,
      _source: false,
      docvalue_fields: FACET_FIELDS,
    });
    return countFacets(hits.map(({ fields }) => fields));
  }

  async list(ask: ListAsk): Promise<ListedSessions> {
    const { text = '', limit } = ask;
    // NOTE: the duration of a lookup in the text index also depends on sessions that the viewer must not see. For this
    // reason, only unrestricted viewers use the text index.
    const isTried = text !== '' && (ask.may !== 'everything' || Array.from(text).length < 3);
    const found: ListedSession[] = [];
    for await (const { id, at, listed } of this.#listed(ask, isTried)) {
      if (isTried && !listed.searched.includes(text)) continue;
      if (found.length === limit) return { sessions: found, more: true };
      found.push({ id, ...at, version: listed.version, recording: listed.recording });
    }
    return { sessions: found, more: false };
  }

  /**
   * Yields the sessions that have a list entry, in the requested order. If `isTried` is true, the caller checks the
   * text of each session. Otherwise OpenSearch searches for the text.
   */
  async *#listed(
    ask: ListAsk,
    isTried: boolean,
  ): AsyncGenerator<{
    readonly id: string;
    readonly at: ListPosition;
    readonly listed: z.output<typeof LISTED>;
  }> {
    const { sort = 'newest', limit } = ask;
    const compiled = compileSearch(ask.query, ask.may);
    const wanted = listedOnly(ask, isTried);
    const size = isTried ? TRIED : limit + 1;
    for (let last = ask.after; ;) {
      const hits = await this.#search({
        query: searchFor(compiled, ...wanted, ...(last === undefined ? [] : [afterPosition(sort, last)])),
        sort: sortsOf(sort),
        size,
        _source: ['session', 'ord', 'listed', 'duration', 'bytes'],
      });
      for (const { _source } of hits) {
        last = positionOf(sort, _source);
        yield {
          id: _source.session,
          at: last,
          listed: LISTED.parse(jsonOrUndefined(_source.listed)),
        };
      }
      if (hits.length < size) return;
    }
  }

  versions(after: string, limit: number): Promise<readonly IndexedSession[]> {
    return listIds(this.#server, this.#index, after, limit, this.#nowMs());
  }

  async version(id: string): Promise<string | undefined> {
    const [document] = await this.#documents([id]);
    return document?.found === true ? document._source.version : undefined;
  }

  /** Returns the current state of the found sessions. Omits removed sessions, and reports partial sessions. */
  async #shown(hits: readonly SearchHit[], compiled: CompiledSearch): Promise<readonly FoundSession[]> {
    const documents = compiled.hasText
      ? await this.#documents(hits.map(({ _source }) => _source.session))
      : hits.map((hit) => ({ ...hit, found: true }));
    return hits.flatMap(({ _source: { session }, inner_hits: inner }, at) => {
      const document = documents[at];
      if (document?.found !== true) return [];
      const moments = inner?.first.hits.hits ?? [];
      return [
        {
          id: session,
          hits: moments
            .slice(0, HITS_PER_SESSION)
            .flatMap(({ _source }) => hitsOf(_source.content, compiled)),
          more: moments.length > HITS_PER_SESSION,
          partial: document._source.partial,
          ...(document._source.stopped === undefined ? {} : { stoppedAt: document._source.stopped }),
        },
      ];
    });
  }

  async #documents(ids: readonly string[]): Promise<z.output<typeof DOCUMENTS>['docs']> {
    if (ids.length === 0) return [];
    const docs = ids.map((id) => ({
      _id: documentId(id),
      routing: id,
      _source: ['partial', 'stopped', 'version'],
    }));
    const answer = await this.#server.ask({
      method: 'POST',
      path: `${this.#path}/_mget`,
      body: { docs },
      timeoutMs: SEARCH_MS,
    });
    const documents = DOCUMENTS.parse(answer).docs;
    // A failed lookup does not mean that the session was removed.
    if (documents.length !== ids.length || documents.some(({ error }) => error !== undefined))
      throw new Error('OpenSearch could not read all of the sessions that it found');
    return documents;
  }

  /** Sends a search. @param session restricts the search to the shard of this session */
  async #search(body: Readonly<Record<string, unknown>>, session?: string): Promise<readonly SearchHit[]> {
    const routing = session === undefined ? '' : `&routing=${encodeURIComponent(session)}`;
    try {
      const answer = FOUND.parse(
        await this.#server.ask({
          method: 'POST',
          path: `${this.#path}/_search?allow_partial_search_results=false&filter_path=${ANSWERED}${routing}`,
          body: { track_total_hits: false, timeout: SEARCH_TIMEOUT, ...body },
          timeoutMs: SEARCH_MS,
        }),
      );
      if (answer.timed_out) throw new Error('the query took longer than OpenSearch was given');
      return answer.hits.hits;
    } catch (error) {
      if (error instanceof ServerError && error.kinds.some((kind) => kind.startsWith('too_many_')))
        throw new QueryError('too many words begin with the last word: write more of it', 0);
      throw error;
    }
  }
}

const ANSWERED =
  'timed_out,hits.total,hits.hits._source,hits.hits.fields,hits.hits.inner_hits.first.hits.hits._source,hits.max_score';
const isSession: SearchCondition = { term: { what: { value: 'session' } } };
const isMoment: SearchCondition = { term: { what: { value: 'moment' } } };
const FIRST_MOMENTS = {
  name: 'first',
  size: HITS_PER_SESSION + 1,
  sort: [{ k: 'asc' }],
  _source: ['content'],
};

/**
 * Returns the conditions for sessions with a list entry in the time range. Adds the condition for the text unless
 * `isTried` is true.
 */
function listedOnly(
  { text = '', from = '', before = '' }: ListAsk,
  isTried: boolean,
): readonly SearchCondition[] {
  return [
    isSession,
    { exists: { field: 'ord' } },
    ...(text === '' || isTried ? [] : [{ match_phrase: { low: { query: text } } }]),
    ...(from === '' ? [] : [{ range: { ord: { gte: from } } }]),
    ...(before === '' ? [] : [{ range: { ord: { lt: before } } }]),
  ];
}

function positionOf(sort: ListSort, { ord: order, duration, bytes }: z.output<typeof SOURCE>): ListPosition {
  const value = sort === 'longest' ? duration : sort === 'largest' ? bytes : undefined;
  return value === undefined ? { order } : { order, value };
}

const FIELDS = { longest: 'duration', largest: 'bytes' } as const;

function sortsOf(sort: ListSort): readonly object[] {
  if (sort === 'newest' || sort === 'oldest') return [{ ord: sort === 'newest' ? 'desc' : 'asc' }];
  return [{ [FIELDS[sort]]: { order: 'desc', missing: '_last' } }, { ord: 'desc' }];
}

/** Returns the condition for sessions that follow a list position. */
function afterPosition(sort: ListSort, { order, value }: ListPosition): SearchCondition {
  const older: SearchCondition = { range: { ord: { lt: order } } };
  if (sort === 'oldest') return { range: { ord: { gt: order } } };
  if (sort === 'newest') return older;
  const field = FIELDS[sort];
  const isUnknown: SearchCondition = { bool: { must_not: [{ exists: { field } }] } };
  if (value === undefined) return { bool: { filter: [isUnknown, older] } };
  const isSame = { term: { [field]: { value } } };
  const should = [isUnknown, { range: { [field]: { lt: value } } }, { bool: { filter: [isSame, older] } }];
  return { bool: { should, minimum_should_match: 1 } };
}

/** Returns the search body for sessions, newest first. */
function sessionsOf(
  compiled: CompiledSearch,
  ...more: readonly SearchCondition[]
): Readonly<Record<string, unknown>> {
  return {
    query: searchFor(compiled, compiled.hasText ? isMoment : isSession, ...more),
    sort: [{ order: 'desc' }],
  };
}

function hitsOf(content: string, compiled: CompiledSearch): readonly Hit[] {
  const moment = MOMENT.safeParse(jsonOrUndefined(content)).data;
  const hit = moment === undefined ? undefined : hitOf(moment, compiled.marked);
  return hit === undefined ? [] : [hit];
}

function formatCursor(order: string): string {
  return `o${order}`;
}

function parseCursor(text: string): string | undefined {
  return text.startsWith('o') && ORDER.test(text.slice(1)) ? text.slice(1) : undefined;
}
