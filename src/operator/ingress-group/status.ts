/** Computes the status of members from observations. Pure. */
import { isIP } from 'node:net';
import { sameJson, withCondition, type Condition, type Verdict } from '../workload/status.ts';
import { INGRESS_CONDITIONS } from '../service/status.ts';
import type { GroupMember } from './member.ts';
import { isIdle, type ServedMember, type ServeMode } from './plan.ts';

export interface ExposureVerdicts {
  readonly valid: Verdict;
  readonly configured: Verdict;
}

const VALID: Verdict = { ready: true, reason: 'IngressSvcValid', message: 'IngressSvcValid' };

/** Returns the conditions of an invalid member. The group does not serve the member until the user changes it. */
export function refusedMember(message: string): ExposureVerdicts {
  return { valid: { ready: false, reason: 'IngressSvcInvalid', message }, configured: noBackends(message) };
}

/** Returns the conditions of a valid member whose group does not exist or cannot serve it. */
export function groupMissing(message: string): ExposureVerdicts {
  return {
    valid: { ready: false, unknown: true, reason: 'ProxyGroupNotReady', message },
    configured: noBackends(message),
  };
}

/** @param count number of nodes that serve the member */
export function exposureVerdictsOf(
  count: number,
  replicas: number,
  pending: string | undefined,
): ExposureVerdicts {
  const message =
    `${count}/${replicas} proxy backends ready and ` +
    `advertising${pending === undefined ? '' : `; ${pending}`}`;
  return {
    valid: VALID,
    configured: count > 0 ? { ready: true, reason: 'IngressSvcConfigured', message } : noBackends(message),
  };
}

function noBackends(message: string): Verdict {
  return { ready: false, reason: 'IngressSvcNoBackendsConfigured', message };
}

/**
 * Returns the addresses for the status. In route mode, a member has no DNS name in the tailnet, so only its addresses
 * are shown.
 */
export function shownAddresses(mode: ServeMode, exposure: ServedMember): readonly object[] {
  const { member, addresses, dnsName, web } = exposure;
  const name = mode === 'service' && dnsName !== undefined ? [{ hostname: dnsName }] : [];
  if (member.type === 'svc') return [...name, ...addresses.map((ip) => ({ ip }))];
  if (isIdle(exposure)) return [];
  const open = exposure.isCertificatePending ? web?.ports.filter((port) => port !== 443) : web?.ports;
  const ports = (open ?? []).map((port) => ({ port, protocol: 'TCP' }));
  const entries =
    mode === 'service' ? name : addresses.filter((address) => isIP(address) === 4).map((ip) => ({ ip }));
  return entries.map((entry) => ({ ...entry, ports }));
}

export interface MemberStatus {
  readonly conditions?: readonly Condition[];
  readonly loadBalancer?: { readonly ingress: readonly object[] };
}

/**
 * Returns the new status of a member, or undefined if nothing changes.
 *
 * @param verdicts undefined to clear the conditions
 * @param shown addresses for the status; undefined to keep the present ones
 * @param nowIso current time in RFC 3339 with seconds
 */
export function nextMemberStatus(
  member: GroupMember,
  verdicts: ExposureVerdicts | undefined,
  shown: readonly object[] | undefined,
  nowIso: string,
): MemberStatus | undefined {
  const moved = shown !== undefined && !sameJson(shown, member.resource.status.loadBalancer.ingress);
  const loadBalancer = moved ? { loadBalancer: { ingress: shown } } : {};
  if (member.type === 'ingress') return moved ? loadBalancer : undefined;
  const before = member.resource.status.conditions;
  const conditions = conditionsOf(before, verdicts, member.metadata.generation, nowIso);
  if (!moved && sameJson(conditions, before)) return undefined;
  return { conditions, ...loadBalancer };
}

function conditionsOf(
  before: readonly Condition[],
  verdicts: ExposureVerdicts | undefined,
  generation: number,
  nowIso: string,
): readonly Condition[] {
  if (verdicts === undefined) {
    const ours: readonly string[] = Object.values(INGRESS_CONDITIONS);
    return before.filter(({ type }) => !ours.includes(type));
  }
  let conditions = before;
  for (const key of ['valid', 'configured'] as const) {
    conditions = withCondition(conditions, INGRESS_CONDITIONS[key], verdicts[key], generation, nowIso);
  }
  return conditions;
}
