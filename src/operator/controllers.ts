/**
 * The controllers. Each reconciles resources of one kind, and watches other objects whose changes start a
 * reconciliation. Pure.
 */
import type { ControllerSpec, Watched } from './controller.ts';
import { nameserverSelector } from './dns/object-specs.ts';
import { frontSelector, LABELS as FRONT_LABELS } from './egress-group/member.ts';
import { gatewayHostname, gatewaysOf, isOurClass, parseGateway, parseHttpRoute } from './gateway/resource.ts';
import {
  CONNECTORS,
  CONNECTORS_BY_CLASS,
  ENDPOINT_SLICES,
  GATEWAY_CLASSES,
  GATEWAYS,
  GATEWAYS_BY_CLASS,
  GATEWAYS_BY_HOST,
  GATEWAYS_BY_PROXY_CLASS,
  GROUPS_BY_CLASS,
  HTTP_ROUTES,
  ingressGroup,
  INGRESS_GROUPS,
  INGRESSES,
  INGRESSES_BY_BACKEND,
  INGRESSES_BY_CLASS,
  INGRESSES_BY_HOST,
  namedGroup,
  PROXY_GROUPS,
  ROUTES_BY_BACKEND,
  SERVICES,
  SERVICES_BY_CLASS,
  SERVICES_BY_NAME,
  serviceOfSlice,
} from './indexes.ts';
import { CERTIFICATES } from './ingress-group/certificates.ts';
import { hostnameOf, isIngressOfInterest, parseIngress } from './ingress/resource.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import type { Reconciler } from './workload/reconciler.ts';
import { nameSelection } from './workload/names.ts';
import {
  kindSelector,
  parentAmong,
  parentOf,
  typeSelector,
  type ParentType,
  type SpecOptions,
} from './workload/workload.ts';
import { fullName, type CachedObjects, type ObjectIndex, type Selection } from './object-cache.ts';
import { FORMAT_LABELS } from '../kube/cluster-objects.ts';
import { clusterSelectorOf, SECRET_FORMATS } from './proxy-group/clusters.ts';
import { isEgressGroup, parseProxyGroup } from './proxy-group/resource.ts';
import { POLICY_LABEL } from './proxy-group-policy/admission-specs.ts';
import { hasGroupFinalizer, isOfInterest } from './service/predicates.ts';
import { leadsOut } from './service/classify.ts';

const own = (object: KubeObject): readonly string[] => [fullName(object)];

/** Controller of Recorders, or of ProxyGroups of type kube-apiserver. */
export function ownerController(
  kind: 'Recorder' | 'ProxyGroup',
  reconciler: Reconciler,
  { namespace }: SpecOptions,
): ControllerSpec {
  return {
    reconciler,
    resources: { ...(kind === 'Recorder' ? { kind: KINDS.recorder } : PROXY_GROUPS), names: own },
    others: [
      ...[...CHILDREN, KINDS.disruptionBudget].map((child) => ({
        kind: child,
        namespace,
        labelSelector: kindSelector(kind),
        names: labelled('app.kubernetes.io/instance'),
      })),
      ...(kind === 'Recorder' ? [] : clusterSecrets(namespace)),
    ],
    resync: true,
  };
}

/**
 * Watches the Secrets that describe clusters. A change of such a Secret reconciles the ProxyGroups that serve
 * additional clusters.
 */
function clusterSecrets(namespace: string): readonly Watched[] {
  return SECRET_FORMATS.map((format) => ({
    kind: KINDS.secret,
    namespace,
    labelSelector: FORMAT_LABELS[format],
    names: (_secret, cached) =>
      cached
        .all(PROXY_GROUPS)
        .filter((group) => clusterSelectorOf(parseProxyGroup(group)) !== '')
        .flatMap(own),
  }));
}

/**
 * Controller of the Services of all namespaces. It skips Services that need no proxy. For this decision, it reads only
 * the cached objects and sends no requests.
 */
export function serviceController(
  reconciler: Reconciler,
  { namespace, defaultClass, servesUnclassed }: SpecOptions,
): ControllerSpec {
  const ours = (service: KubeObject): boolean => isOfInterest(service, servesUnclassed);
  return {
    reconciler,
    resources: { ...SERVICES, names: (service) => (ours(service) ? own(service) : []) },
    others: [
      ...childrenOf('svc', namespace, SERVICES),
      classWatch(SERVICES_BY_CLASS, defaultClass, (service) => (ours(service) ? own(service) : [])),
    ],
    resync: false,
  };
}

