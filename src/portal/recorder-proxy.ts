/**
 * The portal's way to the recorders: `@fastify/http-proxy`, with everything that it would do by itself turned off or
 * written anew.
 *
 * ```
 * /data ─► ask ─┬─ reply.from ─► recorder 1: silent, broken, or took nobody for the viewer
 *               └─ reply.from ─► recorder 2 ─► body, as fast as the client takes it
 * ```
 *
 * The package never sees what the client asked for: path and query come from the route, the fields of the question from
 * the caller and an allow-list. Of the answer nothing comes back but fields that look as they should. Each question has
 * an origin of its own and so a connection of its own, which is dialled before the package is asked; there is nothing it
 * could open, keep or share. Not here: which recorder is asked next (`recorder-call`).
 */
import { Agent, type ClientRequestArgs, type IncomingMessage, type IncomingHttpHeaders } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import type { Duplex } from 'node:stream';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { TailcastError } from '../errors.ts';
import { onlyLine } from '../kube/header-lines.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import type { Rechecks } from '../proxy/gate/recheck.ts';
import { within } from '../async/within.ts';
import type { NamedViewer } from '../wire/recorder-api/named-viewer.ts';
import { DATA_HEADERS } from './pages.ts';
import { passBody } from './pass-body.ts';
import type { Places } from './places.ts';
import { fieldsFor, isAccepted, type RecorderCalls } from './recorder-call.ts';
import type { PortalRoute } from './routes.ts';
import type { Turn } from './turn.ts';
import { brokenBy, namedViewerOf, noRecorder } from './viewer.ts';

export interface RecorderProxyDeps {
  readonly calls: Pick<RecorderCalls, 'first'>;
  /** The recorders that may have something for this caller, as `ip:port`, in order. */
  readonly recordersFor: (caller: Caller) => Promise<readonly string[]>;
  readonly rechecks: Pick<Rechecks, 'watch'>;
  readonly places: Places;
  /** How long a body may stand still. */
  readonly stallMs: number;
  /** Ends everything. */
  readonly signal: AbortSignal;
  readonly turnOf: (raw: object) => Turn;
}

type ReplyOptions = NonNullable<httpProxy.FastifyHttpProxyOptions['replyOptions']>;
type DataRoute = Extract<PortalRoute, { kind: 'data' }>;

