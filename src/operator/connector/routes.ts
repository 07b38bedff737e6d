/** The routes of a Connector: which it asks for, and what is wrong with them. Pure. */
import { isIP } from 'node:net';
import type { Connector } from './resource.ts';

/** The two routes that make a node an exit node. */
const EXIT_ROUTES = ['0.0.0.0/0', '::/0'] as const;

/** Every route that its nodes offer, sorted and without repetitions. */
export function routesOf({ spec }: Connector): readonly string[] {
  const routes = [
    ...(spec.subnetRouter?.advertiseRoutes ?? []),
    ...(spec.appConnector?.routes ?? []),
    ...(spec.exitNode ? EXIT_ROUTES : []),
  ];
  return [...new Set(routes)].toSorted();
}

/** Why a Connector cannot be deployed, or undefined. */
export function problemOf(connector: Connector): string | undefined {
  const { subnetRouter, appConnector } = connector.spec;
  return (
    problemOfRoles(connector) ??
    problemOfNames(connector) ??
    routeProblem('spec.subnetRouter.advertiseRoutes', subnetRouter?.advertiseRoutes ?? []) ??
    routeProblem('spec.appConnector.routes', appConnector?.routes ?? [])
  );
}

function problemOfNames({ metadata, spec }: Connector): string | undefined {
  if (metadata.name.length > 63)
    return 'its name is longer than 63 characters, and its objects carry it in a label';
  if (spec.hostname !== '' && spec.replicas > 1) {
    return 'spec.hostname cannot be set with more than one replica: use spec.hostnamePrefix';
  }
  if (spec.hostname !== '' && spec.hostnamePrefix !== '') {
    return 'spec.hostname and spec.hostnamePrefix cannot both be set';
  }
  return undefined;
}

function problemOfRoles({ spec }: Connector): string | undefined {
  if (spec.subnetRouter === undefined && !spec.exitNode && spec.appConnector === undefined) {
    return 'a Connector needs at least one of spec.subnetRouter, spec.exitNode and spec.appConnector';
  }
  if (spec.appConnector !== undefined && (spec.subnetRouter !== undefined || spec.exitNode)) {
    return 'spec.appConnector cannot be combined with spec.subnetRouter or spec.exitNode';
  }
  if (spec.subnetRouter?.advertiseRoutes.length === 0) {
    return 'spec.subnetRouter.advertiseRoutes: name at least one route';
  }
  return undefined;
}

function routeProblem(field: string, routes: readonly string[]): string | undefined {
  for (const route of routes) {
    const network = networkOf(route);
    if (network === undefined)
      return `${field}: ${JSON.stringify(route)} is not a network such as 10.0.0.0/8`;
    if (network !== undefined && !network.whole) {
      return `${field}: ${JSON.stringify(route)} has bits behind its prefix: write the address of the network`;
    }
  }
  return undefined;
}

/** Whether all bits behind the prefix are zero; undefined for what is no CIDR. */
function networkOf(route: string): { readonly whole: boolean } | undefined {
  const match = /^([0-9a-fA-F.:]+)\/(0|[1-9]\d{0,2})$/.exec(route);
  const [, address = '', length = ''] = match ?? [];
  const family = isIP(address);
  const bits = family === 4 ? 32n : 128n;
  if (family === 0 || BigInt(length) > bits) return undefined;
  const behind = bits - BigInt(length);
  return { whole: (numberOf(address, family) & ((1n << behind) - 1n)) === 0n };
}

function numberOf(address: string, family: number): bigint {
  if (family === 4) return address.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  // The URL parser writes IPv6 in one way, IPv4 at its end included.
  const canonical = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const [head = '', tail] = canonical.split('::');
  const groups = (text: string): string[] => text.split(':').filter((group) => group !== '');
  const [left, right] = [groups(head), groups(tail ?? '')];
  const all = [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  return all.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
}
