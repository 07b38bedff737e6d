/** Common functions for requests and responses of HTTP/1.1 and HTTP/2. */
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import { pipeline } from 'node:stream/promises';
import { TailcastError } from '../errors.ts';
import { http2Fields } from '../http2-fields.ts';
import { asHttp2, fieldsForClient, trailersForClient, type FieldList } from './fields.ts';
import type { ServiceAnswer } from './upstreams.ts';

export type ClientRequest = IncomingMessage | Http2ServerRequest;
export type ClientResponse = ServerResponse | Http2ServerResponse;

/** Returns `Host` or `:authority` as received. Empty if it is missing, or if several values differ. */
export function authorityOf({ rawHeaders }: Pick<ClientRequest, 'rawHeaders'>): string {
  const ownHeaders = rawHeaders.filter(
    (_, index) => AUTHORITY.test(rawHeaders[index - 1] ?? '') && index % 2 === 1,
  );
  return new Set(ownHeaders).size === 1 ? (ownHeaders[0] ?? '') : '';
}
const AUTHORITY = /^(?:host|:authority)$/i;

/**
 * True if the request to the Service uses HTTP/2: because it is a gRPC request, or because the Service supports HTTP/2.
 */
export function usesHttp2(upstream: string, request: ClientRequest): boolean {
  const isGrpc =
    request instanceof Http2ServerRequest &&
    /^application\/grpc\b/.test(request.headers['content-type'] ?? '');
  return upstream.startsWith('h2c:') || isGrpc;
}

/**
 * Returns whether the request has a body, and the headers for its length. HTTP/2 needs no header for an unknown
 * length.
 */
export function bodyOf(
  request: ClientRequest,
  http2: boolean,
): { readonly present: boolean; readonly fields: FieldList } {
  const length = request.headers['content-length'];
  const open =
    request instanceof Http2ServerRequest
      ? !request.stream.endAfterHeaders
      : request.headers['transfer-encoding'] !== undefined;
  if (length !== undefined) return { present: length !== '0', fields: ['content-length', length] };
  if (open) return { present: true, fields: http2 ? [] : ['transfer-encoding', 'chunked'] };
  const usual = ['POST', 'PUT', 'PATCH'].includes(request.method ?? '');
  return { present: false, fields: usual ? ['content-length', '0'] : [] };
}

/** Relays a response completely. Rejects if the Service or the client closes the connection early. */
export async function passOn(
  answer: ServiceAnswer,
  response: ClientResponse,
  headOnly: boolean,
): Promise<void> {
  writeHead(response, answer.status, fieldsForClient(answer.status, answer.fields));
  if (headOnly) {
    answer.body.resume();
    response.end();
    return;
  }
  // Clients of event streams need the response headers immediately. HTTP/2 always sends headers immediately.
  if (!(response instanceof Http2ServerResponse)) response.flushHeaders();
  await pipeline(answer.body, response, { end: false });
  if (!answer.isComplete()) throw new Error('the Service closed the connection');
  const trailers = asHttp2(http2Fields(trailersForClient(answer.trailers())));
  if (Object.keys(trailers).length > 0) addTrailers(response, trailers);
  response.end();
}

function addTrailers(response: ClientResponse, trailers: Record<string, string | string[]>): void {
  const flat = Object.fromEntries(Object.entries(trailers).map(([name, value]) => [name, String(value)]));
  response.addTrailers(flat);
}

/** @param fields alternating names and values, as in the raw lists of Node.js */
export function writeHead(response: ClientResponse, status: number, fields: FieldList): void {
  if (response instanceof Http2ServerResponse) response.writeHead(status, asHttp2(http2Fields(fields)));
  else response.writeHead(status, [...fields]);
}

/** Sends an error response. If a response has already started, aborts it instead. */
export function refuseWith(response: ClientResponse, status: number, message: string): void {
  if (response.headersSent || response.destroyed) return cut(response);
  const body = `${message}\n`;
  writeHead(response, status, [
    'content-type',
    'text/plain; charset=utf-8',
    'content-length',
    String(Buffer.byteLength(body)),
  ]);
  response.end(body);
}

/** Resets the connection or stream, so that the client detects that the response is incomplete. */
export function cut(response: ClientResponse): void {
  if (response instanceof Http2ServerResponse) response.stream?.close(2);
  else response.destroy();
}

/** Returns the text of a response, for a socket without a response object. */
export function rawAnswer(status: number, message: string): string {
  const body = `${message}\n`;
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`;
  return (
    `${head}\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: ` +
    `${Buffer.byteLength(body)}\r\n\r\n${body}`
  );
}

/** Returns the error response for a client that cannot be identified. */
export function identityFailure(error: unknown): [status: number, message: string] {
  return error instanceof TailcastError && error.code === 'IDENTITY_UNAVAILABLE'
    ? [503, 'the caller cannot be identified at the moment']
    : [403, 'the caller is unknown'];
}
