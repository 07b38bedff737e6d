/** What the nodes of a group are to forward: one ConfigMap, computed as a whole. Pure. */
import type { DesiredObject } from '../kube-object.ts';
import type { NodeGroup } from '../workload/workload.ts';
import { metadataOf } from '../workload/object-specs.ts';
import type { ServiceFront } from './member.ts';

/** Also the member of a node's state Secret in which it says what it forwards. */
export const SERVICES_KEY = 'egress-services';

export function configMapName(group: string): string {
  return `${group}-egress-config`;
}

export interface PortRule {
  readonly protocol: string;
  readonly matchPort: number;
  readonly targetPort: number;
}

/** As the nodes write them down as well. */
export function rulesOf({ ports }: ServiceFront): readonly PortRule[] {
  return ports.map(({ protocol, port, nodePort }) => ({
    protocol: protocol.toLowerCase(),
    matchPort: nodePort,
    targetPort: port,
  }));
}

/**
 * @param look changes when the nodes are to look up again what they did not know: they do that when a file changes.
 */
export function configMap(
  group: NodeGroup,
  fronts: readonly ServiceFront[],
  options: { readonly namespace: string },
  look: number | undefined,
): DesiredObject & { readonly binaryData: Readonly<Record<string, string>> } {
  const services = Object.fromEntries(
    fronts
      .toSorted((a, b) => (a.key < b.key ? -1 : 1))
      .flatMap((front) => {
        const { key, target, healthPort } = front;
        if (target === undefined) return [];
        const [address] = front.addresses;
        // By its address: that works whatever the cluster's DNS is like.
        const host = address?.includes(':') === true ? `[${address}]` : address;
        const healthCheckEndpoint = host === undefined ? '' : `http://${host}:${healthPort}/healthz`;
        return [[key, { healthCheckEndpoint, tailnetTarget: target, ports: rulesOf(front) }] as const];
      }),
  );
  // A pod that ends asks the Services so often whether they still lead to it; one that is alone has nobody to wait for.
  const pings = group.replicas > 1 ? group.replicas * 3 : 0;
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: metadataOf(group, options, configMapName(group.name)),
    binaryData: {
      [SERVICES_KEY]: btoa(JSON.stringify(services)),
      'hep-pings': btoa(String(pings)),
      ...(look === undefined ? {} : { look: btoa(String(look)) }),
    },
  };
}
