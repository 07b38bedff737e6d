/** Computes the status of members from observations. Pure. */
import { isIP } from 'node:net';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import type { INGRESS_CONDITIONS } from '../service/status.ts';
import { isIdle, type ServedMember, type ServeMode } from './plan.ts';

export type ExposureVerdicts = Readonly<Record<(typeof INGRESS_CONDITIONS)[number], Verdict>>;

/** Returns the conditions of an invalid member. The group does not serve the member until the user changes it. */
export function refusedMember(message: string): ExposureVerdicts {
  return verdictsOf(failed('IngressSvcInvalid', message), noBackends(message));
}

/** Returns the conditions of a valid member whose group does not exist or cannot serve it. */
export function groupMissing(message: string): ExposureVerdicts {
  return verdictsOf({ ...failed('ProxyGroupNotReady', message), unknown: true }, noBackends(message));
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
  const configured = count > 0 ? succeeded('IngressSvcConfigured', message) : noBackends(message);
  return verdictsOf(succeeded('IngressSvcValid'), configured);
}

function verdictsOf(valid: Verdict, configured: Verdict): ExposureVerdicts {
  return { TailscaleIngressSvcValid: valid, TailscaleIngressSvcConfigured: configured };
}

function noBackends(message: string): Verdict {
  return failed('IngressSvcNoBackendsConfigured', message);
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
