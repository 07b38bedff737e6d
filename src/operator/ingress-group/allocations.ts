/**
 * Address allocations of a group, stored in one ConfigMap for each group. This ConfigMap is the only storage of the
 * addresses. It also shows which addresses must be released after a member is gone. Pure.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { addressAt, contains, type Network } from '../networks.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { metadataOf } from '../workload/object-specs.ts';

const ENTRIES = 'members.json';
const SUFFIX = '-ingress-config';

export interface Allocation {
  readonly hostname: string;
  /** Addresses, one for each family. */
  readonly addresses: readonly string[];
  /**
   * Hosts and ports that the member serves in route mode. Another member can take over such a host only if the host is
   * that other member's own name or address.
   */
  readonly hosts?: readonly string[] | undefined;
}

/** Allocations of members. Map keys: key of the member. */
export type Allocations = ReadonlyMap<string, Allocation>;

const allocationsSchema = z.record(
  z.string(),
  z.object({
    hostname: z.string(),
    addresses: z.array(z.string()),
    hosts: z.array(z.string()).optional(),
  }),
);

/** Returns the name of a group's ConfigMap with allocations. */
export function allocationsName(group: string): string {
  return `${group}${SUFFIX}`;
}

/** True if the ConfigMap contains the allocations of a group. */
export function isAllocations({ metadata }: KubeObject): boolean {
  return metadata.name.endsWith(SUFFIX);
}

/** @param object undefined if the ConfigMap does not exist yet */
export function readAllocations(object: KubeObject | undefined): Allocations {
  const data = z.object({ data: z.record(z.string(), z.string()).default({}) }).safeParse(object ?? {});
  const entries = allocationsSchema.safeParse(jsonOrUndefined(data.data?.data[ENTRIES] ?? '{}'));
  return new Map(Object.entries(entries.data ?? {}));
}

/** Returns the ConfigMap with the allocations of a group. */
export function allocationsObject(
  group: NodeGroup,
  options: { readonly namespace: string },
  allocations: Allocations,
): DesiredObject & { readonly data: Readonly<Record<string, string>> } {
  const sorted = [...allocations].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: metadataOf(group, options, allocationsName(group.name)),
    data: { [ENTRIES]: JSON.stringify(Object.fromEntries(sorted)) },
  };
}

/** Maximum number of addresses that the search for a free address checks. */
const TRIES = 65_536n;

/**
 * Returns one address from each network. A member keeps its previous addresses if they belong to these networks and no
 * other member has them.
 *
 * @param isTaken returns true if another member has the address, in any group
 * @returns undefined if a network is full
 */
export function assignAddresses(
  networks: readonly Network[],
  before: readonly string[],
  isTaken: (address: string) => boolean,
): readonly string[] | undefined {
  const addresses: string[] = [];
  for (const network of networks) {
    const found = freeAddress(network, before, isTaken);
    if (found === undefined) return undefined;
    addresses.push(found);
  }
  return addresses;
}

function freeAddress(
  network: Network,
  before: readonly string[],
  isTaken: (address: string) => boolean,
): string | undefined {
  const kept = before.find((address) => contains(network, address) && !isTaken(address));
  if (kept !== undefined) return kept;
  // The first and the last address of an IPv4 network may be its network and broadcast addresses, so they are not
  // allocated.
  const [first, last] =
    network.family === 4 && network.size > 2n ? [1n, network.size - 2n] : [0n, network.size - 1n];
  for (let offset = first; offset <= last && offset - first < TRIES; offset += 1n) {
    const address = addressAt(network, offset);
    if (!isTaken(address)) return address;
  }
  return undefined;
}
