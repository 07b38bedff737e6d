/** Reads from the cache the Services, Ingresses and groups that the reconciliation of one group needs. Effects. */
import type { Sequence } from '../../async/sequence.ts';
import type { Approvals } from '../workload/approvals.ts';
import {
  ENDPOINT_SLICES,
  hasReadyEndpoint,
  INGRESSES,
  INGRESSES_BY_GROUP,
  MARKED_INGRESSES,
  MARKED_SERVICES,
  PROXY_GROUPS,
  SERVICES,
  SERVICES_BY_GROUP,
  servicesNamed,
  SLICES_BY_SERVICE,
} from '../indexes.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
import type { ReconcilerDeps } from '../workload/reconciler.ts';
import { fullName, type ObjectIndex } from '../object-cache.ts';
import { listOwn } from '../workload/observe.ts';
import { typeSelector } from '../workload/workload.ts';
import { isIngressGroup, parseProxyGroup } from '../proxy-group/resource.ts';
import { groupIn } from '../service/predicates.ts';
import { isAllocations, allocationsName, readAllocations, type Allocations } from './allocations.ts';
import { ingressMember, serviceMember, isGroupMember, type GroupMember } from './member.ts';
import type { ServeMode } from './plan.ts';

/** Dependencies of the reconciliation of a group. */
export interface GroupContext {
  readonly deps: ReconcilerDeps;
  readonly approvals: Approvals;
  /** Runs the address allocations of all groups one after another. */
  readonly inTurn: Sequence;
}

export type Candidates = Awaited<ReturnType<typeof listCandidates>>;

/** @param group name of the group; empty to read members without a group */
export async function listCandidates(
  { client, options, cache }: Pick<ReconcilerDeps, 'client' | 'options' | 'cache'>,
  group: string,
  mode: ServeMode,
) {
  const { services, ingresses } = options.reconciled;
  const cached = await cache.read([
    SERVICES,
    PROXY_GROUPS,
    ...(ingresses ? [INGRESSES] : []),
    ...(services && mode === 'service' ? [ENDPOINT_SLICES] : []),
  ]);
  const ledgers = await listAllocations({ client, options });
  const groups = new Set(
    cached
      .all(PROXY_GROUPS)
      .map(parseProxyGroup)
      .filter((one) => isIngressGroup(one) && one.metadata.deletionTimestamp === undefined)
      .map(({ metadata }) => metadata.name),
  );
  const granted = allocationsOf(ledgers, group);
  const membersIn = (
    byGroup: ObjectIndex,
    marked: ObjectIndex,
    parse: (object: KubeObject) => GroupMember,
    type: GroupMember['type'],
  ): readonly GroupMember[] => {
    const left = cached.by(marked, 'true').filter((object) => {
      const named = groupIn(object.metadata.annotations ?? {});
      return (
        (named === '' || named !== group) &&
        (!groups.has(named) || granted.has(`${type}/${fullName(object)}`))
      );
    });
    return [...(group === '' ? [] : cached.by(byGroup, group)), ...left]
      .map(parse)
      .filter((member) => isGroupMember(member) || hasMemberFinalizer(member));
  };
  return {
    /** Members of the group, and members that this group or a deleted group must release. */
    members: [
      ...(services
        ? membersIn(
            SERVICES_BY_GROUP,
            MARKED_SERVICES,
            (object) => serviceMember(object, options.servesUnclassed),
            'svc',
          )
        : []),
      ...(ingresses ? membersIn(INGRESSES_BY_GROUP, MARKED_INGRESSES, ingressMember, 'ingress') : []),
    ],
    /** Names of the groups that can serve members. */
    groups,
    /** ConfigMaps with allocations. Map keys: name of the ConfigMap. */
    ledgers,
    /** Returns those of the named Services that exist and are not being deleted, with their names as map keys. */
    services: (namespace: string | undefined, names: readonly string[]): ReadonlyMap<string, KubeObject> =>
      servicesNamed(cached, namespace, names),
    /** True if an endpoint of the Service is ready. */
    hasReadyEndpoint: (member: GroupMember): boolean =>
      cached.by(SLICES_BY_SERVICE, fullName(member)).some(hasReadyEndpoint),
  };
}

export async function listAllocations(
  deps: Pick<ReconcilerDeps, 'client' | 'options'>,
): Promise<ReadonlyMap<string, KubeObject>> {
  const listed = await listOwn(deps, KINDS.configMap, typeSelector('proxygroup'));
  return new Map(listed.filter(isAllocations).map((object) => [object.metadata.name, object]));
}

/** True if the member has the finalizer of a group. */
export function hasMemberFinalizer({ metadata, finalizer }: GroupMember): boolean {
  return metadata.finalizers.includes(finalizer);
}

/** Returns the allocations of a group. */
export function allocationsOf(ledgers: Candidates['ledgers'], group: string): Allocations {
  return readAllocations(ledgers.get(allocationsName(group)));
}

/** True if the group in the member's annotation can serve the member. */
export function hasGroup({ groups }: Candidates, member: GroupMember): boolean {
  return isGroupMember(member) && groups.has(member.group);
}

/**
 * Returns members that have a group's finalizer, although no group serves them or has allocations for them. Such a
 * finalizer is a remainder of a deleted group or of another operator.
 */
export function strayMembers(candidates: Candidates): readonly GroupMember[] {
  const listed = new Set(
    [...candidates.ledgers.values()].flatMap((allocations) => [...readAllocations(allocations).keys()]),
  );
  return candidates.members.filter(
    (member) => hasMemberFinalizer(member) && !hasGroup(candidates, member) && !listed.has(member.key),
  );
}
