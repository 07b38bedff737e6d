/**
 * The gateway's portal: shows recordings under the hostname that kubeconfigs already contain.
 *
 * ``` browser ─► listener ─► front ─► portal ─┬─ page and its files: from disk
 *                                         ├─ data ─────────► recorder (GET), body streamed └─ live ─────────► recorder
 *                                         (WebSocket), bytes relayed
 * ```
 *
 * The gateway's front server (`proxy/front`) passes requests below `/-/recordings` to this module. The module parses
 * each target once (`kube/canonical-target`) and rejects every target that is not canonical. Only then does Fastify's
 * router see the request (`application`). The recorder gets the viewer's name, decides about access, and logs the
 * access.
 */
import { ServerResponse, type IncomingMessage } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import type { FastifyInstance } from 'fastify';
import { destroyAfter } from '../async/deadline.ts';
import type { OwnService } from '../proxy/front/server.ts';
import type { AccountDeps } from '../proxy/gate/account.ts';
import { prepareSocket } from '../proxy/session/upgrade-http.ts';
import type { ApplicationDeps } from './application.ts';
import { PORTAL_PATH } from './page-headers.ts';
import { createPlaces } from './places.ts';
import { PortalRequest } from './portal-request.ts';

export interface PortalDeps extends AccountDeps, Omit<ApplicationDeps, 'places' | 'stallMs'> {
  readonly limits?: Partial<PortalLimits>;
}

export interface PortalLimits {
  /**
   * Maximum in-flight requests to recorders, including live views. One tailnet node may use at most half of the slots
   * that other nodes leave free.
   */
  readonly total: number;
  /** Maximum in-flight requests of one tailnet node. */
  readonly perNode: number;
  /**
   * Maximum time without progress of a body or a live view. A recorder's live view sends data at least every 30 s.
   */
  readonly stallMs: number;
}

/** Time for the client of a refused upgrade to close the connection, in milliseconds. */
const LINGER_MS = 1000;
const PORTAL_LIMITS: PortalLimits = { total: 256, perNode: 32, stallMs: 120_000 };

/** Entry point of Fastify. It accepts requests of both HTTP versions, although its type allows only one version. */
interface Router {
  routing(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): void;
}

/** Creates the portal of a gateway. */
export function createPortal(deps: PortalDeps): OwnService {
  const { stallMs, ...limits }: PortalLimits = { ...PORTAL_LIMITS, ...deps.limits };
  const places = createPlaces(limits);
  let application: Promise<FastifyInstance> | undefined;
  // Fastify and its plugins need 12 MB of memory, so a gateway loads them at its first portal request
  const open = async (): Promise<FastifyInstance> => {
    const { createApplication } = await import('./application.ts');
    return createApplication({ ...deps, places, stallMs });
  };
  const serve = async (
    portal: PortalRequest,
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): Promise<void> => {
    try {
      portal.readTarget();
      application ??= open();
      const router: Router = await application;
      if (!portal.signal.aborted) router.routing(Object.assign(request, { portal }), response);
    } catch (error) {
      portal.refuse(error);
    }
  };
  return {
    prefix: PORTAL_PATH,
    request(request, response, peer) {
      void serve(new PortalRequest(request, response, { peer }, deps), request, response);
    },
    upgrade(request, socket, head, peer) {
      prepareSocket(socket);
      socket.on('error', () => {}); // The 'close' event follows.
      // Used only for refusals, because Node creates no response object for an upgrade.
      const response = new ServerResponse(request);
      response.shouldKeepAlive = false;
      response.assignSocket(request.socket);
      response.once('finish', () => {
        socket.end();
        // reads on, because a paused socket would not notice that the client closed the connection
        socket.resume();
        destroyAfter(socket, LINGER_MS);
      });
      const upgrade = { socket, head };
      void serve(new PortalRequest(request, response, { peer, upgrade }, deps), request, response);
    },
  };
}
