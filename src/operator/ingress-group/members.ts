/** Writes the status of Services and Ingresses of groups, and removes their finalizers. Effects. */
import { removeFinalizer, report, type ReconcilerDeps, writeStatus } from '../workload/reconciler.ts';
import { releaseNames } from '../workload/names.ts';
import { forEachMember, throwFirst } from '../workload/for-each-member.ts';
import { INGRESS_CONDITIONS } from '../service/status.ts';
import { removed, type Verdicts } from '../workload/status.ts';
import { ANNOTATIONS, isOurLoadBalancer } from '../service/predicates.ts';
import type { ProxyGroup } from '../proxy-group/resource.ts';
import type { Allocation } from './allocations.ts';
import { hasGroup, hasMemberFinalizer, strayMembers, type Candidates } from './candidates.ts';
import { refreshed, isGroupMember, keyOfMember, type GroupMember } from './member.ts';
import { groupMissing, refusedMember, type ExposureVerdicts } from './status.ts';

/** @param shown addresses for the status; undefined to keep the present addresses */
export async function reportMember(
  deps: ReconcilerDeps,
  member: GroupMember,
  verdicts: ExposureVerdicts,
  shown: readonly object[] | undefined,
): Promise<void> {
  // The API server accepts addresses in the status of a Service only if its type is LoadBalancer.
  const acceptsAddresses = member.type === 'ingress' || isOurLoadBalancer(member.resource.spec, true);
  await writeMemberStatus(deps, member, verdicts, acceptsAddresses ? shown : undefined);
}

async function writeMemberStatus(
  deps: ReconcilerDeps,
  { type, kind, resource }: GroupMember,
  verdicts: Verdicts,
  ingress: readonly object[] | undefined,
): Promise<void> {
  const fields = ingress === undefined ? {} : { loadBalancer: { ingress } };
  // An Ingress has no conditions.
  if (type === 'ingress') await writeStatus(deps, kind, resource, fields);
  else await report(deps, kind, resource, verdicts, fields);
}

/** Reports that a member cannot be served, with the reason. */
export async function refuse(deps: ReconcilerDeps, member: GroupMember, message: string): Promise<void> {
  const reason = member.type === 'svc' ? 'IngressSvcInvalid' : 'IngressNotServed';
  await deps.events.warn(member, { reason, message });
  await reportMember(deps, member, refusedMember(message), []);
}

/**
 * Rejects the members of a group that does not exist, or whose type is not ingress. Also releases members without a
 * group.
 */
export async function rejectMembers(
  deps: ReconcilerDeps,
  candidates: Candidates,
  name: string,
  proxyGroup: ProxyGroup | undefined,
): Promise<void> {
  const strays = await releaseStrays(deps, candidates);
  const message =
    proxyGroup === undefined
      ? `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}" does not exist: create it with spec.type: ingress, or ` +
        'name another'
      : `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}" is of type ${proxyGroup.spec.type}: name one of type ingress`;
  const members = candidates.members.filter(
    (one) => isGroupMember(one) && one.group === name && !hasMemberFinalizer(one),
  );
  const reject = async (member: GroupMember): Promise<void> => {
    if (member.type === 'svc') return reportMember(deps, member, groupMissing(message), undefined);
    return deps.events.warn(member, { reason: 'IngressNotServed', message });
  };
  const failure = await forEachMember(deps, members, keyOfMember, reject);
  throwFirst(strays, failure);
}

/**
 * Releases the members that have a group's finalizer but no group.
 *
 * @returns the first failure
 */
export async function releaseStrays(
  deps: ReconcilerDeps,
  candidates: Candidates,
): Promise<Error | undefined> {
  const release = (member: GroupMember): Promise<void> => releaseMember(deps, candidates, member, undefined);
  return forEachMember(deps, strayMembers(candidates), keyOfMember, release);
}

/**
 * Clears the status of a member. Then removes the finalizer, unless another group serves the member now.
 *
 * @param grant previous allocation of the member
 */
export async function releaseMember(
  deps: ReconcilerDeps,
  candidates: Candidates,
  member: GroupMember,
  grant: Allocation | undefined,
): Promise<void> {
  const { kind, metadata } = member;
  const { namespace, name } = metadata;
  // The operator reads the member again, because the cached status may lack the addresses that it has just written for
  // this group.
  const object = await deps.client.get(kind, { namespace, name });
  if (object === undefined || object.metadata.uid !== metadata.uid) return;
  const current = refreshed(member, object);
  if (current.metadata.deletionTimestamp === undefined) await clear(deps, current, grant);
  if (!hasMemberFinalizer(current) || (deps.leaving !== true && hasGroup(candidates, member))) return;
  await releaseNames(deps, { kind, metadata, tailnet: '', names: [] });
  await removeFinalizer(deps, member);
}

async function clear(
  deps: ReconcilerDeps,
  member: GroupMember,
  grant: Allocation | undefined,
): Promise<void> {
  const before: readonly { readonly [key: string]: unknown }[] = member.resource.status.loadBalancer.ingress;
  const left = before.filter(({ hostname, ip }) => {
    const ours =
      (typeof ip === 'string' && grant?.addresses.includes(ip) === true) ||
      (typeof hostname === 'string' && grant !== undefined && hostname.split('.')[0] === grant.hostname);
    return !ours;
  });
  await writeMemberStatus(deps, member, removed(INGRESS_CONDITIONS), left);
}
