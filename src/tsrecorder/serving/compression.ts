/**
 * Compresses JSON responses for clients that accept gzip. Casts are not compressed, because clients request byte ranges
 * of casts. Compression is safe against attacks by response length (BREACH), because no response contains both a secret
 * and text of the request.
 */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyInstance } from 'fastify';

/** Minimum size of a compressed response, in bytes. */
const MIN_BYTES = 1024;
const compress = promisify(gzip);

/** Returns true if the client accepts gzip (RFC 9110 12.5.3). */
export function acceptsGzip(accepted: string | string[] | undefined): boolean {
  return String(accepted ?? '')
    .split(',')
    .some((coding) => /^\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.test(coding));
}

/** Adds the compression to `app`. */
export function addCompression(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply, payload) => {
    const type = String(reply.getHeader('content-type') ?? '');
    if (!type.startsWith('application/json') || reply.hasHeader('content-encoding')) return payload;
    const isText = typeof payload === 'string' || Buffer.isBuffer(payload);
    if (!isText || payload.length < MIN_BYTES || reply.statusCode !== 200) return payload;
    reply.header('vary', 'accept-encoding');
    if (!acceptsGzip(request.headers['accept-encoding'])) return payload;
    reply.removeHeader('content-length').header('content-encoding', 'gzip');
    return compress(payload);
  });
}
