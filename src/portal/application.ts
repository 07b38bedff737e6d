/**
 * The Fastify application of the portal. Its only routes are these:
 *
 * ```
 * /-/recordings                              redirect to /-/recordings/
 * /-/recordings/, assets/<file>              the gateway's own player (`@fastify/static`)
 * /-/recordings/api/v1/…                     a recorder's read API (`recorder-proxy`)
 * /-/recordings/api/v1/recordings/<id>/live  a WebSocket to a recorder (`live-view`)
 * /-/recordings/access.html, api/v1/access/… access requests (`access-routes`)
 * ```
 */
import fastifyStatic from '@fastify/static';
import fastify, {
  type FastifyContextConfig,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import { TailcastError } from '../errors.ts';
import { headerLines } from '../kube/headers.ts';
import { GATE_METHODS, type Gate } from '../proxy/gate/gate.ts';
import { registerAccess, type AccessDeps } from './access-routes.ts';
import { relayLiveView } from './live-view.ts';
import { DATA_HEADERS, pageHeaders, PORTAL_PATH } from './page-headers.ts';
import { PortalRequest } from './portal-request.ts';
import type { RecorderCalls } from './recorder-call.ts';
import { RECORDING_ROUTE, registerRecorderProxy } from './recorder-proxy.ts';
import type { RelayDeps } from './relay.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** True if pages of other sites may link to the route. */
    readonly isPage?: boolean;
    /** True if `HEAD` is allowed, in addition to `GET`. */
    readonly isFile?: boolean;
    /** True if the route accepts upgrades. */
    readonly isLive?: boolean;
    /** True if `POST` without a body is allowed. */
    readonly isAction?: boolean;
  }
  interface FastifyRequest {
    readonly portal: PortalRequest;
  }
}

export interface ApplicationDeps extends RelayDeps, AccessDeps {
  readonly calls: RecorderCalls;
  readonly gate: Pick<Gate, 'recognise'>;
  /** Folder of the built player. */
  readonly playerDirectory: string;
}

/**
 * Methods with which each route is registered: all methods that the gateway accepts. A known path with a wrong method
 * then gets 405 instead of 404.
 */
const ROUTE_METHODS: string[] = [...GATE_METHODS];
/** Maximum length of a query, in characters. The page and the commands send far shorter queries. */
const MAX_QUERY_LENGTH = 8 * 1024;
const ASSET = ':asset(^[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\\.(?:css|js|svg|wasm|woff2)$)';

/** Builds the application. The application does not listen: `portal` passes requests to its `routing`. */
export async function createApplication(deps: ApplicationDeps): Promise<FastifyInstance> {
  const app = fastify({
    logger: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: 256 },
    frameworkErrors: (error, request, reply) => refuse(error, request, reply),
  });
  app.decorateRequest('portal', {
    getter(this: FastifyRequest): PortalRequest {
      if ('portal' in this.raw && this.raw.portal instanceof PortalRequest) return this.raw.portal;
      throw new TailcastError('INTERNAL', 'a request that did not come from the front');
    },
  });
  app.addHook('onRequest', async (request) => admit(deps.gate, request));
  app.addHook('onSend', async ({ portal }, reply) => {
    portal.account.answered(reply.statusCode);
    if (portal.inbound.method === 'GET')
      portal.account.responseBytes = Number(reply.getHeader('content-length') ?? 0);
  });
  app.setErrorHandler(refuse);
  app.setNotFoundHandler(({ portal }) => {
    const isIndex = portal.target.path === `${PORTAL_PATH}/`;
    throw new TailcastError('NOT_FOUND', isIndex ? 'this gateway was built without the page' : undefined);
  });
  addPages(app, deps.playerDirectory);
  registerRecorderProxy(app, deps, ROUTE_METHODS);
  registerAccess(app, deps, ROUTE_METHODS);
  app.route({
    method: ROUTE_METHODS,
    url: `${PORTAL_PATH}/api/v1${RECORDING_ROUTE}/live`,
    config: { isLive: true },
    handler: (request, reply) => relayLiveView(deps, request, reply),
  });
  await app.ready();
  return app;
}

