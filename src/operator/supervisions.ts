/** What each reconciler is called for. Pure, but for the reconcilers that are passed through. */
import type { Supervision, Watched } from './controller.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import type { Reconciler } from './nodes/lifecycle.ts';
import { kindSelector } from './nodes/node-group.ts';
import { parentAmong, parentOf, typeSelector, type ParentType } from './proxies/labels.ts';
import { connectorClassOf } from './connector/resource.ts';
import {
  gatewaysOf,
  isOurClass,
  gatewayHostname,
  parseGateway,
  parseHttpRoute,
  routeBackends,
} from './gateway/resource.ts';
import { nameserverSelector } from './dns/object-specs.ts';
import { frontSelector, LABELS as FRONT_LABELS } from './egress-group/member.ts';
import { backendNames, hostnameOf, isIngressOfInterest, parseIngress } from './ingress/resource.ts';
import { CERTIFICATES } from './ingress-group/certificates.ts';
import { SERVICE_NAME } from './ingress-group/look.ts';
import { MEMBER_FINALIZERS } from './ingress-group/member.ts';
import { groupClassOf, isEgressGroup, isIngressGroup, parseProxyGroup } from './proxy-group/resource.ts';
import { namesAndLabels } from './shared-informers.ts';
import { leadsOut } from './service/purpose.ts';
import { groupIn, isOfInterest, proxyClassNameOf, withoutTheRest } from './service/interest.ts';

/** All but who wrote what. One function, so that reconcilers share their watches. */
function whole({ metadata: { managedFields: _none, ...metadata }, ...object }: KubeObject): KubeObject {
  return { ...object, metadata };
}

const byName = ({ metadata }: KubeObject): readonly string[] => [metadata.name];

/** Recorders and ProxyGroups: all that is made for them carries the name of its owner. */
export function superviseOwner(
  kind: 'Recorder' | 'ProxyGroup',
  reconciler: Reconciler,
  namespace: string,
): Supervision {
  const owned: readonly ResourceKind[] = [...CHILDREN, KINDS.disruptionBudget];
  return {
    reconciler,
    resources: { kind: kind === 'Recorder' ? KINDS.recorder : KINDS.proxyGroup, names: byName },
    others: owned.map((child) => ({
      kind: child,
      namespace,
      labelSelector: kindSelector(kind),
      names({ metadata }) {
        const owner = metadata.labels?.['app.kubernetes.io/instance'];
        return owner === undefined ? [] : [owner];
      },
    })),
    resync: true,
  };
}

/**
 * Services of the whole cluster. Those that are none of ours cost a line of memory and no request; nothing is looked at
 * without a reason, so that a cluster at rest is left in peace.
 *
 * @param defaultClass of Services that name no ProxyClass
 */
export function superviseServices(
  reconciler: Reconciler,
  options: { readonly namespace: string; readonly defaultClass: string; readonly takesUnclassed: boolean },
): Supervision {
  const nameOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name}`;
  return {
    reconciler,
    resources: {
      kind: KINDS.service,
      keep: withoutTheRest,
      names: (service) => (isOfInterest(service, options.takesUnclassed) ? [nameOf(service)] : []),
    },
    others: [
      ...childrenOf('svc', options.namespace, ({ namespace, name }) => `${namespace}/${name}`),
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, services) =>
          services
            .filter((service) => isOfInterest(service, options.takesUnclassed))
            .filter((service) => proxyClassNameOf(service.metadata, options.defaultClass) === metadata.name)
            .map(nameOf),
      },
    ],
    resync: false,
  };
}

/** Ingresses of our class, and those of which something was made. */
export function superviseIngresses(
  reconciler: Reconciler,
  { namespace, defaultClass }: { readonly namespace: string; readonly defaultClass: string },
): Supervision {
  const nameOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name}`;
  const ours = (ingresses: readonly KubeObject[]): readonly KubeObject[] =>
    ingresses.filter(isIngressOfInterest);
  return {
    reconciler,
    resources: {
      kind: KINDS.ingress,
      keep: whole,
      names(object, ingresses) {
        if (!isIngressOfInterest(object)) return [];
        // One that goes makes room for another.
        const hostname = hostnameOf(parseIngress(object));
        const rivals = ours(ingresses).filter((other) => hostnameOf(parseIngress(other)) === hostname);
        return [nameOf(object), ...rivals.map(nameOf)];
      },
    },
    others: [
      ...childrenOf('ingress', namespace, ({ namespace: of, name }) => `${of}/${name}`),
      {
        kind: KINDS.service,
        // As other reconcilers keep them.
        keep: withoutTheRest,
        names: ({ metadata }, ingresses) =>
          ours(ingresses)
            .filter((ingress) => ingress.metadata.namespace === metadata.namespace)
            .filter((ingress) => backendNames(parseIngress(ingress)).includes(metadata.name))
            .map(nameOf),
      },
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, ingresses) =>
          ours(ingresses)
            .filter((ingress) => proxyClassNameOf(ingress.metadata, defaultClass) === metadata.name)
            .map(nameOf),
      },
    ],
    resync: false,
  };
}

