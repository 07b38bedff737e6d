/** Creates the gate of a gateway from the settings and the policy. */
import { randomUUID } from 'node:crypto';
import type { GatewayConfig } from '../config/gateway.ts';
import type { ApiServer } from '../kube/api-server.ts';
import type { GatewayCluster } from '../proxy/gate/cluster.ts';
import type { Elevations } from '../proxy/gate/elevation.ts';
import { createGate, type Gate } from '../proxy/gate/gate.ts';
import { callerName } from '../tailnet/identity.ts';
import { openAccessReviews } from './access-review.ts';
import type { GatewayParts } from './gateway-parts.ts';

/** First segments of paths that k3s serves on the port of the API server for its own nodes. */
const K3S_SEGMENTS: ReadonlySet<string> = new Set(['v1-k3s', 'cacerts', 'static']);

/** Creates the gate of a gateway, or of one of its clusters. */
export function openGate(
  parts: Pick<GatewayParts, 'config' | 'policy' | 'tailnet' | 'log' | 'callerToken'> & {
    /** Undefined if the gate is for requests that the gateway itself serves, such as the portal. */
    readonly apiServer: ApiServer | undefined;
    /** The cluster of this gate; undefined if the gateway serves only one cluster. */
    readonly cluster?: GatewayCluster;
    /** Additional rights that callers can request; undefined in `noauth` mode. */
    readonly elevations: Elevations | undefined;
  },
): Gate {
  const { config, policy, apiServer, cluster, tailnet, log, callerToken, elevations } = parts;
  return createGate({
    mode: config.mode,
    callerToken,
    policy,
    auditExtras: config.auditExtras || apiServer?.requestHeader === true,
    requestHeader: apiServer?.requestHeader === true,
    identities: tailnet.identities,
    upstreamHost: apiServer?.hostHeader ?? '',
    authorization: async () => apiServer?.authorization(),
    hostNames: hostNamesOf(config, cluster),
    ...(cluster === undefined ? {} : { cluster }),
    dashboardOrigins: new Set(config.dashboardOrigins),
    claimableGroups: config.claimableGroups,
    ...(config.k3s ? { refusedSegments: K3S_SEGMENTS } : {}),
    elevations,
    reviews: apiServer && openAccessReviews(config, apiServer),
    onReservedGroup: (group, identity) => {
      const remedy = 'where that is not meant: name what may be claimed in claimableGroups, or fix the grant';
      const user = callerName(identity);
      log.warn({ group, user, remedy }, 'a grant gives a group to which Kubernetes itself gives rights');
    },
    nowMs: () => performance.now(),
    createId: randomUUID,
  });
}

/**
 * Accepted host names; an empty set stands for all names. With a static identity, every connection has the same
 * identity. Only some host names are therefore accepted, so that a web page cannot reach the gateway through a host
 * name that the page controls (DNS rebinding).
 */
function hostNamesOf(
  { hostNames, identity, tlsNames, listen: { host } }: GatewayConfig,
  cluster: GatewayCluster | undefined,
): ReadonlySet<string> {
  const local = identity === 'static' ? ['localhost', '127.0.0.1', '::1', host, ...tlsNames] : [];
  const names = hostNames.length > 0 ? hostNames : local;
  const own = names.length === 0 ? [] : (cluster?.hosts ?? []);
  return new Set([...names, ...own].map((name) => name.toLowerCase()));
}