/** Controller of the Ingresses that have the operator's IngressClass or its finalizer. */
export function ingressController(
  reconciler: Reconciler,
  { namespace, defaultClass }: SpecOptions,
): ControllerSpec {
  const ours = (ingress: KubeObject): readonly string[] => (isIngressOfInterest(ingress) ? own(ingress) : []);
  return {
    reconciler,
    resources: {
      ...INGRESSES,
      // A deleted Ingress frees its hostname, so Ingresses with the same hostname are reconciled too.
      names: (ingress, cached) =>
        isIngressOfInterest(ingress)
          ? [ingress, ...cached.by(INGRESSES_BY_HOST, hostnameOf(parseIngress(ingress)))].flatMap(own)
          : [],
    },
    others: [
      ...childrenOf('ingress', namespace, INGRESSES),
      {
        ...SERVICES,
        names: (service, cached) => cached.by(INGRESSES_BY_BACKEND, fullName(service)).flatMap(ours),
      },
      classWatch(INGRESSES_BY_CLASS, defaultClass),
    ],
    resync: false,
  };
}

/** Controller of the Gateways of all classes. The reconciler checks the class. */
export function gatewayController(
  reconciler: Reconciler,
  { namespace, defaultClass }: SpecOptions,
): ControllerSpec {
  return {
    reconciler,
    resources: {
      ...GATEWAYS,
      // A deleted Gateway frees its hostname, so Gateways with the same hostname are reconciled too.
      names: (gateway, cached) =>
        [gateway, ...cached.by(GATEWAYS_BY_HOST, gatewayHostname(parseGateway(gateway)))].flatMap(own),
    },
    others: [
      ...childrenOf('gateway', namespace, GATEWAYS),
      {
        ...GATEWAY_CLASSES,
        names: ({ metadata }, cached) => cached.by(GATEWAYS_BY_CLASS, metadata.name).flatMap(own),
      },
      { ...HTTP_ROUTES, names: (route) => gatewaysOf(parseHttpRoute(route)) },
      {
        ...SERVICES,
        names: (service, cached) =>
          cached
            .by(ROUTES_BY_BACKEND, fullName(service))
            .flatMap((route) => gatewaysOf(parseHttpRoute(route))),
      },
      classWatch(GATEWAYS_BY_PROXY_CLASS, defaultClass),
    ],
    resync: false,
  };
}

export function gatewayClassController(reconciler: Reconciler): ControllerSpec {
  const names = (one: KubeObject): readonly string[] => (isOurClass(one) ? own(one) : []);
  return { reconciler, resources: { ...GATEWAY_CLASSES, names }, others: [], resync: false };
}

/** Controller of the nodes of ProxyGroups of type egress. */
export function egressNodesController(
  reconciler: Reconciler,
  { namespace, defaultClass }: SpecOptions,
): ControllerSpec {
  return {
    reconciler,
    resources: { ...PROXY_GROUPS, names: egressGroup },
    others: [
      ...childrenOf('proxygroup', namespace, PROXY_GROUPS, [...CHILDREN, KINDS.disruptionBudget]),
      classWatch(GROUPS_BY_CLASS, defaultClass, egressGroup),
    ],
    resync: true,
  };
}

/** Controller of the Services of egress groups. Its keys are the names of groups. */
export function egressServicesController(reconciler: Reconciler, { namespace }: SpecOptions): ControllerSpec {
  const fronts = { namespace, labelSelector: frontSelector(), names: labelled(FRONT_LABELS.group) };
  const pods = { namespace, labelSelector: typeSelector('proxygroup'), names: parentName };
  return {
    reconciler,
    resources: { ...SERVICES, names: namedGroup },
    others: [
      { ...PROXY_GROUPS, names: egressGroup },
      { kind: KINDS.service, ...fronts },
      { kind: KINDS.endpointSlice, ...fronts },
      { kind: KINDS.configMap, ...pods },
      { kind: KINDS.secret, ...pods },
      { kind: KINDS.pod, ...pods },
    ],
    resync: false,
  };
}

/**
 * Controller of ProxyGroups of type ingress, together with the Services and Ingresses that they serve. Its keys are
 * the names of groups.
 */
export function ingressGroupController(
  reconciler: Reconciler,
  { namespace, defaultClass, reconciled: { services, ingresses }, hasTailnetServices }: SpecOptions,
): ControllerSpec {
  // With the empty key, the reconciler releases members that have a group's finalizer but no longer belong to a group.
  const groupsOf = (object: KubeObject): readonly string[] => {
    const named = leadsOut(object.metadata.annotations ?? {}) ? [] : namedGroup(object);
    return named.length === 0 && hasGroupFinalizer(object) ? [''] : named;
  };
  const nodes = [...CHILDREN, KINDS.disruptionBudget, KINDS.configMap, KINDS.pod];
  return {
    reconciler,
    resources: { ...PROXY_GROUPS, names: ingressGroup },
    others: [
      ...childrenOf('proxygroup', namespace, PROXY_GROUPS, nodes).map((child) => ({
        ...child,
        // Groups of other types have their own controllers.
        names: (object: KubeObject, cached: CachedObjects) =>
          parentName(object).filter((name) => cached.by(INGRESS_GROUPS, name).length > 0),
      })),
      {
        kind: KINDS.secret,
        namespace,
        labelSelector: CERTIFICATES,
        names: labelled('tailscale.com/proxy-group'),
      },
      // Reconcilers read the ConfigMaps of tailnet names from the cache, but changes of these ConfigMaps start no
      // reconciliation.
      { ...nameSelection(namespace), names: () => [] },
      classWatch(GROUPS_BY_CLASS, defaultClass, ingressGroup),
      {
        ...SERVICES,
        names: (service, cached) => [
          ...(services ? groupsOf(service) : []),
          ...(ingresses ? cached.by(INGRESSES_BY_BACKEND, fullName(service)).flatMap(namedGroup) : []),
        ],
      },
      ...(ingresses ? [{ ...INGRESSES, names: groupsOf }] : []),
      // Endpoints matter only for Tailscale Services, which several clusters can serve: if no endpoint in this cluster
      // is ready, callers can use another cluster.
      ...(services && hasTailnetServices
        ? [
            {
              ...ENDPOINT_SLICES,
              names: (slice: KubeObject, cached: CachedObjects) =>
                cached.by(SERVICES_BY_NAME, serviceOfSlice(slice)).flatMap(groupsOf),
            },
          ]
        : []),
    ],
    resync: true,
  };
}

