/**
 * API to end, pause and resume running sessions.
 *
 * ```
 * /api/v1/recordings/:id/orders                     {isPossible, mayGive}
 * POST /api/v1/recordings/:id/orders/end?reason=…   also pause and resume; requires the viewer right `end`
 * ```
 *
 * The response arrives when the gateway of the session has confirmed the order. Parameters are in the query, because
 * portals forward no bodies.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import { MAX_REASON_LENGTH, ORDER_ACTIONS } from '../../wire/recorder-api/session-order.ts';
import type { ReviewApiOptions } from './api-reviews.ts';

/** Target of the routes that change something. */
export const ORDER_PATH = /^\/api\/v1\/recordings\/[^/?]+\/orders\/[a-z]+(?:\?|$)/;

const parameters = z.object({ action: z.enum(ORDER_ACTIONS) });
const query = z.strictObject({ reason: z.string().max(MAX_REASON_LENGTH).default('') });

/** Adds the routes to `app`. */
export function addOrderApi(
  app: FastifyInstance,
  { access, viewerOf, parse, find }: Omit<ReviewApiOptions, 'reviews'>,
): void {
  app.get('/api/v1/recordings/:id/orders', async (request, reply) => {
    reply.header('cache-control', 'no-store');
    const { live } = await find(request, reply, 'play');
    const isPossible = live?.isOpen() === true && live.orders?.isPossible === true;
    return { isPossible, mayGive: access.mayEnd(await viewerOf(request, reply)) };
  });
  app.post('/api/v1/recordings/:id/orders/:action', async (request, reply) => {
    reply.header('cache-control', 'no-store');
    const viewer = await viewerOf(request, reply);
    const { action } = parse(parameters, request.params);
    const { reason } = parse(query, request.query);
    if (!access.mayEnd(viewer)) throw new TailcastError('ORDER_REFUSED');
    // The event is durable before the order, so that every order has an event.
    const { live } = await find(request, reply, `order-${action}`);
    if (live?.isOpen() !== true) throw new TailcastError('ORDER_IMPOSSIBLE', 'the session has ended');
    if (live.orders === undefined)
      throw new TailcastError('ORDER_IMPOSSIBLE', 'another recorder receives the session');
    await live.orders.give({ action, by: viewer.user ?? viewer.node, reason });
    return { action, confirmed: true };
  });
}
