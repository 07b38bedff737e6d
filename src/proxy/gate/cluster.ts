/**
 * The clusters of one gateway, and the choice of the cluster for a request. Pure.
 *
 * A request may name its cluster in five ways: by the listener that accepted it, by the address that the client
 * dialled, by SNI, by `Host`, and by the path `/clusters/<name>/`. All names in one request must agree. There is no
 * default cluster: the gateway refuses a request that names no cluster.
 */
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { ClusterScope } from '../../tailnet/capabilities.ts';
import type { Peer } from '../../tailnet/identity.ts';
import type { UpstreamPool } from '../upstream/upstream-pool.ts';
import { withoutPort } from './browser-guard.ts';

/** Connections to the API server of one cluster, and limits of the requests to this cluster. */
export interface ClusterUpstream {
  readonly basePath: string;
  readonly pool: UpstreamPool;
  readonly connect: () => Promise<Duplex>;
  /** Implemented by `AccountRefusals` (`account-refusals.ts`), which this file cannot import. */
  readonly accountRefusals: {
    find(
      admission: { readonly impersonation: ImpersonationTarget | undefined; readonly info: RequestInfo },
      status: number,
      headers: readonly string[],
    ): Promise<TailcastError | undefined> | undefined;
  };
  readonly credentialRefused: () => void;
  /**
   * Counts a request to the cluster.
   * @returns a function that ends the count
   * @throws TailcastError `OVERLOADED`
   */
  enter(): () => void;
}

/**
 * One cluster. The object is frozen. An admitted request uses the same object until the request ends, also after a
 * reload.
 */
export interface GatewayCluster extends ClusterScope {
  /**
   * Id of the cluster. It stays the same when a reload changes the cluster. A new cluster with the same name gets
   * another id.
   */
  readonly id: string;
  /** Host names that belong to the cluster, in lower case. */
  readonly hosts: readonly string[];
  /** Addresses that belong to the cluster. */
  readonly addresses: readonly string[];
  /** Tailscale Service (`svc:NAME`) whose grants apply. Default: the grants of the node apply. */
  readonly service: string | undefined;
  /** True if paths of the API server begin with `/clusters/<workspace>`. */
  readonly kcp: boolean;
  readonly upstream: ClusterUpstream;
}

/** All clusters of the gateway. A reload replaces this object. */
export interface ClusterSnapshot<Entry extends GatewayCluster = GatewayCluster> {
  readonly byName: ReadonlyMap<string, Entry>;
  readonly byHost: ReadonlyMap<string, Entry>;
  readonly byAddress: ReadonlyMap<string, Entry>;
}

/** @throws TailcastError `CONFIG_INVALID` if two clusters have the same name, host or address */
export function createSnapshot<Entry extends GatewayCluster>(
  entries: readonly Entry[],
): ClusterSnapshot<Entry> {
  const index = (what: string, keysOf: (entry: Entry) => readonly string[]): Map<string, Entry> => {
    const found = new Map<string, Entry>();
    for (const entry of entries) {
      for (const key of keysOf(entry)) {
        const other = found.get(key);
        if (other !== undefined) {
          const detail = `clusters ${other.name} and ${entry.name} share the ${what} ${key}`;
          throw new TailcastError('CONFIG_INVALID', detail);
        }
        found.set(key, entry);
      }
    }
    return found;
  };
  return Object.freeze({
    byName: index('name', ({ name }) => [name]),
    byHost: index('host name', ({ hosts }) => hosts),
    byAddress: index('address', ({ addresses }) => addresses),
  });
}

/**
 * Chosen cluster of a request. `cluster` is undefined if the named cluster does not exist, or if the request names no
 * cluster.
 */
export interface ClusterChoice<Entry extends GatewayCluster> {
  readonly cluster: Entry | undefined;
  /**
   * Name that the request gives for its cluster. This is the name in the path, or the name of the listener's cluster if
   * that cluster no longer exists. Otherwise undefined.
   */
  readonly named: string | undefined;
  /** The request target for the API server, without `/clusters/<name>`. */
  readonly target: string;
}

/**
 * Prefix `/clusters/<name>` of a target. The name is not percent-decoded, so an encoded name matches no
 * cluster.
 */
const MOUNT = /^\/clusters\/([^/?]*)(?=[/?]|$)/;

/**
 * Chooses the cluster of a request.
 *
 * @param host value of the only `Host` header, or of `:authority`
 * @throws TailcastError `CLUSTER_MISMATCH` if the request names two different clusters
 */
export function chooseCluster<Entry extends GatewayCluster>(
  snapshot: ClusterSnapshot<Entry>,
  request: { readonly target: string; readonly host: string; readonly peer: Peer },
): ClusterChoice<Entry> {
  const { peer, target } = request;
  if (peer.listener !== undefined && !snapshot.byName.has(peer.listener)) {
    return { cluster: undefined, named: peer.listener, target };
  }
  const own = ownCluster(snapshot, withoutPort(request.host.toLowerCase()), peer);
  if (own?.kcp === true) return { cluster: own, named: undefined, target };
  const mount = MOUNT.exec(target);
  if (mount === null) return { cluster: own, named: undefined, target };
  const [prefix, named = ''] = mount;
  if (own !== undefined && own.name !== named) mismatch();
  const rest = target.slice(prefix.length);
  return {
    cluster: own ?? snapshot.byName.get(named),
    named,
    target: rest.startsWith('/') ? rest : `/${rest}`,
  };
}

/** Returns the cluster that the connection and the host name identify. Ignores the path. */
function ownCluster<Entry extends GatewayCluster>(
  { byName, byHost, byAddress }: ClusterSnapshot<Entry>,
  hostName: string,
  { listener = '', destination = '', serverName, refusesHost }: Peer,
): Entry | undefined {
  const named = byHost.get(hostName);
  if (named !== undefined && refusesHost?.(hostName) === true) {
    throw new TailcastError('CLUSTER_MISMATCH', `the certificate of the gateway does not cover ${hostName}`);
  }
  const bySni = byHost.get(serverName ?? '');
  // SNI is compared with Host only if Host is a name, because clients may connect to an address and set
  // tls-server-name
  if (serverName !== undefined && isIP(hostName) === 0 && bySni !== named) mismatch();
  const found = [byName.get(listener), byAddress.get(destination), byAddress.get(hostName), bySni, named];
  const [one, ...others] = found.filter((entry) => entry !== undefined);
  if (others.some((entry) => entry !== one)) mismatch();
  return one;
}

function mismatch(): never {
  throw new TailcastError('CLUSTER_MISMATCH');
}

/** True if the target begins with `/clusters/<name>`. */
export function isMounted(target: string): boolean {
  return MOUNT.test(target);
}
