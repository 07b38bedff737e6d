/**
 * API to end, pause and resume running sessions, and to let moderated sessions run.
 *
 * ```
 * /api/v1/recordings/:id/orders                     {isPossible, mayGive, isModerated}
 * POST /api/v1/recordings/:id/orders/end?reason=…   also pause and resume; requires the viewer right `end`
 * POST /api/v1/recordings/:id/orders/watch          repeated while the viewer watches a moderated session
 * ```
 *
 * The recorder responds after the gateway of the session has confirmed the order (a command to a running session).
 * Parameters are in the query string, because portals do not forward request bodies.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import {
  MAX_REASON_LENGTH,
  VIEWER_ACTIONS,
  type SessionWatcher,
} from '../../wire/recorder-api/session-order.ts';
import { parse, viewerOf } from './api-requests.ts';
import type { ReviewApiOptions } from './api-reviews.ts';
import type { Viewer } from './viewing.ts';

/** Matches the request targets for sending orders (commands) to a running session. */
export const ORDER_PATH = /^\/api\/v1\/recordings\/[^/?]+\/orders\/[a-z]+(?:\?|$)/;

const parameters = z.object({ action: z.enum(VIEWER_ACTIONS) });
const query = z.strictObject({ reason: z.string().max(MAX_REASON_LENGTH).default('') });

/** Adds the routes to `app`. */
export function addOrderApi(app: FastifyInstance, { access, find }: Omit<ReviewApiOptions, 'reviews'>): void {
  app.get('/api/v1/recordings/:id/orders', async (request, reply) => {
    const { live } = await find(request, reply, 'play');
    const isPossible = live?.isOpen() === true && live.orders?.isPossible === true;
    const mayGive = access.mayEnd(await viewerOf(access, request, reply));
    return { isPossible, mayGive, isModerated: isPossible && live.isModerated === true };
  });
  app.post('/api/v1/recordings/:id/orders/:action', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    const { action } = parse(parameters, request.params);
    const { reason } = parse(query, request.query);
    if (action !== 'watch' && !access.mayEnd(viewer)) throw new TailcastError('ORDER_REFUSED');
    // Store the access event before the recorder sends the order (command), so that every order has an event.
    const { live } = await find(request, reply, `order-${action}`);
    if (live?.isOpen() !== true) throw new TailcastError('ORDER_IMPOSSIBLE', 'the session has ended');
    if (live.orders === undefined)
      throw new TailcastError('ORDER_IMPOSSIBLE', 'another recorder receives the session');
    const by = viewer.user ?? viewer.node;
    if (action === 'watch') await live.orders.watch(by, watcherOf(viewer));
    else await live.orders.give({ action, by, reason });
    return { action, confirmed: true };
  });
}

function watcherOf({ nodeId, user, tags }: Viewer): SessionWatcher {
  return { nodeId, ...(user === undefined ? {} : { user }), ...(tags === undefined ? {} : { tags }) };
}
