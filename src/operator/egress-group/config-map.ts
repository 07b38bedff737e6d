/** Forwarding rules for the nodes of an egress group: one ConfigMap with all rules. Pure. */
import type { DesiredObject } from '../kube-object.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { base64, metadataOf } from '../workload/object-specs.ts';
import type { ServiceFront } from './member.ts';

/**
 * Key of the rules in the ConfigMap's data. A node's state Secret has a field of the same name, with the rules that the
 * node has applied.
 */
export const SERVICES_KEY = 'egress-services';

/** Returns the name of a group's ConfigMap with forwarding rules. */
export function configMapName(group: string): string {
  return `${group}-egress-config`;
}

export interface PortRule {
  readonly protocol: string;
  readonly matchPort: number;
  readonly targetPort: number;
}

/** Returns the port rules in the format that the tailscale container reads. */
export function rulesOf({ ports }: ServiceFront): readonly PortRule[] {
  return ports.map(({ protocol, port, nodePort }) => ({
    protocol: protocol.toLowerCase(),
    matchPort: nodePort,
    targetPort: port,
  }));
}

/** @param lookupRound a number in the ConfigMap; when the number changes, nodes look up unresolved targets again */
export function configMap(
  group: NodeGroup,
  fronts: readonly ServiceFront[],
  options: { readonly namespace: string },
  lookupRound: number | undefined,
): DesiredObject & { readonly binaryData: Readonly<Record<string, string>> } {
  const services = Object.fromEntries(
    fronts
      .toSorted((a, b) => (a.key < b.key ? -1 : 1))
      .flatMap((front) => {
        const { key, target, healthPort } = front;
        if (target === undefined) return [];
        const [address] = front.addresses;
        // The health check uses the IP address, so it does not depend on the cluster's DNS.
        const host = address?.includes(':') === true ? `[${address}]` : address;
        const healthCheckEndpoint = host === undefined ? '' : `http://${host}:${healthPort}/healthz`;
        return [[key, { healthCheckEndpoint, tailnetTarget: target, ports: rulesOf(front) }] as const];
      }),
  );
  // A terminating pod sends this number of health checks through each Service that it serves. The pod repeats the
  // checks until none of them reaches the pod itself. A group with one pod needs no checks, because it has no other
  // pod.
  const pings = group.replicas > 1 ? group.replicas * 3 : 0;
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: metadataOf(group, options, configMapName(group.name)),
    binaryData: {
      [SERVICES_KEY]: base64(JSON.stringify(services)),
      'hep-pings': base64(String(pings)),
      ...(lookupRound === undefined ? {} : { lookupRound: base64(String(lookupRound)) }),
    },
  };
}
