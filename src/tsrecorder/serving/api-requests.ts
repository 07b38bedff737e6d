/** Helpers of all routes: identify the viewer of a request, and check the parameters of the request. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import { VIEWER_ACCEPTED_HEADER } from '../../wire/recorder-api/named-viewer.ts';
import type { ViewerAccess } from './viewer-access.ts';
import type { Viewer } from './viewing.ts';

/** Viewers of the requests in progress. */
const viewers = new WeakMap<object, Viewer>();

/** Returns the login or the node name of the viewer of a request; undefined if the viewer is not identified. */
export function viewerNameOf(request: FastifyRequest): string | undefined {
  const viewer = viewers.get(request.raw);
  return viewer?.user ?? viewer?.node;
}

/**
 * Identifies the viewer, and counts the request until its response ends. If a gateway named the viewer, the response
 * repeats the viewer's node ID. The gateway forwards only responses with this ID.
 */
export async function viewerOf(
  access: ViewerAccess,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<Viewer> {
  const viewer = await access.viewer(request.raw);
  untilAnswered(request, reply, access.admit(viewer));
  viewers.set(request.raw, viewer);
  if (viewer.gateway !== undefined) reply.header(VIEWER_ACCEPTED_HEADER, viewer.nodeId);
  return viewer;
}

/**
 * Calls `leave` when the response ends or the connection closes. If the connection is already closed, calls `leave`
 * immediately.
 */
export function untilAnswered(
  { raw: { socket } }: FastifyRequest,
  { raw }: FastifyReply,
  leave: () => void,
): void {
  const end = (): void => {
    leave();
    raw.off('close', end);
    socket.off('close', end);
  };
  if (socket.destroyed) return leave();
  raw.once('close', end);
  // A pipelined response that is still queued gets no event when its connection closes.
  socket.once('close', end);
}

/** Returns a signal that aborts when the response ends or the connection closes. */
export function signalOf(request: FastifyRequest, reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  untilAnswered(request, reply, () => gone.abort());
  return gone.signal;
}

/** Checks parameters. @throws TailcastError `USAGE` */
export function parse<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new TailcastError('USAGE', `${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`.trim());
}
