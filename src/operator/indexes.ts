/** Watched objects that several controllers share, and indexes of these objects. Pure. */
import { z } from 'zod';
import { connectorClassOf } from './connector/resource.ts';
import {
  gatewayHostname,
  gatewaysOf,
  parseGateway,
  parseHttpRoute,
  routeBackends,
} from './gateway/resource.ts';
import { backendNames, hostnameOf, isIngressOfInterest, parseIngress } from './ingress/resource.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import {
  fullName,
  namesAndLabels,
  type CachedObjects,
  type ObjectIndex,
  type Selection,
} from './object-cache.ts';
import { groupClassOf, isIngressGroup, parseProxyGroup } from './proxy-group/resource.ts';
import {
  groupIn,
  hasGroupFinalizer,
  isOfInterest,
  projectService,
  proxyClassNameOf,
} from './service/predicates.ts';

const complete = (kind: ResourceKind): Selection => ({ kind, keep: withoutManagedFields });

export const SERVICES: Selection = { kind: KINDS.service, keep: projectService };
export const INGRESSES = complete(KINDS.ingress);
export const PROXY_GROUPS = complete(KINDS.proxyGroup);
export const CONNECTORS = complete(KINDS.connector);
export const GATEWAYS = complete(KINDS.gateway);
export const GATEWAY_CLASSES = complete(KINDS.gatewayClass);
export const HTTP_ROUTES = complete(KINDS.httpRoute);
/** EndpointSlices. The cache stores their names and labels, and whether an endpoint is ready. */
export const ENDPOINT_SLICES: Selection = { kind: KINDS.endpointSlice, keep: projectSlice };

export const SERVICES_BY_NAME = indexBy(SERVICES, (service) => [fullName(service)]);
export const SERVICES_BY_GROUP = indexBy(SERVICES, namedGroup);
/**
 * Index by ProxyClass; the key is empty for Services without a class. The other `_BY_CLASS` indexes have the same
 * keys.
 */
export const SERVICES_BY_CLASS = indexBy(SERVICES, (one) =>
  isOfInterest(one, true) ? [proxyClassNameOf(one.metadata, '')] : [],
);
export const INGRESSES_BY_GROUP = indexBy(INGRESSES, namedGroup);
/** Index with one key, `true`, for Services that have the finalizer of a group. */
export const MARKED_SERVICES = indexBy(SERVICES, (one) => (hasGroupFinalizer(one) ? ['true'] : []));
export const MARKED_INGRESSES = indexBy(INGRESSES, (one) => (hasGroupFinalizer(one) ? ['true'] : []));
/** Index of Ingresses; the keys are the `<namespace>/<name>` of each Service in their paths. */
export const INGRESSES_BY_BACKEND = indexBy(INGRESSES, (ingress) =>
  backendNames(parseIngress(ingress)).map((name) => `${ingress.metadata.namespace ?? ''}/${name}`),
);
export const INGRESSES_BY_HOST = indexBy(INGRESSES, (one) =>
  isIngressOfInterest(one) ? [hostnameOf(parseIngress(one))] : [],
);
export const INGRESSES_BY_CLASS = indexBy(INGRESSES, (one) =>
  isIngressOfInterest(one) ? [proxyClassNameOf(one.metadata, '')] : [],
);
export const GATEWAYS_BY_HOST = indexBy(GATEWAYS, (one) => [gatewayHostname(parseGateway(one))]);
export const GATEWAYS_BY_PROXY_CLASS = indexBy(GATEWAYS, (one) => [proxyClassNameOf(one.metadata, '')]);
export const GATEWAYS_BY_CLASS = indexBy(GATEWAYS, (one) => [parseGateway(one).spec.gatewayClassName]);
export const ROUTES_BY_GATEWAY = indexBy(HTTP_ROUTES, (route) => gatewaysOf(parseHttpRoute(route)));
export const ROUTES_BY_BACKEND = indexBy(HTTP_ROUTES, (route) =>
  routeBackends(parseHttpRoute(route)).map((name) => `${route.metadata.namespace ?? ''}/${name}`),
);
export const SLICES_BY_SERVICE = indexBy(ENDPOINT_SLICES, (slice) => [serviceOfSlice(slice)]);
export const CONNECTORS_BY_CLASS = indexBy(CONNECTORS, (one) => [connectorClassOf(one)]);
export const GROUPS_BY_CLASS = indexBy(PROXY_GROUPS, (group) => [groupClassOf(group)]);
/** Index of ProxyGroups of type ingress. Index keys: name of the group. */
export const INGRESS_GROUPS = indexBy(PROXY_GROUPS, ingressGroup);

/** Returns a list with the name of the group if its type is ingress; otherwise an empty list. */
export function ingressGroup(object: KubeObject): readonly string[] {
  return isIngressGroup(parseProxyGroup(object)) ? [object.metadata.name] : [];
}

/** Returns those of the named Services that exist and are not being deleted, with their names as map keys. */
export function servicesNamed(
  cached: CachedObjects,
  namespace: string | undefined,
  names: Iterable<string>,
): ReadonlyMap<string, KubeObject> {
  const found = [...names].flatMap((name) => cached.by(SERVICES_BY_NAME, `${namespace ?? ''}/${name}`));
  const active = found.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  return new Map(active.map((service) => [service.metadata.name, service]));
}

/** Returns `<namespace>/<name>` of the Service of an EndpointSlice. */
export function serviceOfSlice({ metadata }: KubeObject): string {
  return `${metadata.namespace ?? ''}/${metadata.labels?.['kubernetes.io/service-name'] ?? ''}`;
}

/** True if a cached EndpointSlice has an endpoint that is ready, or whose state is unknown. */
export function hasReadyEndpoint(slice: KubeObject): boolean {
  return slice['ready'] === true;
}

const sliceSchema = z.object({
  endpoints: z
    .array(z.object({ conditions: z.object({ ready: z.boolean().nullish() }).nullish() }))
    .nullish(),
});

function projectSlice(slice: KubeObject): KubeObject {
  const { endpoints } = sliceSchema.parse(slice);
  const ready = endpoints?.some(({ conditions }) => conditions?.ready !== false) === true;
  return { ...namesAndLabels(slice), ready };
}

function withoutManagedFields({
  metadata: { managedFields: _none, ...metadata },
  ...object
}: KubeObject): KubeObject {
  return { ...object, metadata };
}

function indexBy(of: Selection, valuesOf: ObjectIndex['valuesOf']): ObjectIndex {
  return { of, valuesOf };
}

/**
 * Returns a list with the name of the ProxyGroup in the annotation of a Service or an Ingress; an empty list for none.
 */
export function namedGroup({ metadata }: KubeObject): readonly string[] {
  return [groupIn(metadata.annotations ?? {})].filter((name) => name !== '');
}
