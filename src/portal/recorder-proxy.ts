/**
 * Forwards requests to the read API of recorders with `@fastify/http-proxy`, whose defaults are disabled (ADR 9).
 *
 * ``` GET ─► proxyRequest ─┬─ reply.from ─► recorder 1: silent, broken, or does not accept the named viewer
 *                      └─ reply.from ─► recorder 2 ─► body, as fast as the client reads it
 * ```
 *
 * Path and headers of the proxied request are built from the route, the caller and an allowlist. Each request has its
 * own connection, which is opened before `@fastify/http-proxy` gets it. `recorder-call` chooses the next recorder.
 */
import { Agent, type ClientRequestArgs, type IncomingMessage } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import type { Duplex } from 'node:stream';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { TailcastError } from '../errors.ts';
import { queryValues, type Target } from '../kube/canonical-target.ts';
import { onlyLine } from '../kube/headers.ts';
import type { NamedViewer } from '../wire/recorder-api/named-viewer.ts';
import { VIEWER_ACTIONS } from '../wire/recorder-api/session-order.ts';
import { DATA_HEADERS, PORTAL_PATH } from './page-headers.ts';
import { passBody } from './pass-body.ts';
import { fieldsFor, isAccepted, recorderPath, type RecorderCalls } from './recorder-call.ts';
import { relay, type RelayDeps } from './relay.ts';

export interface RecorderProxyDeps extends RelayDeps {
  readonly calls: Pick<RecorderCalls, 'first'>;
}

type ReplyOptions = NonNullable<httpProxy.FastifyHttpProxyOptions['replyOptions']>;

