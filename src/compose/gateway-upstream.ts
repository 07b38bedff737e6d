/**
 * Opens the API server and the gate of a gateway; with the setting `clusters`, one API server and one gate per cluster.
 */
import type { GatewayConfig } from '../config/gateway.ts';
import { errorText, TailcastError } from '../errors.ts';
import {
  apiServerOptions,
  createApiServer,
  type ApiServer,
  type ApiServerOptions,
} from '../kube/api-server.ts';
import type { ReadinessCheck } from '../observe/ops-server.ts';
import { createClusterGate } from '../proxy/gate/cluster-gate.ts';
import type { ClusterUpstream } from '../proxy/gate/cluster.ts';
import type { Elevations } from '../proxy/gate/elevation.ts';
import type { Gate } from '../proxy/gate/gate.ts';
import { createUpstreamConnector } from '../proxy/upstream/upstream-connect.ts';
import { DEFAULT_POOL_LIMITS, UpstreamPool } from '../proxy/upstream/upstream-pool.ts';
import { assertServiceWhois, type LocalApi } from '../tailnet/local-api.ts';
import { openAccountRefusals } from './account-refusals.ts';
import { openClusters, type Clusters } from './clusters.ts';
import { openGate } from './gateway-gate.ts';
import type { GatewayParts } from './gateway-parts.ts';
import type { Tailnet } from './tailnet.ts';

/** Interval of the checks for new certificates, in milliseconds. */
const FOLLOW_EVERY_MS = 1000;

export interface GatewayUpstream extends Omit<ClusterUpstream, 'enter'> {
  readonly gate: Gate;
  readonly check: ReadinessCheck;
  /** Undefined if the gateway serves only one cluster. */
  readonly clusters: Clusters | undefined;
  describe(): string;
}

export interface UpstreamParts extends GatewayParts {
  /** Additional rights that callers can request; undefined in `noauth` mode. */
  readonly elevations: Elevations | undefined;
}

/** @throws TailcastError `CONFIG_INVALID` */
export async function openUpstream(parts: UpstreamParts): Promise<GatewayUpstream> {
  return parts.config.clusters === undefined
    ? openOnlyCluster(parts)
    : openSeveral(parts, parts.config.clusters);
}

async function openOnlyCluster(parts: UpstreamParts): Promise<GatewayUpstream> {
  const { config, environment, log, signal } = parts;
  const apiServer = await openApiServer(config, environment, {
    // In noauth mode, clients send their own credentials. With a client certificate of the gateway, an API server
    // would ignore these credentials.
    anonymous: config.mode === 'noauth',
    onUnusable: (error) =>
      log.error({ error: errorText(error) }, 'replaced certificates cannot be used, the last ones stay'),
  });
  // In noauth mode, and before the first request, no other code checks for new certificates.
  const following = setInterval(() => void apiServer.followAuthorities(), FOLLOW_EVERY_MS);
  signal.addEventListener('abort', () => clearInterval(following), { once: true });
  const connector = createUpstreamConnector(apiServer);
  return {
    gate: openGate({ ...parts, apiServer }),
    basePath: apiServer.basePath,
    pool: new UpstreamPool(connector, DEFAULT_POOL_LIMITS, () => performance.now()),
    connect: () => connector.connectStream(),
    accountRefusals: openAccountRefusals(config, apiServer),
    credentialRefused: () => apiServer.refused(),
    check: { name: 'api server', check: async () => void (await connector.connect()).destroy() },
    clusters: undefined,
    describe: () => apiServer.describe(),
  };
}

/**
 * Opens several clusters. Each request uses the upstream of its own cluster, so the gateway's general upstream refuses
 * connections.
 */
async function openSeveral(parts: UpstreamParts, path: string): Promise<GatewayUpstream> {
  const { config, environment, tailnet, limits, signal } = parts;
  const clusters = await openClusters({
    ...parts,
    path,
    maxRequests: Math.ceil(limits.requests / 2),
    managementServer: () => openApiServer(config, environment),
    ownHosts: () => ownHosts(config, tailnet.localApi, signal),
    openGate: (apiServer, cluster) => openGate({ ...parts, apiServer, cluster }),
  });
  await assertServices(clusters, tailnet, signal);
  const refuse = (): Promise<never> => Promise.reject(new TailcastError('CLUSTER_MISSING'));
  return {
    gate: createClusterGate({ current: clusters.current, own: openGate({ ...parts, apiServer: undefined }) }),
    basePath: '',
    pool: new UpstreamPool({ connect: refuse, credentials: {} }, DEFAULT_POOL_LIMITS, () =>
      performance.now(),
    ),
    connect: refuse,
    accountRefusals: { find: () => undefined },
    credentialRefused: () => {},
    check: clusters.check,
    clusters,
    describe: () => [...clusters.current().byName.keys()].join(', '),
  };
}

/** Returns the host names of the gateway in lower case: the names in the settings and the name of its tailnet node. */
export async function ownHosts(
  { hostNames, listen: { host } }: GatewayConfig,
  localApi: LocalApi | undefined,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const node = (await localApi?.status(signal, { peers: false }))?.self?.name ?? '';
  const [label = ''] = node.split('.', 1);
  return new Set(['localhost', host, node, label, ...hostNames].map((name) => name.toLowerCase()));
}

/** @throws TailcastError `CONFIG_INVALID` if this tailscaled cannot return the grants of Tailscale Services */
async function assertServices({ file }: Clusters, { localApi }: Tailnet, signal: AbortSignal): Promise<void> {
  const named = [...file.clusters, ...file.discover].find(({ service }) => service !== undefined);
  if (named === undefined) return;
  if (localApi === undefined) {
    throw new TailcastError('CONFIG_INVALID', 'clusters with a service need identity=tailscale');
  }
  assertServiceWhois((await localApi.status(signal, { peers: false })).version);
}

/**
 * Reads address and credentials of the API server in the settings: from a kubeconfig, or from the pod's service
 * account.
 */
export async function openApiServer(
  config: Pick<GatewayConfig, 'kubeconfig' | 'context'>,
  environment: ReadonlyMap<string, string>,
  options: Pick<ApiServerOptions, 'anonymous' | 'onUnusable'> = {},
): Promise<ApiServer> {
  return createApiServer({
    ...apiServerOptions(config, environment),
    ...options,
    now: () => performance.now(),
    wallClock: Date.now,
  });
}