/** Gateways of all classes: which are ours is looked up. */
export function superviseGateways(
  reconciler: Reconciler,
  { namespace, defaultClass }: { readonly namespace: string; readonly defaultClass: string },
): Supervision {
  const nameOf = ({ metadata }: KubeObject): string => `${metadata.namespace ?? ''}/${metadata.name}`;
  return {
    reconciler,
    resources: {
      kind: KINDS.gateway,
      keep: whole,
      names(object, gateways) {
        // One that goes makes room for another.
        const hostname = gatewayHostname(parseGateway(object));
        const rivals = gateways.filter((other) => gatewayHostname(parseGateway(other)) === hostname);
        return [nameOf(object), ...rivals.map(nameOf)];
      },
    },
    others: [
      ...childrenOf('gateway', namespace, ({ namespace: of, name }) => `${of}/${name}`),
      {
        kind: KINDS.gatewayClass,
        keep: whole,
        names: ({ metadata }, gateways) =>
          gateways
            .filter((gateway) => parseGateway(gateway).spec.gatewayClassName === metadata.name)
            .map(nameOf),
      },
      { kind: KINDS.httpRoute, keep: whole, names: (route) => gatewaysOf(parseHttpRoute(route)) },
      {
        kind: KINDS.service,
        // As other reconcilers keep them.
        keep: withoutTheRest,
        names: ({ metadata }, _gateways, others) =>
          others(KINDS.httpRoute)
            .filter((route) => route.metadata.namespace === metadata.namespace)
            .map(parseHttpRoute)
            .filter((route) => routeBackends(route).includes(metadata.name))
            .flatMap(gatewaysOf),
      },
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, gateways) =>
          gateways
            .filter((gateway) => proxyClassNameOf(gateway.metadata, defaultClass) === metadata.name)
            .map(nameOf),
      },
    ],
    resync: false,
  };
}

export function superviseGatewayClasses(reconciler: Reconciler): Supervision {
  return {
    reconciler,
    resources: {
      kind: KINDS.gatewayClass,
      keep: whole,
      names: (one) => (isOurClass(one) ? byName(one) : []),
    },
    others: [],
    resync: false,
  };
}

/** The nodes of ProxyGroups of type egress. */
export function superviseEgressNodes(
  reconciler: Reconciler,
  { namespace, defaultClass }: { readonly namespace: string; readonly defaultClass: string },
): Supervision {
  return {
    reconciler,
    resources: { kind: KINDS.proxyGroup, keep: whole, names: egressGroup },
    others: [
      ...childrenOf('proxygroup', namespace, ({ name }) => name, [...CHILDREN, KINDS.disruptionBudget]),
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, groups) =>
          groups
            .filter((group) => (groupClassOf(group) || defaultClass) === metadata.name)
            .flatMap(egressGroup),
      },
    ],
    resync: true,
  };
}

