/**
 * API to read the state of the index and to rebuild it. Only viewers who may see all recordings may use the routes.
 *
 * ```
 * /api/v1/index                      progress of the index
 * /api/v1/index/verify               one JSON object per line: see search/verify-index.ts
 * POST /api/v1/index/rebuild         builds a new index next to the old index. Requires `x-tailcast-action: rebuild`,
 *                                    a header that pages of other sites cannot send
 * ```
 */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { TailcastError } from '../../errors.ts';
import type { RecorderSearch } from '../search/recorder-search.ts';
import { signalOf, untilAnswered, viewerOf } from './api-requests.ts';
import type { ViewerAccess } from './viewer-access.ts';

/** Path of the route that rebuilds the index. */
export const REBUILD_PATH = '/api/v1/index/rebuild';
const ACTION_HEADER = 'x-tailcast-action';

export interface IndexApiOptions {
  readonly access: ViewerAccess;
  /** Returns the index. @throws TailcastError `SEARCH_UNAVAILABLE` if there is no index */
  readonly indexed: () => RecorderSearch;
}

/** Adds the routes to `app`. */
export function addIndexApi(app: FastifyInstance, { access, indexed }: IndexApiOptions): void {
  let isVerified = false;

  async function seesAll(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const viewer = await viewerOf(access, request, reply);
    if (access.scope(viewer) !== 'everything') throw new TailcastError('VIEW_REFUSED');
    await access.saw(viewer, 'index', request);
  }

  app.get('/api/v1/index', async (request, reply) => {
    await seesAll(request, reply);
    return indexed().progress();
  });
  app.post(REBUILD_PATH, async (request, reply) => {
    await seesAll(request, reply);
    if (request.headers[ACTION_HEADER] !== 'rebuild')
      throw new TailcastError('USAGE', `${ACTION_HEADER}: rebuild is missing`);
    indexed().rebuild();
    return reply.code(202).send(await indexed().progress());
  });
  app.get('/api/v1/index/verify', async (request, reply) => {
    await seesAll(request, reply);
    if (isVerified) throw new TailcastError('SEARCH_BUSY', 'the index is being verified; try again later');
    const lines = indexed().verify(signalOf(request, reply));
    isVerified = true;
    untilAnswered(request, reply, () => {
      isVerified = false;
    });
    async function* ndjson(): AsyncGenerator<string> {
      for await (const line of lines) yield `${JSON.stringify(line)}\n`;
    }
    return reply.type('application/x-ndjson').send(Readable.from(ndjson(), { objectMode: false }));
  });
}
