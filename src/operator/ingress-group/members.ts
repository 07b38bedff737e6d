/** Writes the status of Services and Ingresses of groups, and removes their finalizers. Effects. */
import { removeFinalizer, timeOf, type ReconcilerDeps, warn, writeStatus } from '../workload/reconciler.ts';
import { releaseNames } from '../workload/names.ts';
import { forEachMember, throwFirst } from '../workload/for-each-member.ts';
import { sameJson } from '../workload/status.ts';
import { ANNOTATIONS, isOurLoadBalancer } from '../service/predicates.ts';
import type { ProxyGroup } from '../proxy-group/resource.ts';
import type { Allocation } from './allocations.ts';
import { hasGroup, hasMemberFinalizer, strayMembers, type Candidates } from './candidates.ts';
import { refreshed, isGroupMember, keyOfMember, type GroupMember } from './member.ts';
import { groupMissing, refusedMember, nextMemberStatus, type ExposureVerdicts } from './status.ts';

/** @param shown addresses for the status; undefined to keep the present ones */
export async function report(
  deps: ReconcilerDeps,
  member: GroupMember,
  verdicts: ExposureVerdicts,
  shown: readonly object[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  // The API server accepts addresses in the status of a Service only if its type is LoadBalancer.
  const acceptsAddresses = member.type === 'ingress' || isOurLoadBalancer(member.resource.spec, true);
  const status = nextMemberStatus(member, verdicts, acceptsAddresses ? shown : undefined, timeOf(deps.clock));
  await writeStatus(deps, { kind: member.kind, metadata: member.metadata }, status, signal);
}

/** Reports that a member cannot be served, with the reason. */
export async function refuse(
  deps: ReconcilerDeps,
  member: GroupMember,
  message: string,
  signal: AbortSignal,
): Promise<void> {
  const reason = member.type === 'svc' ? 'IngressSvcInvalid' : 'IngressNotServed';
  await warn(deps, { kind: member.kind, metadata: member.metadata }, { reason, message }, signal);
  await report(deps, member, refusedMember(message), [], signal);
}

/** Rejects the members of a group that does not exist or has another type. Also releases members without a group. */
export async function rejectMembers(
  deps: ReconcilerDeps,
  candidates: Candidates,
  name: string,
  proxyGroup: ProxyGroup | undefined,
  signal: AbortSignal,
): Promise<void> {
  const strays = await releaseStrays(deps, candidates, signal);
  const message =
    proxyGroup === undefined
      ? `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}" does not exist: create it with spec.type: ingress, or ` +
        'name another'
      : `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}" is of type ${proxyGroup.spec.type}: name one of type ingress`;
  const members = candidates.members.filter(
    (one) => isGroupMember(one) && one.group === name && !hasMemberFinalizer(one),
  );
  const reject = async (member: GroupMember): Promise<void> => {
    if (member.type === 'svc') return report(deps, member, groupMissing(message), undefined, signal);
    const target = { kind: member.kind, metadata: member.metadata };
    return warn(deps, target, { reason: 'IngressNotServed', message }, signal);
  };
  const failure = await forEachMember(deps, members, keyOfMember, reject, signal);
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
  signal: AbortSignal,
): Promise<Error | undefined> {
  const release = (member: GroupMember): Promise<void> =>
    releaseMember(deps, candidates, member, undefined, signal);
  return forEachMember(deps, strayMembers(candidates), keyOfMember, release, signal);
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
  signal: AbortSignal,
): Promise<void> {
  const { kind, metadata } = member;
  const { namespace, name } = metadata;
  // The member is read again, because the cached status may lack the addresses that this group has just written.
  const object = await deps.client.get(kind, { namespace, name }, signal);
  if (object === undefined || object.metadata.uid !== metadata.uid) return;
  const current = refreshed(member, object);
  if (current.metadata.deletionTimestamp === undefined) await clear(deps, current, grant, signal);
  if (!hasMemberFinalizer(current) || (deps.leaving !== true && hasGroup(candidates, member))) return;
  await releaseNames(deps, { kind, metadata, tailnet: '', names: [] }, signal);
  await removeFinalizer(deps, member, signal);
}

async function clear(
  deps: ReconcilerDeps,
  member: GroupMember,
  grant: Allocation | undefined,
  signal: AbortSignal,
): Promise<void> {
  const before: readonly { readonly [key: string]: unknown }[] = member.resource.status.loadBalancer.ingress;
  const left = before.filter(({ hostname, ip }) => {
    const ours =
      (typeof ip === 'string' && grant?.addresses.includes(ip) === true) ||
      (typeof hostname === 'string' && grant !== undefined && hostname.split('.')[0] === grant.hostname);
    return !ours;
  });
  const shown = sameJson(before, left) ? undefined : left;
  const status = nextMemberStatus(member, undefined, shown, timeOf(deps.clock));
  await writeStatus(deps, { kind: member.kind, metadata: member.metadata }, status, signal);
}
