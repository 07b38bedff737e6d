/**
 * Who is calling, as the tailnet says it. Pure types: how an identity is obtained is `whois.ts` (tailscaled's LocalAPI)
 * and `static-identity.ts` (demo and tests).
 */

/** Capability name → the raw JSON rules granted under it, in the order the control server sent them. */
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

/** A node that belongs to a person. */
export interface UserIdentity extends NodeIdentity {
  readonly kind: 'user';
  /** Numeric user ID of the node's owner; 64 bits, hence not a number. */
  readonly userId: bigint;
  /** Login name, e.g. `alice@example.com`. Never empty, never the `tagged-devices` placeholder. */
  readonly login: string;
  readonly displayName: string;
}

/** A node that acts for a role. */
export interface TaggedIdentity extends NodeIdentity {
  readonly kind: 'tagged';
  /** At least one, each `tag:…`. */
  readonly tags: readonly string[];
}

export type Identity = UserIdentity | TaggedIdentity;

/** The far end of an accepted connection. */
export interface Peer {
  /** IP address without brackets or zone. */
  readonly address: string;
  readonly port: number;
  /** `proxy-protocol` when a PROXY header named the peer instead of the socket. */
  readonly source: 'socket' | 'proxy-protocol';
}

/** Where identities come from. */
export interface IdentitySource {
  /**
   * @throws TailcastError `IDENTITY_UNKNOWN`, `IDENTITY_UNAVAILABLE` or `IDENTITY_MALFORMED`; a failure is never cached.
   */
  whois(peer: Peer, signal: AbortSignal): Promise<Identity>;
}

/** What a caller is called in logs, events and recordings: the login name of a person, the node name of a tagged node. */
export function callerName(identity: Identity): string {
  return identity.kind === 'user' ? identity.login : identity.nodeName;
}
