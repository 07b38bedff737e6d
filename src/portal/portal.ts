/**
 * The gateway's portal: recordings under the name that everybody's kubeconfig already holds. A Fastify application that never
 * listens: the front hands it requests whose peer is known.
 *
 * ```
 * browser ─► listener ─► server ─► portal ─┬─ page and its files: from memory
 *                                          ├─ data ─────────► recorder (GET), body streamed
 *                                          └─ live ─────────► recorder (WebSocket), bytes relayed
 * ```
 *
 * Each target is read once (`kube/canonical-target`), and what it means is looked up in a list of what may pass. Fastify's
 * router is given a name of ours for that and never what the client wrote; then the gate says who is calling (`onRequest`).
 * The recorder is told who looks and decides what they may see; nothing else of the client's request reaches it. Not here:
 * who may see what, and the access events; both are the recorder's.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { asTailcastError, TailcastError } from '../errors.ts';
import { parseTarget } from '../kube/canonical-target.ts';
import { headerLines } from '../kube/header-lines.ts';
import type { OwnService } from '../proxy/front/server.ts';
import { Account, type AccountDeps } from '../proxy/gate/account.ts';
import type { Gate } from '../proxy/gate/gate.ts';
import type { Peer } from '../tailnet/identity.ts';
import { portalClient, type PortalClient } from './client.ts';
import { createLiveView } from './live-view.ts';
import { DATA_HEADERS, pageHeaders, type PageFiles } from './pages.ts';
import { createPlaces } from './places.ts';
import type { RecorderCalls } from './recorder-call.ts';
import { registerRecorderProxy, type RecorderProxyDeps } from './recorder-proxy.ts';
import { refusalOf } from './refusal.ts';
import { findRoute, PORTAL_PATH, type PortalRoute } from './routes.ts';
import { sendWhole, type Turn } from './turn.ts';

export interface PortalDeps
  extends AccountDeps, Pick<RecorderProxyDeps, 'recordersFor' | 'rechecks' | 'signal'> {
  readonly gate: Pick<Gate, 'recognise'>;
  readonly calls: RecorderCalls;
  readonly pages: PageFiles;
  readonly limits?: Partial<PortalLimits>;
}

export interface PortalLimits {
  /** Questions to recorders under way, live views included. */
  readonly total: number;
  readonly perNode: number;
  /** How long a body or a live view may stand still. Recorders show every 30 s that a live view lives. */
  readonly stallMs: number;
}

export const PORTAL_LIMITS: PortalLimits = { total: 256, perNode: 32, stallMs: 120_000 };

/** What Fastify's router knows: the kind of a route, and no target. */
const ROUTER_PATHS: Readonly<Record<PortalRoute['kind'], string>> = {
  redirect: '/redirect',
  page: '/page',
  data: '/data',
  live: '/live',
};

/** Fastify's entrance. Messages of both protocols have what it uses, while its types want one of them. */
interface Router {
  routing(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): void;
}

/** One per gateway. */
export async function createPortal(deps: PortalDeps): Promise<OwnService> {
  const limits: PortalLimits = { ...PORTAL_LIMITS, ...deps.limits };
  const places = createPlaces(limits);
  const live = createLiveView({ ...deps, limits, places });
  const turns = new WeakMap<object, Turn>();
  const turnOf = (raw: object): Turn => {
    const turn = turns.get(raw);
    if (turn === undefined) throw new TailcastError('INTERNAL', 'a request that did not come from the front');
    return turn;
  };
  const app = createApplication(deps, turnOf);
  registerRecorderProxy(app, ROUTER_PATHS.data, { ...deps, places, stallMs: limits.stallMs, turnOf });
  await app.ready();
  const router: Router = app;
  return {
    prefix: PORTAL_PATH,
    request(request, response, peer) {
      const turn = openTurn(deps, request, response, peer);
      turns.set(request, turn);
      request.url = turn.route === undefined ? '/' : ROUTER_PATHS[turn.route.kind];
      Object.assign(request, { method: request.method === 'HEAD' ? 'HEAD' : 'GET' }); // the client's is in the turn
      router.routing(request, response);
    },
    upgrade(request, socket, head, peer) {
      void live.serve(request, socket, head, peer);
    },
  };
}

function openTurn(
  deps: AccountDeps,
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
  peer: Peer,
): Turn {
  const client = portalClient(request, response, peer);
  const account = new Account(client.protocol, client.inbound, deps);
  account.longRunning = true;
  const turn: Turn = { client, account, ...readTarget(client), caller: undefined, passing: false };
  client.signal.addEventListener('abort', () => {
    if (!turn.passing) account.close();
  });
  return turn;
}