/** The Services of those groups, by the names of the groups. */
export function superviseEgressServices(reconciler: Reconciler, namespace: string): Supervision {
  const fronts = { namespace, labelSelector: frontSelector() };
  const pods = { namespace, labelSelector: typeSelector('proxygroup') };
  const named = ({ metadata }: KubeObject): readonly string[] => {
    const group = metadata.labels?.[FRONT_LABELS.group];
    return group === undefined ? [] : [group];
  };
  const parentName = (object: KubeObject): readonly string[] => {
    const parent = parentOf(object);
    return parent === undefined ? [] : [parent.name];
  };
  return {
    reconciler,
    resources: {
      kind: KINDS.service,
      keep: withoutTheRest,
      names({ metadata }) {
        const group = groupIn(metadata.annotations ?? {});
        return group === '' ? [] : [group];
      },
    },
    others: [
      { kind: KINDS.proxyGroup, keep: whole, names: egressGroup },
      { kind: KINDS.service, ...fronts, names: named },
      { kind: KINDS.endpointSlice, ...fronts, names: named },
      { kind: KINDS.configMap, ...pods, names: parentName },
      { kind: KINDS.secret, ...pods, names: parentName },
      { kind: KINDS.pod, ...pods, names: parentName },
    ],
    resync: false,
  };
}

/**
 * ProxyGroups of type ingress, with all that they serve. What is marked and names no group concerns them all: one of them has
 * given it something.
 */
export function superviseIngressGroups(
  reconciler: Reconciler,
  {
    namespace,
    defaultClass,
    ...choices
  }: {
    readonly namespace: string;
    readonly defaultClass: string;
    readonly services: boolean;
    readonly ingresses: boolean;
    /** Whether the operator's own control server has them. */
    readonly tailnetServices: boolean;
  },
): Supervision {
  const named = ({ metadata }: KubeObject): string => groupIn(metadata.annotations ?? {});
  const marked = ({ metadata }: KubeObject): boolean =>
    Object.values(MEMBER_FINALIZERS).some((one) => metadata.finalizers?.includes(one) === true);
  /** Of a Service or an Ingress by itself. */
  function groupsOf(object: KubeObject, groups: readonly KubeObject[]): readonly string[] {
    const own = named(object) === '' || leadsOut(object.metadata.annotations ?? {}) ? [] : [named(object)];
    if (!marked(object)) return own;
    const all = groups.flatMap(ingressGroup);
    return all.length + own.length === 0 ? [''] : [...own, ...all];
  }
  const parentName = (object: KubeObject): readonly string[] => {
    const parent = parentOf(object);
    return parent === undefined ? [] : [parent.name];
  };
  const nodes = [...CHILDREN, KINDS.disruptionBudget, KINDS.configMap, KINDS.pod];
  return {
    reconciler,
    resources: { kind: KINDS.proxyGroup, keep: whole, names: ingressGroup },
    others: [
      ...childrenOf('proxygroup', namespace, ({ name }) => name, nodes).map((child) => ({
        ...child,
        // Those of groups of other types are somebody else's.
        names: (object: KubeObject, groups: readonly KubeObject[]) =>
          parentName(object).filter((name) =>
            groups.some((group) => group.metadata.name === name && ingressGroup(group).length > 0),
          ),
      })),
      {
        kind: KINDS.secret,
        namespace,
        labelSelector: CERTIFICATES,
        names: ({ metadata }) =>
          [metadata.labels?.['tailscale.com/proxy-group'] ?? ''].filter((name) => name !== ''),
      },
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, groups) =>
          groups
            .filter((group) => (groupClassOf(group) || defaultClass) === metadata.name)
            .flatMap(ingressGroup),
      },
      {
        kind: KINDS.service,
        keep: withoutTheRest,
        names(service, groups, others) {
          const { namespace: of, name } = service.metadata;
          const behind = others(KINDS.ingress)
            .filter((ingress) => ingress.metadata.namespace === of && named(ingress) !== '')
            .filter((ingress) => backendNames(parseIngress(ingress)).includes(name))
            .map(named);
          return [...(choices.services ? groupsOf(service, groups) : []), ...behind];
        },
      },
      ...(choices.ingresses ? [{ kind: KINDS.ingress, keep: whole, names: groupsOf }] : []),
      // Only Tailscale Services have others to answer in their place.
      ...(choices.services && choices.tailnetServices ? [slicesOf(groupsOf)] : []),
    ],
    resync: true,
  };
}