export function connectorController(reconciler: Reconciler, { namespace }: SpecOptions): ControllerSpec {
  return {
    reconciler,
    resources: { ...CONNECTORS, names: own },
    others: [...childrenOf('connector', namespace, CONNECTORS), classWatch(CONNECTORS_BY_CLASS, '')],
    resync: false,
  };
}

/** Controller of DNSConfigs. The nameserver has one file with all names, so each change reconciles every DNSConfig. */
export function dnsController(reconciler: Reconciler, { namespace }: SpecOptions): ControllerSpec {
  const configs: Selection = { kind: KINDS.dnsConfig };
  const watched = (kinds: readonly ResourceKind[], labelSelector: string): readonly Watched[] =>
    kinds.map((kind) => ({
      kind,
      namespace,
      labelSelector,
      names: (_object, cached) => cached.all(configs).flatMap(own),
    }));
  return {
    reconciler,
    resources: { ...configs, names: (config, cached) => [config, ...cached.all(configs)].flatMap(own) },
    others: [
      ...watched([KINDS.statefulSet, KINDS.secret, KINDS.service, KINDS.endpointSlice], typeSelector('svc')),
      ...watched(
        [KINDS.deployment, KINDS.service, KINDS.configMap, KINDS.serviceAccount],
        nameserverSelector(),
      ),
    ],
    resync: false,
  };
}

/** Controller of ProxyGroupPolicies and of the admission policies that enforce them. Its keys are namespaces. */
export function policyController(reconciler: Reconciler): ControllerSpec {
  const policies = [KINDS.admissionPolicy, KINDS.admissionPolicyBinding];
  return {
    reconciler,
    resources: {
      kind: KINDS.proxyGroupPolicy,
      names: ({ metadata: { namespace = '' } }) => [namespace].filter((name) => name !== ''),
    },
    others: policies.map((kind) => ({ kind, labelSelector: POLICY_LABEL, names: labelled(POLICY_LABEL) })),
    resync: false,
  };
}

export function tailnetController(reconciler: Reconciler): ControllerSpec {
  return { reconciler, resources: { kind: KINDS.tailnet, names: own }, others: [], resync: true };
}

export function classController(reconciler: Reconciler): ControllerSpec {
  return { reconciler, resources: { kind: KINDS.proxyClass, names: own }, others: [], resync: false };
}

const CHILDREN: readonly ResourceKind[] = [
  KINDS.statefulSet,
  KINDS.serviceAccount,
  KINDS.secret,
  KINDS.role,
  KINDS.roleBinding,
];

/** Watches the objects that the operator creates for resources of one type (*parents*). */
function childrenOf(
  type: ParentType,
  namespace: string,
  parents: Selection,
  kinds: readonly ResourceKind[] = [...CHILDREN, KINDS.service],
): readonly Watched[] {
  return kinds.map((kind) => ({
    kind,
    namespace,
    labelSelector: typeSelector(type),
    names(object, cached) {
      const parent = parentAmong(object, () => cached.all(parents));
      if (parent === undefined) return [];
      return [parents.kind.namespaced ? `${parent.namespace}/${parent.name}` : parent.name];
    },
  }));
}

/** Watches ProxyClasses. A change of a class reconciles the resources that use it. */
function classWatch(
  index: ObjectIndex,
  defaultClass: string,
  names: (object: KubeObject) => readonly string[] = own,
): Watched {
  return {
    kind: KINDS.proxyClass,
    names: ({ metadata: { name } }, cached) =>
      [name, ...(name === defaultClass ? [''] : [])]
        .flatMap((value) => cached.by(index, value))
        .flatMap(names),
  };
}

function labelled(label: string): (object: KubeObject) => readonly string[] {
  return ({ metadata }) => [metadata.labels?.[label] ?? ''].filter((name) => name !== '');
}

function parentName(object: KubeObject): readonly string[] {
  const parent = parentOf(object);
  return parent === undefined ? [] : [parent.name];
}

function egressGroup(object: KubeObject): readonly string[] {
  return isEgressGroup(parseProxyGroup(object)) ? [object.metadata.name] : [];
}
