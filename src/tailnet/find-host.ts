/** Resolves a name or address to a tailnet host: a node, or a Tailscale Service. Pure. */
import { BlockList, isIP } from 'node:net';
import type { TailnetNode, TailnetStatus } from './tailnet-status.ts';

/**
 * DNS record that the control server publishes in addition to the records of nodes, for example for a Tailscale
 * Service.
 */
export interface ExtraRecord {
  /** DNS name without the final dot. */
  readonly name: string;
  readonly address: string;
}

export type FoundHost =
  | { readonly kind: 'node' | 'service'; readonly name: string }
  /** Result for a record with an address for which no node has a route. */
  | { readonly kind: 'unreachable'; readonly name: string }
  | { readonly kind: 'unknown' };

/**
 * Finds a host; nodes take precedence over extra records. A record is used only if a node has a route for its address.
 * An address without a route belongs to a Service that no node advertises, so the Service is not reachable.
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
  const reached = named.find(({ address }) => nodes.some((one) => routesTo(one, address)));
  return reached === undefined
    ? { kind: 'unreachable', name: first.name }
    : { kind: 'service', name: reached.name };
}

/** True if packets for an address go to this node. */
function routesTo({ routes }: TailnetNode, address: string): boolean {
  const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
  const list = new BlockList();
  for (const route of routes) {
    const [network = '', bits = ''] = route.split('/');
    const version = isIP(network);
    if (version === 0 || !/^\d{1,3}$/.test(bits) || Number(bits) > (version === 6 ? 128 : 32)) continue;
    // Ignores default routes, because they belong to exit nodes, which do not serve a Service.
    if (Number(bits) > 0) list.addSubnet(network, Number(bits), version === 6 ? 'ipv6' : 'ipv4');
  }
  return list.check(address, family);
}
