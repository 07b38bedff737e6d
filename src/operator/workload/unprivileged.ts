/**
 * Proxies for clusters that reject privileged pods. Instead of packets, these proxies forward the TCP connections to
 * each declared port. Pure.
 */
import { isIP } from 'node:net';
import type { ProxyClass } from '../proxy-class/resource.ts';
import { leadsToTailnet, type ForwardDuty, type PacketDuty } from './workload.ts';

/** Annotation of a ProxyClass that requests unprivileged proxies. Its value is `"true"`. */
export const UNPRIVILEGED = 'tailcast.dev/unprivileged';

/** True if a ProxyClass requests unprivileged proxies. */
export function isUnprivileged(proxyClass: Pick<ProxyClass, 'metadata'> | undefined): boolean {
  return proxyClass?.metadata.annotations[UNPRIVILEGED] === 'true';
}

/** A port in the spec of a Service. */
export interface DeclaredPort {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
}

export type ForwardPlan =
  /** `unserved`: message about declared ports that cannot be forwarded. */
  | { readonly kind: 'planned'; readonly duty: ForwardDuty; readonly unserved: string | undefined }
  | { readonly kind: 'impossible'; readonly message: string };

/** Plans how an unprivileged proxy forwards the ports of a Service. */
export function planForwards(duty: PacketDuty, declared: readonly DeclaredPort[]): ForwardPlan {
  const ports = [...new Set(declared.filter(({ protocol }) => protocol === 'TCP').map(({ port }) => port))];
  const others = declared.filter(({ protocol }) => protocol !== 'TCP');
  const shown = others.map(
    ({ protocol, port, name }) => `${protocol} ${port}${name === '' ? '' : ` (${name})`}`,
  );
  if (ports.length === 0) {
    const what = shown.length === 0 ? 'none is declared' : `there is only ${shown.join(', ')}`;
    return {
      kind: 'impossible',
      message: `spec.ports: an unprivileged proxy forwards only declared TCP ports, and ${what}: declare them, or name a ProxyClass without ${UNPRIVILEGED}`,
    };
  }
  const unserved =
    shown.length === 0
      ? undefined
      : `not served: ${shown.join(', ')}: an unprivileged proxy supports only TCP; a ProxyClass without ${UNPRIVILEGED} supports all protocols`;
  return {
    kind: 'planned',
    duty: forwardDuty(
      duty,
      ports.toSorted((a, b) => a - b),
    ),
    unserved,
  };
}

function forwardDuty(duty: PacketDuty, ports: readonly number[]): ForwardDuty {
  return leadsToTailnet(duty)
    ? { kind: 'forward-out', of: duty, ports }
    : { kind: 'forward-in', of: duty, serveConfig: forwardsTo(duty.target, ports) };
}

/** Returns a serve configuration with which tailscaled forwards each port to the same port of a host. */
function forwardsTo(host: string, ports: readonly number[]): string {
  const bracketed = isIP(host) === 6 ? `[${host}]` : host;
  const TCP: Record<string, { readonly TCPForward: string }> = {};
  for (const port of ports) TCP[port] = { TCPForward: `${bracketed}:${port}` };
  return JSON.stringify({ TCP });
}