function readTarget({ inbound, problem }: PortalClient): Pick<Turn, 'route' | 'problem'> {
  if (problem !== undefined) return { route: undefined, problem };
  try {
    return { route: findRoute(parseTarget(inbound.target)), problem };
  } catch (error) {
    return { route: undefined, problem: asTailcastError(error) };
  }
}

function createApplication(deps: PortalDeps, turnOf: (raw: object) => Turn): FastifyInstance {
  const app = fastify({ logger: false, exposeHeadRoutes: false, return503OnClosing: false });
  app.addHook('onRequest', async ({ raw }) => admit(deps, turnOf(raw)));
  // `admit` has refused what comes here; nothing may come through a gap between it and the router
  app.setNotFoundHandler(() => {
    throw new TailcastError('NOT_FOUND');
  });
  app.setErrorHandler((error, { raw }, reply) => refuse(turnOf(raw), error, reply));
  app.get(ROUTER_PATHS.redirect, ({ raw }, reply) => {
    const turn = turnOf(raw);
    const query = turn.route?.kind === 'redirect' ? turn.route.query : '';
    const location = ['location', `${PORTAL_PATH}/${query}`, 'cache-control', 'no-store'];
    turn.account.answered(308);
    return sendWhole(turn, reply, { status: 308, fields: [...DATA_HEADERS, ...location] });
  });
  app.route({
    method: ['GET', 'HEAD'],
    url: ROUTER_PATHS.page,
    handler: ({ raw }, reply) => sendFile(deps.pages, turnOf(raw), reply),
  });
  app.get(ROUTER_PATHS.live, () => {
    throw new TailcastError('REQUEST_MALFORMED', 'a session is followed over a WebSocket');
  });
  return app;
}

/** Who is calling, whether that is here, and whether it may be asked for in this way. */
async function admit({ gate }: Pick<PortalDeps, 'gate'>, turn: Turn): Promise<void> {
  const { client, route, account, problem } = turn;
  if (problem !== undefined) throw problem;
  const isPage = route?.kind === 'redirect' || (route?.kind === 'page' && route.file === 'index.html');
  turn.caller = await gate.recognise(client.inbound, isPage, client.signal);
  account.recognised(turn.caller);
  if (route === undefined) throw new TailcastError('NOT_FOUND');
  const { method } = client.inbound;
  const allowed = route.kind === 'page' ? ['GET', 'HEAD'] : ['GET'];
  if (!allowed.includes(method)) throw new TailcastError('METHOD_REFUSED', 'recordings can only be read');
  if (client.hasBody) throw new TailcastError('REQUEST_MALFORMED', 'nothing here takes a body');
}

/** A page or a `Status` of ours, whoever threw: errors of Fastify and its plugins are an `INTERNAL` without detail. */
function refuse({ client, account }: Turn, error: unknown, reply: FastifyReply): void {
  if (client.signal.aborted || account.begun) {
    reply.hijack();
    return client.cut();
  }
  const refusal = refusalOf(error, client.inbound.rawHeaders);
  account.refused(error, refusal.status);
  sendWhole({ client }, reply, refusal);
}

function sendFile(pages: PageFiles, turn: Turn, reply: FastifyReply): FastifyReply {
  const name = turn.route?.kind === 'page' ? turn.route.file : '';
  const file = pages.get(name);
  if (file === undefined) {
    const detail = name === 'index.html' ? 'this gateway was built without the page' : undefined;
    throw new TailcastError('NOT_FOUND', detail);
  }
  const { rawHeaders } = turn.client.inbound;
  const host = headerLines(rawHeaders, 'host')[0] ?? '';
  // names of assets change with what is in them
  const keep = name.startsWith('assets/') ? 'private, max-age=86400, immutable' : 'no-cache';
  const takesBrotli = headerLines(rawHeaders, 'accept-encoding').some((line) =>
    /(?:^|,)\s*br\s*(?:,|$)/.test(line),
  );
  const packed = takesBrotli ? file.packed : undefined;
  const tag = packed === undefined ? file.tag : file.tag.replace(/"$/, '-br"');
  const fields = [...pageHeaders(host), 'content-type', file.type, 'etag', tag, 'cache-control', keep];
  fields.push('vary', 'accept-encoding');
  const unchanged = headerLines(rawHeaders, 'if-none-match')[0] === tag;
  const body = packed ?? file.bytes;
  turn.account.answered(unchanged ? 304 : 200);
  if (!unchanged) turn.account.responseBytes = body.length;
  if (unchanged) return sendWhole(turn, reply, { status: 304, fields });
  if (packed !== undefined) fields.push('content-encoding', 'br');
  return sendWhole(turn, reply, { status: 200, fields, body });
}