/** Request headers that the portal forwards if the value matches the pattern. */
const REQUEST_HEADERS: ReadonlyMap<string, RegExp> = new Map([
  ['range', /^bytes=[0-9, -]{1,100}$/],
  ['if-none-match', /^"[\u0021\u0023-\u007e]{1,200}"$/],
  ['if-range', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);
/**
 * Response headers that the portal forwards if the value matches the pattern. The gateway creates all other headers.
 */
const RESPONSE_HEADERS: ReadonlyMap<string, RegExp> = new Map([
  ['content-length', /^\d{1,15}$/],
  ['content-range', /^bytes [0-9*/-]{1,60}$/],
  ['accept-ranges', /^bytes$/],
  ['retry-after', /^\d{1,6}$/],
  ['etag', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);
/** Maximum size of the head of a recorder's response, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024;
/** Upstream address of a request for which no connection is open. No DNS server resolves this name. */
const NOWHERE = 'http://nowhere.invalid';

/**
 * Path of one recording. The id of a recording consists of a node ID and a time: `<node>_<time>`
 * (`tsrecorder/store/key`).
 */
export const RECORDING_ROUTE = '/recordings/:id(^[A-Za-z0-9_-]{1,128}_[0-9T:.-]{19,29}Z$)';
const PART = ':part(^(?:cast|playback|transcript|evidence|sidecar|notes|review|search|orders)$)';
const ORDER = `:order(^(?:${VIEWER_ACTIONS.join('|')})$)`;
/** Index of `cast` in the segments of `/-/recordings/api/v1/recordings/<id>/cast`. */
const PART_INDEX = 6;
const JSON_TYPE = 'application/json; charset=utf-8';
/** Content types of responses that are not JSON. Map keys: route parameter `part`. */
const TYPES: ReadonlyMap<string, string> = new Map([
  ['cast', 'application/x-asciicast'],
  ['notes', 'application/x-ndjson'],
]);

/** Adds the routes of the read API. The error handler of `app` handles their errors. */
export function registerRecorderProxy(
  app: FastifyInstance,
  deps: RecorderProxyDeps,
  httpMethods: string[],
): void {
  const common: Common = { deps, dialled: new DialledAgent(), httpMethods };
  app.register(httpProxy, {
    ...commonOptions(common, 'GET'),
    // `@fastify/http-proxy` would send 101 before the recorder accepts the upgrade; see `live-view`
    websocket: false,
    routes: [
      '/recordings',
      '/thumbnails',
      '/events',
      '/search',
      '/search/facets',
      '/searches',
      RECORDING_ROUTE,
      `${RECORDING_ROUTE}/${PART}`,
    ],
  });
  app.register(httpProxy, {
    ...commonOptions(common, 'POST'),
    websocket: false,
    routes: [`${RECORDING_ROUTE}/orders/${ORDER}`],
    config: { isAction: true },
  });
}

interface Common extends Pick<Context, 'deps' | 'dialled'> {
  readonly httpMethods: string[];
}

/** Options of all routes. All requests to the recorder have the method `method`. */
function commonOptions({ httpMethods, ...context }: Common, method: 'GET' | 'POST') {
  return {
    prefix: `${PORTAL_PATH}/api/v1`,
    httpMethods,
    upstream: '',
    proxyPayloads: false,
    internalRewriteLocationHeader: false,
    disableCache: true,
    disableRequestLogging: true,
    // uses Node's HTTP client, because undici ends the process with a failed assertion if a response ends
    // while the client is slow
    http: {
      agents: { 'http:': context.dialled, 'https:': new SecureAgent() },
      requestOptions: { maxHeaderSize: MAX_HEAD_BYTES, insecureHTTPParser: false },
    },
    replyOptions: {
      method,
      // no timeout here, because `within` and `passBody` have timeouts
      timeout: 0,

      retryDelay: () => null,
      getUpstream: () => NOWHERE,
      queryString: () => '',
      rewriteRequestHeaders: () => ({}),
      rewriteHeaders: () => ({}),
    },
    handler: (request, reply, _destination, options) => {
      if (method === 'POST' && request.method !== method)
        throw new TailcastError('METHOD_REFUSED', 'use POST');
      return proxyRequest({ ...context, options }, request, reply);
    },
  } satisfies httpProxy.FastifyHttpProxyOptions;
}

/**
 * Agent with connections that were opened before `@fastify/http-proxy` requests them. Each connection serves
 * one request and is then closed.
 */
class DialledAgent extends Agent {
  readonly #sockets = new Map<string, Duplex>();
  #requests = 0;

  /** Returns an origin. Registers a connection for the next request to this origin. */
  add(socket: Duplex): string {
    const host = `request-${++this.#requests}.invalid`;
    this.#sockets.set(host, socket);
    socket.once('close', () => this.#sockets.delete(host));
    return `http://${host}`;
  }

  override createConnection(
    { host }: ClientRequestArgs,
    done: (error: Error | null, socket: Duplex) => void,
  ): Duplex | undefined {
    const socket = this.#sockets.get(host ?? '');
    this.#sockets.delete(host ?? '');
    // reports the error as an event, which Node handles; does not throw, because the caller may be a timer of
    // `@fastify/http-proxy`
    if (socket === undefined) Reflect.apply(done, undefined, [new Error('a request has one connection')]);
    return socket;
  }
}

interface Context {
  readonly deps: RecorderProxyDeps;
  readonly dialled: DialledAgent;
  /** Options with which the route was registered. */
  readonly options: ReplyOptions;
}

/**
 * Sends the request to the recorders one after another, and streams the first accepted response to the client. Rejects
 * if an error occurs before the response to the client.
 */
async function proxyRequest(
  context: Context,
  { portal }: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const { account, inbound, target } = portal;
  const { calls, stallMs } = context.deps;
  const { type, isCacheable, isFollowed: follows } = propertiesOf(target);
  await relay(context.deps, portal, async ({ recorders, viewer, signal }) => {
    const headers = { ...fieldsFor(viewer), ...allowed(inbound.rawHeaders, REQUEST_HEADERS) };
    const attempt = (socket: Duplex): Promise<IncomingMessage> =>
      ask(context, { reply, target, viewer, headers, socket });
    const answer =
      inbound.method === 'POST'
        ? await firstWithSession(calls, recorders, signal, attempt)
        : await calls.first(recorders, signal, attempt);
    try {
      const { statusCode = 502, rawHeaders } = answer;
      const isGood = statusCode < 300 || statusCode === 304;
      account.answered(statusCode);
      reply.hijack();
      const sink = portal.begin(statusCode, {
        ...DATA_HEADERS,
        ...allowed(rawHeaders, RESPONSE_HEADERS),
        'content-type': isGood ? type : JSON_TYPE,
        'cache-control': isCacheable ? 'private, no-cache' : 'no-store',
      });
      const sent = (bytes: number): void => void (account.responseBytes += bytes);
      await passBody(answer, sink, { stallMs, follows, signal, sent });
    } finally {
      answer.destroy();
    }
  });
}

/** Maximum number of recorders to which the portal sends the same order (a command to a running session). */
const MAX_ORDER_RECORDERS = 8;

/**
 * Sends an order (a command to a running session) to the recorders, one after another, until the order reaches the
 * recorder that receives the session.
 */
async function firstWithSession(
  calls: RecorderProxyDeps['calls'],
  recorders: readonly string[],
  signal: AbortSignal,
  attempt: (socket: Duplex) => Promise<IncomingMessage>,
): Promise<IncomingMessage> {
  let refusal: IncomingMessage | undefined;
  let failure: unknown;
  for (const recorder of recorders.slice(0, MAX_ORDER_RECORDERS)) {
    try {
      const answer = await calls.first([recorder], signal, attempt);
      refusal?.destroy();
      if (answer.statusCode !== 404 && answer.statusCode !== 409) return answer;
      refusal = answer;
    } catch (error) {
      signal.throwIfAborted();
      failure = error;
    }
  }
  if (refusal === undefined) throw failure;
  return refusal;
}

/** Returns how the portal must handle the recorder's response to a request for this target. */
function propertiesOf({ segments, query }: Target): {
  /** The content type of the response, whatever type the recorder sends. */
  readonly type: string;
  /** True if the viewer's browser may cache the response and must revalidate it. */
  readonly isCacheable: boolean;
  /** True if the response may be silent for long. */
  readonly isFollowed: boolean;
} {
  const part = segments[PART_INDEX] ?? '';
  return {
    type: TYPES.get(part) ?? JSON_TYPE,
    isCacheable: !['', 'search', 'review', 'orders'].includes(part),
    isFollowed: part === 'cast' && queryValues(query, 'follow').includes('1'),
  };
}

interface Question {
  readonly reply: FastifyReply;
  readonly target: Target;
  readonly viewer: NamedViewer;
  readonly headers: Readonly<Record<string, string>>;
  readonly socket: Duplex;
}

/**
 * Sends one request to one recorder with `@fastify/http-proxy`.
 * @returns the response, its body unread
 * @throws TailcastError `PORTAL_UNTRUSTED`, or an Error if there is no usable response
 */
async function ask(
  { dialled, options }: Context,
  { reply, target, viewer, headers, socket }: Question,
): Promise<IncomingMessage> {
  const answered = Promise.withResolvers<IncomingMessage>();
  const origin = dialled.add(socket);
  reply.from(recorderPath(target), {
    ...options,
    getUpstream: () => origin,
    queryString: () => target.rawQuery,
    rewriteRequestHeaders: () => ({ ...headers }),
    onResponse(_request, _reply, { stream }) {
      stream.on('error', () => {}); // the pipeline reports the error
      const { statusCode = 0, rawHeaders } = stream;
      if (isAccepted(rawHeaders, viewer)) {
        if (hasFrame(stream)) answered.resolve(stream);
        else answered.reject(new Error('an interruption of its response would not be noticed'));
      } else if (statusCode >= 500) answered.reject(new Error(`it answered ${statusCode}`));
      else answered.reject(new TailcastError('PORTAL_UNTRUSTED'));
    },
    onError: (_reply, { error }) => answered.reject(error.cause ?? error),
  });
  return answered.promise;
}

/**
 * Returns false for a body that ends with the connection, because Node's client would report such a body as
 * complete after a reset.
 */
function hasFrame({ statusCode, headers }: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  return statusCode === 204 || statusCode === 304 || length !== undefined || coding !== undefined;
}

/** Returns the allowed headers that occur only once and match their pattern. */
function allowed(
  rawHeaders: readonly string[],
  forms: ReadonlyMap<string, RegExp>,
): Readonly<Record<string, string>> {
  const entries = [...forms].flatMap(([name, form]) => {
    const value = onlyLine(rawHeaders, name);
    return value !== undefined && form.test(value) ? [[name, value] as const] : [];
  });
  return Object.fromEntries(entries);
}
