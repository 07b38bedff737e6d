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
import type { IncomingHttpHeaders } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { TailcastError } from '../errors.ts';
import { onlyLine } from '../kube/header-lines.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import type { Rechecks } from '../proxy/gate/recheck.ts';
import { within } from '../recording/deadline.ts';
import { VIEWER_ACCEPTED_HEADER, type NamedViewer } from '../wire/recorder-api/named-viewer.ts';
import { DATA_HEADERS } from './pages.ts';
import { passBody } from './pass-body.ts';
import type { Places } from './places.ts';
import { fieldsFor, isAccepted, type RecorderCalls } from './recorder-call.ts';
import type { PortalRoute } from './routes.ts';
import type { Turn } from './turn.ts';
import { namedViewerOf, noRecorder } from './viewer.ts';

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

/** Its fields that may pass are in the reply. */
interface RecorderAnswer {
  readonly statusCode: number;
  readonly stream: Readable;
}

/** Serves `path`. What it throws is for the error handler of `app`. */
export function registerRecorderProxy(app: FastifyInstance, path: string, deps: RecorderProxyDeps): void {
  const dialled = new Dialled();
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
    undici: {
      connect: dialled.connect,
      // `Connection: close`, and no second connection to an origin
      pipelining: 0,
      connections: 1,
      allowH2: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      // ours are `within` and `passBody`
      headersTimeout: 0,
      bodyTimeout: 0,
    },
    // without the hooks of a question nothing is asked, and nothing comes back
    replyOptions: {
      method: 'GET',
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

/** Connections that are there before the package asks for them, each for one question. */
class Dialled {
  readonly #sockets = new Map<string, Duplex>();
  #questions = 0;

  /** @returns origin under which the connection can be had, once */
  add(socket: Duplex): string {
    const host = `question-${++this.#questions}.invalid`;
    this.#sockets.set(host, socket);
    socket.once('close', () => this.#sockets.delete(host));
    return `http://${host}`;
  }

  /** For undici, which must not be answered before it has returned. */
  readonly connect = (
    { hostname }: { readonly hostname: string },
    done: (...result: [error: Error, socket: null] | [error: null, socket: never]) => void,
  ): void => {
    const socket = this.#sockets.get(hostname);
    this.#sockets.delete(hostname);
    if (socket === undefined)
      process.nextTick(done, new Error('there is one connection for a question'), null);
    else process.nextTick(done, null, socket);
  };
}

interface Context {
  readonly deps: RecorderProxyDeps;
  readonly dialled: Dialled;
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
  let answer: RecorderAnswer | undefined;
  turn.passing = true;
  try {
    const recorders = await deps.recordersFor(caller);
    if (recorders.length === 0) throw noRecorder();
    const viewer = namedViewerOf(caller, client.inbound);
    const fields = [...fieldsFor(viewer), ...passedOn(client.inbound.rawHeaders)];
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
    unwatch = deps.rechecks.watch(caller, client.inbound.peer, (error) => stop.abort(error));
    account.answered(answer.statusCode);
    reply.hijack();
    const sink = client.begin(answer.statusCode, answerFields(answer.statusCode, reply, route));
    const { stallMs } = deps;
    await passBody(answer.stream, sink, {
      stallMs,
      follows: route.follows,
      signal,
      sent: (bytes) => account.sent(bytes),
    });
  } catch (error) {
    // what was begun has been cut, and the client sees that
    if (!account.begun) throw error;
    account.broken(error);
  } finally {
    unwatch?.();
    leave();
    answer?.stream.destroy();
    turn.passing = false;
    if (account.begun || client.signal.aborted) account.closed();
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
): Promise<RecorderAnswer> {
  const answered = Promise.withResolvers<RecorderAnswer>();
  const onAbort = (): void => answered.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  let isTrusted = false;
  let body: Readable | undefined;
  // undici takes it for the end of a body without a length, unless it hears of it second
  socket.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'ECONNRESET') body?.destroy(error);
  });
  const origin = dialled.add(socket);
  try {
    reply.from(route.path, {
      ...options,
      getUpstream: () => origin,
      queryString: () => route.query.slice(1),
      rewriteRequestHeaders: () => objectOf(fields),
      rewriteHeaders(headers) {
        const said = headers[VIEWER_ACCEPTED_HEADER];
        isTrusted = isAccepted(typeof said === 'string' ? said : undefined, viewer);
        return isTrusted ? passedBack(headers) : {};
      },
      onResponse(_request, _reply, { statusCode, stream }) {
        stream.on('error', () => {}); // whoever reads it is told by the pipeline
        body = stream;
        if (isTrusted) answered.resolve({ statusCode, stream });
        else if (statusCode >= 500) answered.reject(new Error(`it answered ${statusCode}`));
        else answered.reject(new TailcastError('PORTAL_UNTRUSTED'));
      },
      onError: (_reply, { error }) => answered.reject(error.cause ?? error),
    });
    return await answered.promise;
  } catch (error) {
    for (const name of PASSED_BACK.keys()) reply.removeHeader(name);
    throw error;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Those fields of a request that are there once and look as they should, as a flat list. */
function passedOn(rawHeaders: readonly string[]): readonly string[] {
  return passed(PASSED_ON, (name) => onlyLine(rawHeaders, name));
}

/** The same of an answer, in which a list is a field that was there more than once. */
function passedBack(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const read = (name: string): unknown => headers[name];
  return objectOf(passed(PASSED_BACK, read));
}

function passed(shapes: ReadonlyMap<string, RegExp>, read: (name: string) => unknown): readonly string[] {
  return [...shapes].flatMap(([name, shape]) => {
    const value = read(name);
    return typeof value === 'string' && shape.test(value) ? [name, value] : [];
  });
}

/** What the client gets: what was passed back into the reply, and fields of ours. */
function answerFields(status: number, reply: FastifyReply, route: DataRoute): readonly string[] {
  const type = status < 300 || status === 304 ? route.type : 'application/json; charset=utf-8';
  const cache = route.cacheable ? 'private, no-cache' : 'no-store';
  const back = passed(PASSED_BACK, (name) => reply.getHeader(name));
  return [...DATA_HEADERS, ...back, 'content-type', type, 'cache-control', cache];
}

/** @param fields flat list, in which no name is there twice */
function objectOf(fields: readonly string[]): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = {};
  for (let index = 0; index < fields.length; index += 2) {
    headers[(fields[index] ?? '').toLowerCase()] = fields[index + 1];
  }
  return headers;
}
