/** Reads the objects in the cluster that the operator uses or has created. Each list is requested only once. */
import { z } from 'zod';
import { isGatewayOfInterest, isOurClass } from '../../operator/gateway/resource.ts';
import { parseIngress, isIngressOfInterest } from '../../operator/ingress/resource.ts';
import type { KubeClient, ListOptions } from '../../operator/kube-client.ts';
import { listKnown } from '../../operator/object-cache.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../../operator/kube-object.ts';
import { conditionSchema } from '../../operator/workload/schema.ts';
import type { Condition } from '../../operator/workload/status.ts';
import { groupIn, isOfInterest } from '../../operator/service/predicates.ts';
import type { OperatorUses } from './rights.ts';

/** Kinds of resources whose readiness the doctor checks. */
export type ParentKind =
  | 'Recorder'
  | 'Tailnet'
  | 'ProxyGroup'
  | 'Connector'
  | 'DNSConfig'
  | 'Service'
  | 'Ingress'
  | 'Gateway';

export type ClusterView = ReturnType<typeof createClusterView>;

export interface ViewOptions {
  readonly client: Pick<KubeClient, 'get' | 'list'>;
  readonly namespace: string;
  readonly uses: OperatorUses;
  /** True if the operator serves LoadBalancer Services without a `loadBalancerClass`. */
  readonly servesUnclassed: boolean;
}

const statusSchema = z.object({
  status: z.object({ conditions: z.array(conditionSchema).default([]) }).prefault({}),
});

/** Returns the conditions in the status of an object. */
export function conditionsIn(object: KubeObject): readonly Condition[] {
  return statusSchema.safeParse(object).data?.status.conditions ?? [];
}

/** Creates a view, which requests each list when it is needed for the first time. */
export function createClusterView({ client, namespace, uses, servesUnclassed }: ViewOptions) {
  const known = new Map<string, Promise<readonly KubeObject[]>>();
  function listed(kind: ResourceKind, options: ListOptions): Promise<readonly KubeObject[]> {
    const key = `${kind.plural} ${JSON.stringify(options)}`;
    const found = known.get(key) ?? listKnown(client, kind, options);
    known.set(key, found);
    return found;
  }
  const kinds: Readonly<Record<ParentKind, { readonly kind: ResourceKind; readonly isUsed: boolean }>> = {
    Recorder: { kind: KINDS.recorder, isUsed: true },
    Tailnet: { kind: KINDS.tailnet, isUsed: true },
    ProxyGroup: { kind: KINDS.proxyGroup, isUsed: uses.proxyGroups },
    Connector: { kind: KINDS.connector, isUsed: uses.connectors },
    DNSConfig: { kind: KINDS.dnsConfig, isUsed: uses.dnsConfigs },
    Service: { kind: KINDS.service, isUsed: uses.services },
    Ingress: { kind: KINDS.ingress, isUsed: uses.ingresses },
    Gateway: { kind: KINDS.gateway, isUsed: uses.gateways },
  };
  return {
    /**
     * Returns the resources of one kind. For Services, Ingresses and Gateways, returns only the resources that request
     * a proxy or already have one. Undefined if the settings disable this kind.
     */
    async parents(name: ParentKind) {
      const { kind, isUsed } = kinds[name];
      if (!isUsed) return undefined;
      const objects = await listed(kind, {});
      if (name === 'Service') {
        return objects.filter(
          (one) => isOfInterest(one, servesUnclassed) || groupIn(one.metadata.annotations ?? {}) !== '',
        );
      }
      if (name === 'Gateway') {
        const classes = (await listed(KINDS.gatewayClass, {})).filter(isOurClass);
        return objects.filter((one) => isGatewayOfInterest(one, classes));
      }
      return name === 'Ingress' ? objects.filter(isIngressOfInterest) : objects;
    },
    /** Returns objects with these labels in the operator's namespace. */
    made: (kind: ResourceKind, labelSelector: string) => listed(kind, { namespace, labelSelector }),
    get: ((kind, reference) => client.get(kind, reference)) satisfies KubeClient['get'],
    classes: () => listed(KINDS.proxyClass, {}),
  };
}

/** True if the status of an Ingress has an address. */
export function isShown(object: KubeObject): boolean {
  return parseIngress(object).status.loadBalancer.ingress.length > 0;
}
