/**
 * What a group has given to whom: one ConfigMap for each group. It is the only place where addresses are stored, and says of
 * whom something has to be taken back. Pure.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { addressAt, holds, type Network } from '../networks.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { metadataOf } from '../workload/object-specs.ts';

const ENTRIES = 'members.json';
const SUFFIX = '-ingress-config';

export interface Allocation {
  readonly hostname: string;
  /** One for each family. */
  readonly addresses: readonly string[];
}

/** By the key of a member. */
export type Allocations = ReadonlyMap<string, Allocation>;

const allocationsSchema = z.record(
  z.string(),
  z.object({ hostname: z.string(), addresses: z.array(z.string()) }),
);

export function allocationsName(group: string): string {
  return `${group}${SUFFIX}`;
}

/** Whether a ConfigMap of a group is such a one. */
export function isAllocations({ metadata }: KubeObject): boolean {
  return metadata.name.endsWith(SUFFIX);
}

/** @param object undefined: there is none yet */
export function readAllocations(object: KubeObject | undefined): Allocations {
  const data = z.object({ data: z.record(z.string(), z.string()).default({}) }).safeParse(object ?? {});
  const entries = allocationsSchema.safeParse(jsonOrUndefined(data.data?.data[ENTRIES] ?? '{}'));
  return new Map(Object.entries(entries.data ?? {}));
}

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

/** So many places are looked at for a free address. */
const TRIES = 65_536n;

/**
 * An address of each network, what a member has staying as long as it is of these networks and nobody else's.
 *
 * @param isTaken by somebody else, in any group
 * @returns undefined when a network has no more
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
  const kept = before.find((address) => holds(network, address) && !isTaken(address));
  if (kept !== undefined) return kept;
  // The first and the last of an IPv4 network mean the network, for some.
  const [first, last] =
    network.family === 4 && network.size > 2n ? [1n, network.size - 2n] : [0n, network.size - 1n];
  for (let offset = first; offset <= last && offset - first < TRIES; offset += 1n) {
    const address = addressAt(network, offset);
    if (!isTaken(address)) return address;
  }
  return undefined;
}
