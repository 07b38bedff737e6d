/**
 * The client's half of a portal request: an HTTP/1.1 message pair or an HTTP/2 stream, as far as Fastify does not hide
 * their differences.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, Http2ServerRequest, Http2ServerResponse, type ServerHttp2Stream } from 'node:http2';
import type { Writable } from 'node:stream';
import { TailcastError } from '../errors.ts';
import type { InboundRequest } from '../proxy/gate/gate.ts';
import { mapStream } from '../proxy/front/http2.ts';
import { headerLines } from '../kube/header-lines.ts';
import type { Peer } from '../tailnet/identity.ts';

export interface PortalClient {
  readonly protocol: 'h1' | 'h2';
  readonly inbound: InboundRequest;
  /** What is wrong with the request before anything of it was read. */
  readonly problem: TailcastError | undefined;
  /** It brings a body, which nobody reads. */
  readonly hasBody: boolean;
  /** Aborts when the response is over, or the client gone. */
  readonly signal: AbortSignal;
  /** Sends the head of a response whose body goes into what is returned; destroying that with an error cuts it. @param fields flat list */
  begin(status: number, fields: readonly string[]): Writable;
  /** Ends it without a word, so that nothing looks whole. */
  cut(): void;
}

/** Takes a request as Node hands it out. */
export function portalClient(
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  peer: Peer,
): PortalClient {
  const over = new AbortController();
  const end = (): void => over.abort(new Error('the client left'));
  if (request instanceof Http2ServerRequest) {
    request.stream.once('close', end);
    return streamClient(request.stream, request.rawHeaders, peer, over.signal);
  }
  if (response instanceof Http2ServerResponse)
    throw new TypeError('a request and a response of two protocols');
  response.once('close', end);
  return messageClient(request, response, peer, over.signal);
}

function messageClient(
  request: IncomingMessage,
  response: ServerResponse,
  peer: Peer,
  signal: AbortSignal,
): PortalClient {
  const { method = '', url = '', rawHeaders, httpVersion } = request;
  const hasBody =
    headerLines(rawHeaders, 'transfer-encoding').length > 0 ||
    headerLines(rawHeaders, 'content-length').some((value) => value.trim() !== '0');
  // nobody waits for the end of a body that nobody reads
  if (hasBody) response.shouldKeepAlive = false;
  response.on('error', () => {}); // it is followed by `close`
  const spoken = httpVersion === '1.1' || httpVersion === '1.0';
  return {
    protocol: 'h1',
    inbound: { method, target: url, rawHeaders, peer, upgrade: false },
    problem: spoken
      ? undefined
      : new TailcastError('REQUEST_MALFORMED', `HTTP/${httpVersion} is not spoken here`),
    hasBody,
    signal,
    begin(status, fields) {
      response.writeHead(status, [...fields]);
      return response;
    },
    cut: () => void response.destroy(),
  };
}

function streamClient(
  stream: ServerHttp2Stream,
  rawHeaders: readonly string[],
  peer: Peer,
  signal: AbortSignal,
): PortalClient {
  const { inbound, problem } = mapStream(rawHeaders, peer);
  const hasBody = !stream.endAfterHeaders;
  // a body that is still coming is not wanted any more once the response is out (RFC 9113 §8.1)
  if (hasBody) stream.once('finish', () => stream.close(constants.NGHTTP2_NO_ERROR));
  return {
    protocol: 'h2',
    inbound,
    problem,
    hasBody,
    signal,
    begin(status, fields) {
      stream.respond([':status', String(status), ...fields]);
      return stream;
    },
    cut: () => cut(stream),
  };
}

/** With an error code: a plain end would look like a whole body. */
function cut(stream: ServerHttp2Stream): void {
  if (!stream.closed) stream.close(constants.NGHTTP2_INTERNAL_ERROR);
}
