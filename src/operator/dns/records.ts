/**
 * Builds the table of DNS names that pods can resolve, from the objects that the operator created for Services. Pure.
 */
import { isIP } from 'node:net';
import { z } from 'zod';
import { olderFirst } from '../../kube/object-age.ts';
import { keyOf, readFront } from '../egress-group/member.ts';
import type { KubeObject } from '../kube-object.ts';
import { ownsNodeName } from '../workload/names.ts';
import { readNodeState } from '../workload/node-state.ts';
import { parentOf, stateSecretName } from '../workload/workload.ts';
import { LAST_SET } from '../workload/proxy-specs.ts';

/** Objects in the operator's namespace that were created for Services. */
export interface Standing {
  /** StatefulSets of proxies. */
  readonly statefulSets: readonly KubeObject[];
  /** State Secrets of proxies. Map keys: name of the Secret. */
  readonly secrets: ReadonlyMap<string, KubeObject>;
  /** EndpointSlices of the headless Services of proxies. */
  readonly slices: readonly KubeObject[];
  /** Front Services of egress groups. */
  readonly fronts: readonly KubeObject[];
  /** Names of the ConfigMaps that record the owners of tailnet names. Map keys: uid of the owner. */
  readonly owned: ReadonlyMap<string, readonly string[]>;
}

const templateSchema = z.object({
  spec: z.object({
    selector: z.object({ matchLabels: z.record(z.string(), z.string()).default({}) }).prefault({}),
    template: z.object({
      metadata: z.object({ annotations: z.record(z.string(), z.string()).default({}) }).prefault({}),
    }),
  }),
});

const sliceSchema = z.object({
  endpoints: z
    .array(
      z.object({
        addresses: z.array(z.string()).default([]),
        conditions: z.object({ ready: z.boolean().nullish() }).nullish(),
      }),
    )
    .nullish(),
});

/**
 * Maximum length of a domain name. A limit is necessary, because the proxy's pod writes the name of an exposed Service
 * into a Secret, and a compromised pod could write any text.
 */
const MAX_NAME = 253;

/** Sorted addresses of DNS names. Keys: names in lower case without trailing dot. */
export type NameTable = ReadonlyMap<string, readonly string[]>;

/**
 * Returns the addresses to which each name resolves. If a Service has a tailnet node as its target, the node's name
 * resolves to the addresses of the Service's proxy. The tailnet name of an exposed Service resolves to the Service's
 * cluster address, so that connections do not pass through the tailnet. If several Services have the same name, the
 * name belongs to the Service with the oldest proxy, even while that proxy has no addresses.
 */
export function nameTable(standing: Standing): NameTable {
  const found = new Map<string, { readonly owner: string; readonly addresses: Set<string> }>();
  for (const { by, name: written, addresses } of claimsOf(standing).toSorted((a, b) =>
    olderFirst(a.by, b.by),
  )) {
    const name = written.replace(/\.$/, '').toLowerCase();
    const owner = keyOf(parentOf(by) ?? by.metadata);
    const known = found.get(name) ?? { owner, addresses: new Set<string>() };
    found.set(name, known);
    // While a Service moves from its own proxy to a group, the name resolves to the addresses of both.
    if (known.owner === owner) for (const address of addresses) known.addresses.add(address);
  }
  return new Map(
    [...found]
      .filter(([name, { addresses }]) => name.length <= MAX_NAME && addresses.size > 0)
      .map(([name, { addresses }]) => [name, [...addresses].toSorted()]),
  );
}

function claimsOf(standing: Standing): readonly Claim[] {
  const claims: Claim[] = [];
  for (const set of standing.statefulSets) {
    const { selector, template } = templateSchema.parse(set).spec;
    const { annotations } = template.metadata;
    const target = annotations[`${LAST_SET}ts-tailnet-target-fqdn`];
    if (target !== undefined)
      claims.push({ by: set, name: target, addresses: readyAddresses(set.metadata.name, standing.slices) });
    const address = annotations[`${LAST_SET}cluster-ip`];
    const secret = standing.secrets.get(stateSecretName(set.metadata.name, 0));
    const name = readNodeState(secret).dnsName;
    if (address === undefined || name === undefined) continue;
    // The pod can write any name into its Secret, so only names that the Service owns are used.
    const owned = standing.owned.get(selector.matchLabels['app'] ?? '') ?? [];
    if (ownsNodeName(owned, name)) claims.push({ by: set, name, addresses: [address] });
  }
  for (const object of standing.fronts) {
    const front = readFront(object);
    const name = front?.target?.fqdn ?? '';
    if (front !== undefined && name !== '') claims.push({ by: object, name, addresses: front.addresses });
  }
  return claims;
}

/** A name and its addresses, from one object of a Service's proxy. */
interface Claim {
  readonly by: KubeObject;
  readonly name: string;
  readonly addresses: readonly string[];
}

function readyAddresses(service: string, slices: readonly KubeObject[]): readonly string[] {
  return slices
    .filter(({ metadata }) => metadata.labels?.['kubernetes.io/service-name'] === service)
    .flatMap((slice) => sliceSchema.parse(slice).endpoints ?? [])
    .filter(({ conditions }) => conditions?.ready !== false)
    .flatMap(({ addresses }) => addresses);
}

/** Returns the content of the nameserver's file. For equal tables, the text is always the same. */
export function recordsFile(table: NameTable, domain: string): string {
  const family = (wanted: number): Record<string, readonly string[]> =>
    Object.fromEntries(
      [...table]
        .map(([name, addresses]) => [name, addresses.filter((one) => isIP(one) === wanted)] as const)
        .filter(([, addresses]) => addresses.length > 0)
        .toSorted(([a], [b]) => (a < b ? -1 : 1)),
    );
  return JSON.stringify({ version: 'v1alpha1', ip4: family(4), ip6: family(6), domains: [domain] });
}
