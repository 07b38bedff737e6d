/**
 * The gateway's portal: recordings under the name that everybody's kubeconfig already holds. A Fastify application
 * (`application`) that never listens: the front hands its requests over here, with a peer that is known.
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
import { asTailcastError } from '../errors.ts';
import { parseTarget } from '../kube/canonical-target.ts';
import type { OwnService } from '../proxy/front/server.ts';
import { Account, type AccountDeps } from '../proxy/gate/account.ts';
import type { Gate } from '../proxy/gate/gate.ts';
import type { Peer } from '../tailnet/identity.ts';
import type { PortalApplication } from './application.ts';
import { portalClient, type PortalClient } from './client.ts';
import { createLiveView } from './live-view.ts';
import type { PageFiles } from './pages.ts';
import { createPlaces } from './places.ts';
import type { RecorderCalls } from './recorder-call.ts';
import type { RecorderProxyDeps } from './recorder-proxy.ts';
import { findRoute, PORTAL_PATH } from './routes.ts';
import type { Turn } from './turn.ts';

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

const PORTAL_LIMITS: PortalLimits = { total: 256, perNode: 32, stallMs: 120_000 };

/** One per gateway. */
export function createPortal(deps: PortalDeps): OwnService {
  const limits: PortalLimits = { ...PORTAL_LIMITS, ...deps.limits };
  const places = createPlaces(limits);
  const live = createLiveView({ ...deps, limits, places });
  let application: Promise<PortalApplication> | undefined;
  // its packages are 12 MB of memory that a gateway need not have before somebody looks at a recording
  const open = async (): Promise<PortalApplication> => {
    const { createApplication } = await import('./application.ts');
    return createApplication({ ...deps, places, stallMs: limits.stallMs });
  };
  const serve = async (
    turn: Turn,
    message: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): Promise<void> => {
    try {
      application ??= open();
      const routes = await application;
      if (!turn.client.signal.aborted) routes.route(turn, message, response);
    } catch (error) {
      turn.account.refused(error);
      turn.client.cut();
    }
  };
  return {
    prefix: PORTAL_PATH,
    request(request, response, peer) {
      void serve(openTurn(deps, request, response, peer), request, response);
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
