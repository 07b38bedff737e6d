/** What each reconciler is called for. Pure, but for the reconcilers that are passed through. */
import type { Supervision, Watched } from './controller.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import type { Reconciler } from './nodes/lifecycle.ts';
import { kindSelector } from './nodes/node-group.ts';
import { parentOf, typeSelector, type ParentType } from './proxies/labels.ts';
import { connectorClassOf } from './connector/resource.ts';
import { isOfInterest, proxyClassNameOf, withoutTheRest } from './service/interest.ts';

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

export function superviseConnectors(reconciler: Reconciler, namespace: string): Supervision {
  return {
    reconciler,
    resources: { kind: KINDS.connector, keep: (object) => object, names: byName },
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
): readonly Watched[] {
  return [...CHILDREN, KINDS.service].map((kind) => ({
    kind,
    namespace,
    labelSelector: typeSelector(type),
    names(object) {
      const parent = parentOf(object);
      return parent === undefined ? [] : [nameOf(parent)];
    },
  }));
}
