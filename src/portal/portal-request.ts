/**
 * One request to the portal over HTTP/1.1 or HTTP/2, in the form that the gateway's gate (`proxy/gate`) parses, with
 * its access-log entry.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { constants, Http2ServerRequest, Http2ServerResponse, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { TailcastError } from '../errors.ts';
import { parseTarget, type Target } from '../kube/canonical-target.ts';
import { headerLines } from '../kube/headers.ts';
import { mapStream } from '../proxy/front/http2.ts';
import { Account, type AccountDeps } from '../proxy/gate/account.ts';
import { GATE_METHODS, type Caller, type InboundRequest } from '../proxy/gate/gate.ts';
import { loggedPath } from '../observe/access-log.ts';
import { callerName, type Peer } from '../tailnet/identity.ts';
import { refusalOf } from './refusal.ts';

/** Connection of a client that requests an upgrade. */
export interface UpgradeSocket {
  readonly socket: Duplex;
  /** Bytes that the client sent after its request. */
  readonly head: Buffer;
}

/** A request to the portal; `request.portal` in Fastify's handlers. */
export class PortalRequest {
  readonly inbound: InboundRequest;
  readonly account: Account;
  /** Aborts when the response is complete, and when the client disconnects. */
  readonly signal: AbortSignal;
  /** True if the request has a body. The portal does not read bodies. */
  readonly hasBody: boolean;
  readonly upgrade: UpgradeSocket | undefined;
  /**
   * True while a request is relayed to a recorder. During this time, the relay is responsible for the access-log entry.
   */
  isRelayed = false;
  /** Caller that the gate has identified; undefined before that. */
  caller: Caller | undefined;
  readonly #response: ServerResponse | Http2ServerResponse;
  readonly #problem: TailcastError | undefined;
  #target: Target | undefined;

  constructor(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
    { peer, upgrade }: { readonly peer: Peer; readonly upgrade?: UpgradeSocket },
    deps: AccountDeps,
  ) {
    this.upgrade = upgrade;
    this.#response = response;
    const isStream = request instanceof Http2ServerRequest;
    if (isStream) {
      const { inbound, problem } = mapStream(request.rawHeaders, peer);
      this.inbound = inbound;
      this.#problem = problem;
      this.hasBody = !request.stream.endAfterHeaders;
      if (this.hasBody) endBodyWithResponse(request.stream);
    } else {
      const { method = '', url = '', rawHeaders, httpVersion } = request;
      this.inbound = { method, target: url, rawHeaders, peer, upgrade: upgrade !== undefined };
      if (httpVersion !== '1.1' && httpVersion !== '1.0')
        this.#problem = new TailcastError('REQUEST_MALFORMED', `HTTP/${httpVersion} is not supported`);
      this.hasBody = hasBody(rawHeaders);
      // closes the connection after the response, because an unread body would block the next request of the connection
      if (this.hasBody && !(response instanceof Http2ServerResponse)) response.shouldKeepAlive = false;
    }
    this.account = new Account(
      upgrade === undefined ? (isStream ? 'h2' : 'h1') : 'upgrade',
      this.inbound,
      deps,
    );
    this.account.longRunning = true;
    const over = new AbortController();
    this.signal = over.signal;
    response.on('error', () => {}); // a 'close' event follows
    response.once('close', () => {
      over.abort(new Error('the client left'));
      if (!this.isRelayed) this.account.close();
    });
  }

  /** Parses the target. Called once. @throws TailcastError for a request that must not reach the router */
  readTarget(): void {
    if (this.#problem !== undefined) throw this.#problem;
    this.#target = parseTarget(this.inbound.target);
    if (!GATE_METHODS.has(this.inbound.method))
      throw new TailcastError('METHOD_REFUSED', 'recordings can only be read');
  }

  /** @throws TailcastError `INTERNAL` if `readTarget` was not called before */
  get target(): Target {
    if (this.#target === undefined) throw new TailcastError('INTERNAL', 'the target has not been read');
    return this.#target;
  }

  /**
   * Sends the head of a response.
   * @returns the stream for the body. Destroying the stream with an error tells the client that the body is incomplete
   */
  begin(status: number, headers: Readonly<Record<string, string>>): ServerResponse | ServerHttp2Stream {
    const response = this.#response;
    if (response instanceof Http2ServerResponse) {
      const { stream } = response;
      stream.respond({ ':status': status, ...headers });
      return stream;
    }
    response.writeHead(status, headers);
    return response;
  }

  /**
   * Sends a page or a `Status`. Aborts a response that has already started, so that the client sees it as incomplete.
   */
  refuse(error: unknown): void {
    const { account, inbound } = this;
    const response = this.#response;
    const isStream = response instanceof Http2ServerResponse;
    // a stream may still be open here, although the client has reset it
    if (this.signal.aborted || account.begun || (isStream && response.stream.destroyed)) {
      if (!isStream) response.destroy();
      else if (!response.stream.closed) response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      return;
    }
    const { caller } = this;
    const { status, headers, body } = refusalOf(error, {
      method: inbound.method,
      path: loggedPath(inbound.target),
      rawHeaders: inbound.rawHeaders,
      viewer: caller === undefined ? undefined : callerName(caller.identity),
    });
    account.refused(error, status);
    const sink = this.begin(status, { ...headers, 'content-length': String(body.length) });
    sink.end(inbound.method === 'HEAD' ? undefined : body);
  }
}

/** Tells the client to stop sending its body after a complete response (RFC 9113 §8.1). */
function endBodyWithResponse(stream: ServerHttp2Stream): void {
  stream.once('finish', () => stream.close(constants.NGHTTP2_NO_ERROR));
}

function hasBody(rawHeaders: readonly string[]): boolean {
  return (
    headerLines(rawHeaders, 'transfer-encoding').length > 0 ||
    headerLines(rawHeaders, 'content-length').some((value) => value.trim() !== '0')
  );
}
