/** The Fastify application of the portal: routes, refusals and files. What it is told of a request is a `Turn`. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import { TailcastError } from '../errors.ts';
import { headerLines } from '../kube/header-lines.ts';
import type { Gate } from '../proxy/gate/gate.ts';
import { DATA_HEADERS, pageHeaders, type PageFiles } from './pages.ts';
import { registerRecorderProxy, type RecorderProxyDeps } from './recorder-proxy.ts';
import { refusalOf } from './refusal.ts';
import { PORTAL_PATH, type PortalRoute } from './routes.ts';
import { sendWhole, type Turn } from './turn.ts';

export interface ApplicationDeps extends Omit<RecorderProxyDeps, 'turnOf'> {
  readonly gate: Pick<Gate, 'recognise'>;
  readonly pages: PageFiles;
}

export interface PortalApplication {
  /** Answers the request of a turn. */
  route(
    turn: Turn,
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): void;
}

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

/** One per portal. */
export async function createApplication(deps: ApplicationDeps): Promise<PortalApplication> {
  const turns = new WeakMap<object, Turn>();
  const turnOf = (raw: object): Turn => {
    const turn = turns.get(raw);
    if (turn === undefined) throw new TailcastError('INTERNAL', 'a request that did not come from the front');
    return turn;
  };
  const app = createRoutes(deps, turnOf);
  registerRecorderProxy(app, ROUTER_PATHS.data, { ...deps, turnOf });
  await app.ready();
  const router: Router = app;
  return {
    route(turn, request, response) {
      turns.set(request, turn);
      request.url = turn.route === undefined ? '/' : ROUTER_PATHS[turn.route.kind];
      Object.assign(request, { method: request.method === 'HEAD' ? 'HEAD' : 'GET' }); // the client's is in the turn
      router.routing(request, response);
    },
  };
}

function createRoutes(deps: ApplicationDeps, turnOf: (raw: object) => Turn): FastifyInstance {
  const app = fastify({ logger: false, exposeHeadRoutes: false, return503OnClosing: false });
  app.addHook('onRequest', async ({ raw }) => admit(deps, turnOf(raw)));
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
async function admit({ gate }: Pick<ApplicationDeps, 'gate'>, turn: Turn): Promise<void> {
  const { client, route, account, problem } = turn;
  if (problem !== undefined) throw problem;
  const isPage = route?.kind === 'redirect' || (route?.kind === 'page' && route.file === 'index.html');
  turn.caller = await gate.recognise(client.inbound, isPage, client.signal);
  account.recognised(turn.caller);
  // the router has been given a name that it does not know
  if (route === undefined) return;
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
