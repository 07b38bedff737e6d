/** Which host of the tailnet somebody means: a node, or a Tailscale Service. Pure. */
import { BlockList, isIP } from 'node:net';
import type { TailnetNode, TailnetStatus } from './tailnet-status.ts';

/** A name that the control server publishes beside those of the nodes: Services are among them. */
export interface ExtraRecord {
  /** Without the dot at its end. */
  readonly name: string;
  readonly address: string;
}

export type FoundHost =
  | { readonly kind: 'node' | 'service'; readonly name: string }
  /** A name without anybody who answers for its address. */
  | { readonly kind: 'unreachable'; readonly name: string }
  | { readonly kind: 'unknown' };

/**
 * Nodes come first, then extra records. A record counts only when a peer takes its address: a Service without nodes
 * that advertise it is a name and nothing else.
 *
 * @param wanted a single label, a full name or an address.
 */
export function findHost(
  wanted: string,
  { self, peers }: Pick<TailnetStatus, 'self' | 'peers'>,
  records: readonly ExtraRecord[],
): FoundHost {
  const name = wanted.toLowerCase().replace(/\.$/, '');
  const byAddress = isIP(name) !== 0;
  const matches = (candidate: string, addresses: readonly string[]): boolean =>
    byAddress ? addresses.includes(name) : candidate === name || candidate.startsWith(`${name}.`);
  const nodes = self === undefined ? peers : [self, ...peers];
  const node = nodes.find((one) => matches(one.name, one.addresses));
  if (node !== undefined) return { kind: 'node', name: node.name };
  const named = records.filter((record) => matches(record.name, [record.address]));
  const [first] = named;
  if (first === undefined) return { kind: 'unknown' };
  const reached = named.find(({ address }) => nodes.some((one) => takes(one, address)));
  return reached === undefined
    ? { kind: 'unreachable', name: first.name }
    : { kind: 'service', name: reached.name };
}

/** Whether packets to an address go to this node. */
function takes({ routes }: TailnetNode, address: string): boolean {
  const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
  const list = new BlockList();
  for (const route of routes) {
    const [network = '', bits = ''] = route.split('/');
    const version = isIP(network);
    if (version === 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > (version === 6 ? 128 : 32)) continue;
    // A default route is an exit node's; it does not answer for a Service.
    if (Number(bits) > 0) list.addSubnet(network, Number(bits), version === 6 ? 'ipv6' : 'ipv4');
  }
  return list.check(address, family);
}
