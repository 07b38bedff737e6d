/**
 * Answers in JSON go out compressed to whoever takes that. Casts do not: they are asked for in ranges of their own bytes.
 * Nothing that is secret to whoever asks stands in an answer beside what they sent.
 */
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { FastifyInstance } from 'fastify';

/** Smaller ones gain nothing. */
const MIN_BYTES = 1024;
const compress = promisify(gzip);

/** Whether `gzip` may be sent (RFC 9110 12.5.3). */
export function takesGzip(accepted: string | string[] | undefined): boolean {
  return String(accepted ?? '')
    .split(',')
    .some((coding) => /^\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*$).*)?$/i.test(coding));
}

/** Puts the compression on `app`. */
export function addCompression(app: FastifyInstance): void {
  app.addHook('onSend', async (request, reply, payload) => {
    const type = String(reply.getHeader('content-type') ?? '');
    if (!type.startsWith('application/json') || reply.hasHeader('content-encoding')) return payload;
    const isText = typeof payload === 'string' || Buffer.isBuffer(payload);
    if (!isText || payload.length < MIN_BYTES || reply.statusCode !== 200) return payload;
    reply.header('vary', 'accept-encoding');
    if (!takesGzip(request.headers['accept-encoding'])) return payload;
    reply.removeHeader('content-length').header('content-encoding', 'gzip');
    return compress(payload);
  });
}