/** Fields of a request that the recorder is asked with as they are, when they look like this. */
const PASSED_ON: ReadonlyMap<string, RegExp> = new Map([
  ['range', /^bytes=[0-9, -]{1,100}$/],
  ['if-none-match', /^"[\u0021\u0023-\u007e]{1,200}"$/],
  ['if-range', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);
/** Fields of an answer that go to the client, when they look like this; all others are ours. */
const PASSED_BACK: ReadonlyMap<string, RegExp> = new Map([
  ['content-length', /^\d{1,15}$/],
  ['content-range', /^bytes [0-9*/-]{1,60}$/],
  ['accept-ranges', /^bytes$/],
  ['etag', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);

/** What bounds the head of a recorder's answer. */
const MAX_HEAD_BYTES = 16 * 1024;
/** Where a question goes for which nothing was dialled: nowhere. */
const NOWHERE = 'http://nowhere.invalid';

/** Serves `path`. What it throws is for the error handler of `app`. */
export function registerRecorderProxy(app: FastifyInstance, path: string, deps: RecorderProxyDeps): void {
  const dialled = new DialledAgent();
  app.register(httpProxy, {
    prefix: path,
    routes: ['/'],
    httpMethods: ['GET'],
    upstream: '',
    // a client is told 101 before the recorder has been asked; live views have a road of their own (`live-view`)
    websocket: false,
    proxyPayloads: false,
    internalRewriteLocationHeader: false,
    // it would keep targets of 100 people
    disableCache: true,
    disableRequestLogging: true,
    // Node's client and not undici, whose assertions end the process when an answer ends while the client is slow
    http: {
      agents: { 'http:': dialled, 'https:': new SecureAgent() },
      requestOptions: { maxHeaderSize: MAX_HEAD_BYTES, insecureHTTPParser: false },
    },
    // without the hooks of a question nothing is asked, and nothing comes back
    replyOptions: {
      method: 'GET',
      // none: ours are `within` and `passBody`
      timeout: 0,

      retryDelay: () => null,
      getUpstream: () => NOWHERE,
      queryString: () => '',
      rewriteRequestHeaders: () => ({}),
      rewriteHeaders: () => ({}),
    },
    handler: async (request, reply, _destination, options) =>
      passOn({ deps, dialled, options }, deps.turnOf(request.raw), reply),
  });
}

/** Connections that were dialled before the package asks for them. Each is for one question, and closes with it. */
class DialledAgent extends Agent {
  readonly #sockets = new Map<string, Duplex>();
  #questions = 0;

  /** @returns origin under which the connection can be had, once */
  add(socket: Duplex): string {
    const host = `question-${++this.#questions}.invalid`;
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
    // Node passes on an error alone; a throw could end up in a timer of the package
    if (socket === undefined) Reflect.apply(done, undefined, [new Error('a question has one connection')]);
    return socket;
  }
}

interface Context {
  readonly deps: RecorderProxyDeps;
  readonly dialled: DialledAgent;
  /** What was registered. */
  readonly options: ReplyOptions;
}

/** Asks the recorders and streams what the first good one says. Rejects while the client can still be told. */
async function passOn(context: Context, turn: Turn, reply: FastifyReply): Promise<void> {
  const { deps } = context;
  const { client, route, caller, account } = turn;
  if (caller === undefined || route?.kind !== 'data') throw new Error('nobody said who is asking for what');
  const leave = deps.places.take(caller.identity.nodeId);
  const stop = new AbortController();
  const signal = AbortSignal.any([client.signal, deps.signal, stop.signal]);
  let unwatch: (() => void) | undefined;
  let answer: IncomingMessage | undefined;
  turn.passing = true;
  try {
    const recorders = await deps.recordersFor(caller);
    if (recorders.length === 0) throw noRecorder();
    const viewer = namedViewerOf(caller, client.inbound);
    const fields = [...fieldsFor(viewer), ...passed(client.inbound.rawHeaders, PASSED_ON)];
    answer = await deps.calls.first(recorders, signal, async (connect, ms, given) => {
      const socket = await connect();
      const question = { reply, route, viewer, fields, socket };
      try {
        return await within(ms, 'the answer of the recorder', given, (bounded) =>
          ask(context, question, bounded),
        );
      } catch (error) {
        socket.destroy();
        throw error;
      }
    });
    unwatch = deps.rechecks.watch(caller, client.inbound.peer, (error) => {
      account.refused(error);
      stop.abort(error);
    });
    const { statusCode = 502, rawHeaders } = answer;
    account.answered(statusCode);
    reply.hijack();
    const sink = client.begin(statusCode, answerFields(statusCode, rawHeaders, route));
    const { stallMs } = deps;
    await passBody(answer, sink, {
      stallMs,
      follows: route.follows,
      signal,
      sent: (bytes) => (account.responseBytes += bytes),
    });
  } catch (error) {
    // what was begun has been cut, and the client sees that
    if (!account.begun) throw error;
    if (!stop.signal.aborted) account.failed(brokenBy(error));
  } finally {
    unwatch?.();
    leave();
    answer?.destroy();
    turn.passing = false;
    if (account.begun || client.signal.aborted) account.close();
  }
}

interface Question {
  readonly reply: FastifyReply;
  readonly route: DataRoute;
  readonly viewer: NamedViewer;
  /** Flat list: the whole head of the question. */
  readonly fields: readonly string[];
  readonly socket: Duplex;
}

/**
 * One question to one recorder, through the package.
 * @returns its answer, the body unread
 * @throws TailcastError `PORTAL_UNTRUSTED`; Error when it did not answer
 */
async function ask(
  { dialled, options }: Context,
  { reply, route, viewer, fields, socket }: Question,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const answered = Promise.withResolvers<IncomingMessage>();
  const onAbort = (): void => answered.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  const origin = dialled.add(socket);
  try {
    reply.from(route.path, {
      ...options,
      getUpstream: () => origin,
      queryString: () => route.query.slice(1),
      rewriteRequestHeaders: () => objectOf(fields),
      onResponse(_request, _reply, { stream }) {
        stream.on('error', () => {}); // whoever reads it is told by the pipeline
        const { statusCode = 0, rawHeaders } = stream;
        if (isAccepted(rawHeaders, viewer)) {
          if (hasFrame(stream)) answered.resolve(stream);
          else answered.reject(new Error('its answer could break off unseen'));
        } else if (statusCode >= 500) answered.reject(new Error(`it answered ${statusCode}`));
        else answered.reject(new TailcastError('PORTAL_UNTRUSTED'));
      },
      onError: (_reply, { error }) => answered.reject(error.cause ?? error),
    });
    return await answered.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** A body that lasts until the connection ends looks whole to Node's client even after a reset. */
function hasFrame({ statusCode, headers }: IncomingMessage): boolean {
  const { 'content-length': length, 'transfer-encoding': coding } = headers;
  return statusCode === 204 || statusCode === 304 || length !== undefined || coding !== undefined;
}

/** Those fields that are there once and look as they should. */
function passed(rawHeaders: readonly string[], shapes: ReadonlyMap<string, RegExp>): readonly string[] {
  return [...shapes].flatMap(([name, shape]) => {
    const value = onlyLine(rawHeaders, name);
    return value !== undefined && shape.test(value) ? [name, value] : [];
  });
}

/** What the client gets: what may pass of what the recorder said, and fields of ours. */
function answerFields(status: number, rawHeaders: readonly string[], route: DataRoute): readonly string[] {
  const type = status < 300 || status === 304 ? route.type : 'application/json; charset=utf-8';
  const cache = route.cacheable ? 'private, no-cache' : 'no-store';
  const back = passed(rawHeaders, PASSED_BACK);
  return [...DATA_HEADERS, ...back, 'content-type', type, 'cache-control', cache];
}

/** @param fields flat list, in which no name is there twice */
function objectOf(fields: readonly string[]): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = {};
  for (let index = 0; index < fields.length; index += 2) {
    headers[fields[index] ?? ''] = fields[index + 1];
  }
  return headers;
}
