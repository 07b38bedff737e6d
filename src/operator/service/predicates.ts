/** Selects the Services that the operator handles. Reads only the fields that the cache stores. Pure. */
import { z } from 'zod';
import { FINALIZER, type KubeObject } from '../kube-object.ts';

/** `spec.loadBalancerClass` of the operator's Services. */
const LOAD_BALANCER_CLASS = 'tailscale';

/** Annotations of a Service. The names are those of the reference (Tailscale's operator). */
export const ANNOTATIONS = {
  expose: 'tailscale.com/expose',
  hostname: 'tailscale.com/hostname',
  tags: 'tailscale.com/tags',
  proxyClass: 'tailscale.com/proxy-class',
  proxyGroup: 'tailscale.com/proxy-group',
  targetName: 'tailscale.com/tailnet-fqdn',
  targetAddress: 'tailscale.com/tailnet-ip',
  /** Earlier name of the annotation `targetAddress`. */
  targetAddressOld: 'tailscale.com/ts-tailnet-target-ip',
} as const;

const specSchema = z.object({
  spec: z
    .object({
      type: z.string().default('ClusterIP'),
      loadBalancerClass: z.string().optional(),
      clusterIP: z.string().optional(),
      ports: z
        .array(
          z.object({ name: z.string().optional(), port: z.number(), appProtocol: z.string().optional() }),
        )
        .nullish(),
    })
    .prefault({}),
});

/**
 * True if a Service requests something from the operator, or has the operator's finalizer.
 *
 * @param servesUnclassed true if the operator serves LoadBalancer Services without a `loadBalancerClass`
 */
export function isOfInterest(service: KubeObject, servesUnclassed: boolean): boolean {
  const { finalizers = [], annotations = {} } = service.metadata;
  if (finalizers.includes(FINALIZER)) return true;
  const asked = [
    ANNOTATIONS.expose,
    ANNOTATIONS.targetName,
    ANNOTATIONS.targetAddress,
    ANNOTATIONS.targetAddressOld,
  ];
  if (asked.some((name) => annotations[name] !== undefined)) return true;
  const { spec } = specSchema.parse(service);
  return isOurLoadBalancer(spec, servesUnclassed);
}

/** True if a LoadBalancer Service belongs to the operator. */
export function isOurLoadBalancer(
  { type, loadBalancerClass }: { readonly type: string; readonly loadBalancerClass?: string | undefined },
  servesUnclassed: boolean,
): boolean {
  if (type !== 'LoadBalancer') return false;
  return loadBalancerClass === undefined ? servesUnclassed : loadBalancerClass === LOAD_BALANCER_CLASS;
}

/** Returns the name of the ProxyGroup of a Service or an Ingress; empty for none. */
export function groupIn(annotations: Readonly<Record<string, string>>): string {
  return annotations[ANNOTATIONS.proxyGroup] ?? '';
}

/** Returns the name of a resource's ProxyClass: from its label, its annotation, or the default; empty for none. */
export function proxyClassNameOf(
  { labels, annotations }: Pick<KubeObject['metadata'], 'labels' | 'annotations'>,
  defaultClass: string,
): string {
  // A label or annotation with an empty name is ignored.
  const names = [labels?.[ANNOTATIONS.proxyClass], annotations?.[ANNOTATIONS.proxyClass]];
  return names.find((name) => name !== undefined && name !== '') ?? defaultClass;
}

/**
 * Finalizers of Services and Ingresses that a group serves. They have the names that the reference uses, so that the
 * operator can also release objects that the reference has served.
 */
export const MEMBER_FINALIZERS = {
  svc: 'tailscale.com/service-pg-finalizer',
  ingress: 'tailscale.com/ingress-pg-finalizer',
} as const;

/** True if a group serves the Service or Ingress, or served it before and has not released it yet. */
export function hasGroupFinalizer({ metadata }: KubeObject): boolean {
  return Object.values(MEMBER_FINALIZERS).some((one) => metadata.finalizers?.includes(one) === true);
}

/**
 * Returns the part of a Service that the cache stores. Services of groups are stored completely. For other Services,
 * the cache stores only the fields that determine whether the operator handles them, because a cluster may have
 * thousands of Services.
 */
export function projectService(service: KubeObject): KubeObject {
  const { apiVersion, kind, metadata, ...rest } = service;
  const { managedFields: _none, labels = {}, annotations = {}, ...kept } = metadata;
  if (groupIn(annotations) !== '' || hasGroupFinalizer(service))
    return { ...service, metadata: { ...kept, labels, annotations } };
  const { name, namespace, uid, resourceVersion, finalizers, deletionTimestamp } = kept;
  const ours = (map: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(Object.entries(map).filter(([key]) => key.startsWith('tailscale.com/')));
  return {
    apiVersion,
    kind,
    metadata: {
      name,
      namespace,
      uid,
      resourceVersion,
      ...(finalizers === undefined ? {} : { finalizers }),
      ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
      labels: ours(labels),
      annotations: ours(annotations),
    },
    spec: specSchema.parse(rest).spec,
  };
}
