/** What is in the cluster for groups of type ingress, from the API server itself. Effects. */
import { z } from 'zod';
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import type { Network } from '../networks.ts';
import type { ReconcilerDeps } from '../nodes/lifecycle.ts';
import { typeSelector } from '../proxies/labels.ts';
import { isIngressGroup, parseProxyGroup } from '../proxy-group/resource.ts';
import { isLedger, ledgerName, readLedger, type Ledger } from './ledger.ts';
import { ingressMember, serviceMember, wantsGroup, type GroupMember } from './member.ts';
import type { Way } from './plan.ts';

/** On an EndpointSlice: whose it is. */
export const SERVICE_NAME = 'kubernetes.io/service-name';

/** What the operator is told about such groups. */
export interface IngressGroupChoices {
  /** LoadBalancers that name no class are ours. */
  readonly takesUnclassed: boolean;
  /** ProxyClass of groups that name none; empty: none. */
  readonly defaultClass: string;
  /** Services, and Ingresses, are ours to look at. */
  readonly services: boolean;
  readonly ingresses: boolean;
  /** Where addresses come from while the control server has no Tailscale Services. */
  readonly networks: readonly Network[];
}

export interface Candidates {
  /** Of the whole cluster, by `<namespace>/<name>`. */
  readonly services: ReadonlyMap<string, KubeObject>;
  /** Those that name a group, or are marked. */
  readonly members: readonly GroupMember[];
  /** Names of the groups that can serve. */
  readonly groups: ReadonlySet<string>;
  /** By the name of their object. */
  readonly ledgers: ReadonlyMap<string, KubeObject>;
}

export async function lookAround(
  { client, options }: Pick<ReconcilerDeps, 'client' | 'options'>,
  { takesUnclassed, ...choices }: IngressGroupChoices,
  signal: AbortSignal,
): Promise<Candidates> {
  const all = async (kind: ResourceKind): Promise<readonly KubeObject[]> =>
    (await client.list(kind, {}, signal)).items;
  const [services, ingresses, proxyGroups, ledgers] = await Promise.all([
    all(KINDS.service),
    choices.ingresses ? all(KINDS.ingress) : [],
    all(KINDS.proxyGroup),
    listLedgers({ client, options }, signal),
  ]);
  const members: readonly GroupMember[] = [
    ...(choices.services ? services.map((object) => serviceMember(object, takesUnclassed)) : []),
    ...ingresses.map(ingressMember),
  ];
  return {
    services: new Map(
      services
        .filter(({ metadata }) => metadata.deletionTimestamp === undefined)
        .map((service) => [`${service.metadata.namespace ?? ''}/${service.metadata.name}`, service]),
    ),
    members: members.filter((member) => wantsGroup(member) || isMarked(member)),
    groups: new Set(
      proxyGroups
        .map(parseProxyGroup)
        .filter((group) => isIngressGroup(group) && group.metadata.deletionTimestamp === undefined)
        .map(({ metadata }) => metadata.name),
    ),
    ledgers,
  };
}

/**
 * Services of a group of which no endpoint is ready. By routes nobody else could answer for them, and packets are refused where
 * they lead to: none is looked for.
 */
export async function desertedOf(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { members }: Candidates,
  group: string,
  way: Way,
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const deserted = new Set<string>();
  if (way === 'route') return deserted;
  for (const { key, type, metadata, ...member } of members) {
    if (type !== 'svc' || member.group !== group) continue;
    const { namespace = '', name } = metadata;
    const scope = { namespace, labelSelector: `${SERVICE_NAME}=${name}` };
    const { items } = await client.list(KINDS.endpointSlice, scope, signal);
    if (!items.some(hasReady)) deserted.add(key);
  }
  return deserted;
}

const sliceSchema = z.object({
  endpoints: z
    .array(z.object({ conditions: z.object({ ready: z.boolean().nullish() }).nullish() }))
    .nullish(),
});

/** One of which nobody says whether it is ready counts as ready. */
function hasReady(slice: KubeObject): boolean {
  const { endpoints } = sliceSchema.parse(slice);
  return endpoints?.some(({ conditions }) => conditions?.ready !== false) === true;
}

export async function listLedgers(
  { client, options }: Pick<ReconcilerDeps, 'client' | 'options'>,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, KubeObject>> {
  const scope = { namespace: options.namespace, labelSelector: typeSelector('proxygroup') };
  const { items } = await client.list(KINDS.configMap, scope, signal);
  return new Map(items.filter(isLedger).map((object) => [object.metadata.name, object]));
}

export function isMarked({ metadata, finalizer }: GroupMember): boolean {
  return metadata.finalizers.includes(finalizer);
}

export function ledgerOf(ledgers: Candidates['ledgers'], group: string): Ledger {
  return readLedger(ledgers.get(ledgerName(group)));
}

/** Whether some group is to serve it, and can. */
export function hasGroup({ groups }: Candidates, member: GroupMember): boolean {
  return wantsGroup(member) && groups.has(member.group);
}

/** Marked, served by nobody and on nobody's list: what an earlier group, or another operator, has left. */
export function straysOf(candidates: Candidates): readonly GroupMember[] {
  const listed = new Set(
    [...candidates.ledgers.values()].flatMap((ledger) => [...readLedger(ledger).keys()]),
  );
  return candidates.members.filter(
    (member) => isMarked(member) && !hasGroup(candidates, member) && !listed.has(member.key),
  );
}