function ingressGroup(object: KubeObject): readonly string[] {
  return isIngressGroup(parseProxyGroup(object)) ? [object.metadata.name] : [];
}

/** What stands behind Services that a group serves. */
function slicesOf(
  groupsOf: (service: KubeObject, groups: readonly KubeObject[]) => readonly string[],
): Watched {
  return {
    kind: KINDS.endpointSlice,
    keep: namesAndLabels,
    names({ metadata }, groups, others) {
      if (groups.flatMap(ingressGroup).length === 0) return [];
      const name = metadata.labels?.[SERVICE_NAME];
      const service = others(KINDS.service).find(
        (one) => one.metadata.name === name && one.metadata.namespace === metadata.namespace,
      );
      return service === undefined ? [] : groupsOf(service, groups);
    },
  };
}

function egressGroup(object: KubeObject): readonly string[] {
  return isEgressGroup(parseProxyGroup(object)) ? [object.metadata.name] : [];
}

export function superviseConnectors(reconciler: Reconciler, namespace: string): Supervision {
  return {
    reconciler,
    resources: { kind: KINDS.connector, keep: whole, names: byName },
    others: [
      ...childrenOf('connector', namespace, ({ name }) => name),
      {
        kind: KINDS.proxyClass,
        names: ({ metadata }, connectors) =>
          connectors.filter((one) => connectorClassOf(one) === metadata.name).flatMap(byName),
      },
    ],
    resync: false,
  };
}

/** All names are one file: whatever changes about them concerns every DNSConfig, of which there is one. */
export function superviseDns(reconciler: Reconciler, namespace: string): Supervision {
  const all = (_object: KubeObject, resources: readonly KubeObject[]): readonly string[] =>
    resources.flatMap(byName);
  const names = [KINDS.statefulSet, KINDS.secret, KINDS.service, KINDS.endpointSlice].map((kind) => ({
    kind,
    namespace,
    labelSelector: typeSelector('svc'),
    names: all,
  }));
  const own = [KINDS.deployment, KINDS.service, KINDS.configMap, KINDS.serviceAccount].map((kind) => ({
    kind,
    namespace,
    labelSelector: nameserverSelector(),
    names: all,
  }));
  return {
    reconciler,
    resources: {
      kind: KINDS.dnsConfig,
      names: (object, resources) => [object.metadata.name, ...resources.flatMap(byName)],
    },
    others: [...names, ...own],
    resync: false,
  };
}

export function superviseClasses(reconciler: Reconciler): Supervision {
  return { reconciler, resources: { kind: KINDS.proxyClass, names: byName }, others: [], resync: false };
}

const CHILDREN: readonly ResourceKind[] = [
  KINDS.statefulSet,
  KINDS.serviceAccount,
  KINDS.secret,
  KINDS.role,
  KINDS.roleBinding,
];

function childrenOf(
  type: ParentType,
  namespace: string,
  nameOf: (parent: { readonly namespace: string; readonly name: string }) => string,
  kinds: readonly ResourceKind[] = [...CHILDREN, KINDS.service],
): readonly Watched[] {
  return kinds.map((kind) => ({
    kind,
    namespace,
    labelSelector: typeSelector(type),
    names(object, resources) {
      const parent = parentAmong(object, resources);
      return parent === undefined ? [] : [nameOf(parent)];
    },
  }));
}
