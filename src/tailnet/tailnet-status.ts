/** Fields of `GET /localapi/v0/status` that tailcast uses. Pure. */
import { z } from 'zod';
import { TailcastError } from '../errors.ts';

export interface TailnetNode {
  /** Stable node ID; empty if tailscaled does not report it. */
  readonly nodeId: string;
  /** MagicDNS name without the trailing dot. */
  readonly name: string;
  readonly addresses: readonly string[];
  readonly tags: readonly string[];
  /** Networks that this node routes, including its own addresses, as `address/bits`. */
  readonly routes: readonly string[];
  readonly online: boolean;
}

export interface TailnetStatus {
  readonly version: string;
  /**
   * State of tailscaled: `Running` in normal operation; else `NoState`, `NeedsLogin`, `NeedsMachineAuth`, `Stopped` or
   * `Starting`.
   */
  readonly backendState: string;
  /** Names for which this node may get certificates. Empty if the tailnet issues no certificates. */
  readonly certificateDomains: readonly string[];
  readonly magicDnsSuffix: string;
  readonly health: readonly string[];
  readonly self: TailnetNode | undefined;
  readonly peers: readonly TailnetNode[];
}

const texts = z.array(z.string()).nullable().optional();

const NODE = z.object({
  ID: z.string().optional(),
  DNSName: z.string().optional(),
  TailscaleIPs: texts,
  Tags: texts,
  AllowedIPs: texts,
  Online: z.boolean().optional(),
});

const STATUS = z.object({
  Version: z.string().optional(),
  BackendState: z.string(),
  CertDomains: texts,
  Health: texts,
  CurrentTailnet: z.object({ MagicDNSSuffix: z.string().optional() }).nullable().optional(),
  Self: NODE.nullable().optional(),
  Peer: z.record(z.string(), NODE).nullable().optional(),
});

/** @throws TailcastError `TAILNET_UNAVAILABLE` if the daemon's response is not a status */
export function parseTailnetStatus(json: unknown): TailnetStatus {
  const result = STATUS.safeParse(json);
  if (!result.success) {
    const at = result.error.issues[0]?.path.join('.') ?? '';
    throw new TailcastError('TAILNET_UNAVAILABLE', `its status was not understood at ${at}`, {
      cause: result.error,
    });
  }
  const status = result.data;
  return {
    version: status.Version ?? '',
    backendState: status.BackendState,
    certificateDomains: (status.CertDomains ?? []).map(withoutDot),
    magicDnsSuffix: status.CurrentTailnet?.MagicDNSSuffix ?? '',
    health: status.Health ?? [],
    self: status.Self === null || status.Self === undefined ? undefined : toNode(status.Self),
    peers: Object.values(status.Peer ?? {}).map(toNode),
  };
}

function toNode(node: z.infer<typeof NODE>): TailnetNode {
  return {
    nodeId: node.ID ?? '',
    name: withoutDot(node.DNSName ?? ''),
    addresses: node.TailscaleIPs ?? [],
    tags: node.Tags ?? [],
    routes: node.AllowedIPs ?? [],
    online: node.Online ?? false,
  };
}

function withoutDot(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
