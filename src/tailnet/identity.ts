/**
 * The tailnet identity of a caller. Pure types; `whois.ts` (tailscaled's LocalAPI) and `static-identity.ts` (demo
 * and tests) provide identities.
 */

/** JSON rules, keyed by the name of the capability, in the order of the control server. */
export type CapabilityMap = ReadonlyMap<string, readonly unknown[]>;

interface NodeIdentity {
  /** Stable node ID, e.g. `nABC123CNTRL`. Never empty. */
  readonly nodeId: string;
  /** Fully qualified MagicDNS name without the trailing dot. Never empty. */
  readonly nodeName: string;
  /** Tailnet addresses of the node, without prefix length. */
  readonly addresses: readonly string[];
  readonly capabilities: CapabilityMap;
}

/** Identity of a node that belongs to a user. */
export interface UserIdentity extends NodeIdentity {
  readonly kind: 'user';
  /** Numeric user ID of the node's owner; a bigint because it has 64 bits. */
  readonly userId: bigint;
  /** Login name, e.g. `alice@example.com`. The name is never empty, and never the placeholder `tagged-devices`. */
  readonly login: string;
  readonly displayName: string;
}

/** Identity of a tagged node. */
export interface TaggedIdentity extends NodeIdentity {
  readonly kind: 'tagged';
  /** Tags of the node, each `tag:…`. At least one. */
  readonly tags: readonly string[];
}

export type Identity = UserIdentity | TaggedIdentity;

/** Remote end of an accepted connection. */
export interface Peer {
  /** IP address without brackets or zone. */
  readonly address: string;
  readonly port: number;
  /** Source from which the peer's address was read: the socket, or a PROXY header. */
  readonly source: 'socket' | 'proxy-protocol';
  /** Canonical server name (SNI) of the TLS handshake. Set only if the gateway serves several clusters. */
  readonly serverName?: string | undefined;
  /**
   * Set for a connection without SNI. Returns true if the certificate of this connection does not cover `hostName`, the
   * host name of a cluster.
   */
  readonly refusesHost?: ((hostName: string) => boolean) | undefined;
  /** Address to which the client connected. Set only if the gateway serves several clusters. */
  readonly destination?: string | undefined;
  /** Cluster of the listener, if the listener serves only one cluster. */
  readonly listener?: string | undefined;
}

/** Source of identities. */
export interface IdentitySource {
  /**
   * @throws TailcastError `IDENTITY_UNKNOWN`, `IDENTITY_UNAVAILABLE` or `IDENTITY_MALFORMED`; failures are never
   * cached.
   * @param service Tailscale Service (`svc:NAME`) whose grants apply. Default: the grants for this node apply
   */
  whois(peer: Peer, signal: AbortSignal, service?: string): Promise<Identity>;
}

/**
 * Returns the name of a caller in logs, events and recordings: the login name of a user, or the node name of a tagged
 * node.
 */
export function callerName(identity: Identity): string {
  return identity.kind === 'user' ? identity.login : identity.nodeName;
}