/** Authenticates the caller with the gateway's gate (`proxy/gate`), then checks method and body of the request. */
async function admit(gate: Pick<Gate, 'recognise'>, request: FastifyRequest): Promise<void> {
  const { portal, is404, routeOptions } = request;
  const { inbound, account, signal, target, upgrade } = portal;
  const { isPage = false, isLive = false } = routeOptions.config;
  portal.caller = await gate.recognise(inbound, isPage, signal);
  account.recognised(portal.caller);
  if (is404 || target.rawQuery.length > MAX_QUERY_LENGTH) throw new TailcastError('NOT_FOUND');
  // the router and `canonical-target` must agree on the path, because the path at the recorder is built from the result
  // of `canonical-target`
  const params: readonly unknown[] = Object.values(request.params ?? {});
  if (!params.every((value) => typeof value === 'string' && target.segments.includes(value)))
    throw new TailcastError('INTERNAL', 'the target is ambiguous');
  // `live-view` parses the response heads of upgrades
  if (upgrade !== undefined && isLive) return;
  if (upgrade !== undefined) throw new TailcastError('NOT_FOUND');
  if (!isAllowed(inbound.method, routeOptions.config))
    throw new TailcastError('METHOD_REFUSED', 'recordings can only be read');
  if (portal.hasBody) throw new TailcastError('REQUEST_MALFORMED', 'these requests have no body');
}

function isAllowed(method: string, { isFile, isAction }: FastifyContextConfig): boolean {
  if (method === 'HEAD') return isFile === true;
  return method === 'GET' || (method === 'POST' && isAction === true);
}

/** An error that is not a `TailcastError` becomes an `INTERNAL` without detail. */
function refuse(error: unknown, { portal }: FastifyRequest, reply: FastifyReply): void {
  reply.hijack();
  portal.refuse(error);
}

/** The redirect to the page, the page and its files. */
function addPages(app: FastifyInstance, playerDirectory: string): void {
  app.register(fastifyStatic, {
    root: playerDirectory,
    serve: false,
    suppressWarning: true,
    preCompressed: true,
    cacheControl: false,
    acceptRanges: false,
    lastModified: false,
  });
  app.route({
    method: ROUTE_METHODS,
    url: PORTAL_PATH,
    config: { isPage: true },
    handler: ({ portal }, reply) => {
      const { rawQuery } = portal.target;
      const location = `${PORTAL_PATH}/${rawQuery === '' ? '' : `?${rawQuery}`}`;
      return reply.headers(DATA_HEADERS).header('cache-control', 'no-store').redirect(location, 308);
    },
  });
  for (const [path, name] of [
    ['', 'index.html'],
    ['index.html', 'index.html'],
    ['access.html', 'access.html'],
  ] as const) {
    app.route({
      method: ROUTE_METHODS,
      url: `${PORTAL_PATH}/${path}`,
      config: { isFile: true, isPage: true },
      // no ETag: `@fastify/static` derives an ETag from size and time, which may be equal in two builds
      handler: ({ portal }, reply) =>
        sendFile(portal, reply, name, { cacheControl: 'no-cache', hasTag: false }),
    });
  }
  app.route({
    method: ROUTE_METHODS,
    url: `${PORTAL_PATH}/assets/${ASSET}`,
    config: { isFile: true },
    // the name of an asset changes with its content, so browsers may cache it
    handler: ({ portal }, reply) =>
      sendFile(portal, reply, `assets/${portal.target.segments.at(-1)}`, {
        cacheControl: 'private, max-age=86400, immutable',
        hasTag: true,
      }),
  });
}

function sendFile(
  { inbound }: PortalRequest,
  reply: FastifyReply,
  name: string,
  { cacheControl, hasTag }: { readonly cacheControl: string; readonly hasTag: boolean },
): FastifyReply {
  const [host = ''] = headerLines(inbound.rawHeaders, 'host');
  return reply
    .headers(pageHeaders(host))
    .header('cache-control', cacheControl)
    .sendFile(name, { etag: hasTag });
}
