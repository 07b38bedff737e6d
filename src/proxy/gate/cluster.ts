/**
 * The clusters of one gateway, and the choice of the cluster for a request. Pure.
 *
 * A request may name its cluster in five ways: by the listener that accepted it, by the address that the client
 * dialled, by SNI, by `Host`, and by the path `/clusters/<name>/`. All of them must agree. There is no default
 * cluster: a request that names none is refused.
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

/** The connections to the API server of a cluster, and their limits. */
export interface ClusterUpstream {
  readonly basePath: string;
  readonly pool: UpstreamPool;
  readonly connect: () => Promise<Duplex>;
  /** An object of the class `AccountRefusals` (`account-refusals.ts`). */
  readonly accountRefusals: {
    find(
      admission: { readonly impersonation: ImpersonationTarget | undefined; readonly info: RequestInfo },
      status: number,
      headers: readonly string[],
    ): Promise<TailcastError | undefined> | undefined;
  };
  readonly credentialRefused: () => void;
  /**
   * Counts a request of the cluster.
   * @returns a function that ends the count
   * @throws TailcastError `OVERLOADED`
   */
  enter(): () => void;
}

/** One cluster. Frozen: an admitted request keeps its cluster until it ends, whatever a reload changes. */
export interface GatewayCluster extends ClusterScope {
  /** Equal for two versions of the same cluster, different for two clusters of one name. */
  readonly id: string;
  /** Host names that belong to the cluster, in lower case. */
  readonly hosts: readonly string[];
  /** Addresses that belong to the cluster. */
  readonly addresses: readonly string[];
  /** Tailscale Service whose grants count, `svc:NAME`. Default: the grants of the node. */
  readonly service: string | undefined;
  /** True if paths of the API server begin with `/clusters/<workspace>`. */
  readonly kcp: boolean;
  readonly upstream: ClusterUpstream;
}

/** All clusters at one moment. A reload replaces the complete object. */
export interface ClusterSnapshot<Entry extends GatewayCluster = GatewayCluster> {
  readonly byName: ReadonlyMap<string, Entry>;
  readonly byHost: ReadonlyMap<string, Entry>;
  readonly byAddress: ReadonlyMap<string, Entry>;
}

/** @throws TailcastError `CONFIG_INVALID` if two clusters share a name, a host or an address */
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

/** Result of the choice. `cluster` is undefined if the named cluster does not exist, or the request names none. */
export interface ClusterChoice<Entry extends GatewayCluster> {
  readonly cluster: Entry | undefined;
  /** Name in the path, if there is one. */
  readonly named: string | undefined;
  /** The request target for the cluster, without the name. */
  readonly target: string;
}

/** The name is not decoded: an encoded spelling is not a cluster. */
const MOUNT = /^\/clusters\/([^/?]*)(?=[/?]|$)/;

/**
 * Chooses the cluster of a request.
 *
 * @param host value of the only `Host` header, or of `:authority`
 * @throws TailcastError `CLUSTER_MISMATCH` if two names of the request do not agree
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

/** Returns the cluster of a connection and its host name, without the path. */
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
  // an address in Host names no cluster, so that clients may dial an address with tls-server-name
  if (serverName !== undefined && isIP(hostName) === 0 && bySni !== named) mismatch();
  const found = [byName.get(listener), byAddress.get(destination), byAddress.get(hostName), bySni, named];
  const [one, ...others] = found.filter((entry) => entry !== undefined);
  if (others.some((entry) => entry !== one)) mismatch();
  return one;
}

function mismatch(): never {
  throw new TailcastError('CLUSTER_MISMATCH');
}

/** True if the target begins with a name of a cluster. */
export function isMounted(target: string): boolean {
  return MOUNT.test(target);
}
