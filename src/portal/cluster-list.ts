/** `GET /-/clusters`: the clusters for which the caller has a rule, for `tailcast kubeconfig --all`. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import { errorText, TailcastError } from '../errors.ts';
import type { OwnService } from '../proxy/front/server.ts';
import type { AccountDeps } from '../proxy/gate/account.ts';
import type { GatedCluster } from '../proxy/gate/cluster-gate.ts';
import type { Caller, Gate } from '../proxy/gate/gate.ts';
import type { Peer } from '../tailnet/identity.ts';
import { DATA_HEADERS } from './page-headers.ts';
import { PortalRequest } from './portal-request.ts';

const CLUSTERS_PATH = '/-/clusters';

export interface ClusterListDeps extends AccountDeps {
  readonly gate: Pick<Gate, 'recognise'>;
  readonly clusters: () => Iterable<GatedCluster>;
}

export function createClusterList(deps: ClusterListDeps): OwnService {
  const answer = async (portal: PortalRequest): Promise<void> => {
    portal.readTarget();
    const { inbound, signal, target } = portal;
    const caller = await deps.gate.recognise(inbound, false, signal);
    portal.account.recognised(caller);
    if (target.path !== CLUSTERS_PATH) throw new TailcastError('NOT_FOUND');
    if (inbound.method !== 'GET' || portal.hasBody) {
      throw new TailcastError('METHOD_REFUSED', 'the list of clusters can only be read');
    }
    const clusters = [];
    // sequential, because each check may need a request to tailscaled
    for (const cluster of deps.clusters()) {
      const found = await standingIn(cluster, portal);
      if (found === undefined) continue;
      const { name, hosts } = cluster;
      clusters.push({ name, hosts, path: `/clusters/${name}`, groups: found.impersonation?.groups ?? [] });
    }
    const body = `${JSON.stringify({ clusters })}\n`;
    const length = String(Buffer.byteLength(body));
    portal.account.answered(200);
    portal
      .begin(200, {
        ...DATA_HEADERS,
        'cache-control': 'no-store',
        'content-type': 'application/json',
        'content-length': length,
      })
      .end(body);
  };
  const serve = (
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
    peer: Peer,
  ): void => {
    const portal = new PortalRequest(request, response, { peer }, deps);
    answer(portal).catch((error: unknown) => portal.refuse(error));
  };
  return {
    prefix: CLUSTERS_PATH,
    request: serve,
    upgrade: (_, socket) => void socket.destroy(),
  };
}

/** Error codes for a caller without a rule, and for a request to the host name of another cluster. */
const WITHOUT_RULE: ReadonlySet<string> = new Set(['CLUSTER_REFUSED', 'IDENTITY_UNKNOWN', 'HEADER_REFUSED']);

/** Returns the caller in a cluster, or undefined if the caller has no rule. @throws all other errors */
export async function standingIn(
  { name, gate }: GatedCluster,
  { inbound, signal }: PortalRequest,
): Promise<Caller | undefined> {
  try {
    return await gate.recognise(inbound, false, signal);
  } catch (error) {
    if (!(error instanceof TailcastError)) throw error;
    if (WITHOUT_RULE.has(error.code)) return undefined;
    throw new TailcastError(error.code, `${name}: ${errorText(error)}`, { cause: error });
  }
}
