/** Lists the sessions in the index. */
import { z } from 'zod';
import type { IndexedSession } from '../../../search/search-index.ts';
import type { SearchServer } from './client.ts';
import type { SearchCondition } from './compile.ts';
import { aliasOf } from './indices.ts';
import type { ServerIndex } from './server-index.ts';

/**
 * A running session belongs to the recorder that wrote it last. The ownership ends after this time without a write, in
 * milliseconds.
 */
const FOLLOWED_MS = 86_400_000;
const IDS = z.object({
  hits: z.object({
    hits: z
      .array(z.object({ _source: z.object({ session: z.string(), version: z.string().default('') }) }))
      .default([]),
  }),
});

/** Lists ids in ascending order. Omits running sessions that another recorder indexes. */
export async function listIds(
  server: SearchServer,
  index: Pick<ServerIndex, 'name' | 'which' | 'owner'>,
  after: string,
  limit: number,
  nowMs: number,
): Promise<readonly IndexedSession[]> {
  const followed: SearchCondition = {
    bool: {
      filter: [{ exists: { field: 'owner' } }, { range: { touched: { gte: nowMs - FOLLOWED_MS } } }],
      must_not: [{ term: { owner: { value: index.owner } } }],
    },
  };
  const { hits } = IDS.parse(
    await server.ask({
      method: 'POST',
      path: `/${encodeURIComponent(aliasOf(index))}/_search?allow_partial_search_results=false&filter_path=hits.hits._source,hits.max_score`,
      body: {
        size: limit,
        query: { bool: { filter: [{ term: { what: { value: 'session' } } }], must_not: [followed] } },
        sort: [{ session: 'asc' }],
        ...(after === '' ? {} : { search_after: [after] }),
        track_total_hits: false,
        _source: ['session', 'version'],
      },
    }),
  );
  return hits.hits.map(({ _source: { session, version } }) => ({ id: session, version }));
}
