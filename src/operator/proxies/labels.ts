/** The labels of what is made for a Service or Ingress, which may live in another namespace, a Connector or a group. Pure. */
import { labelValue, type KubeObject } from '../kube-object.ts';
import { labelSelector } from '../nodes/node-group.ts';

/** What a parent is called in labels. */
export type ParentType = 'svc' | 'ingress' | 'gateway' | 'connector' | 'proxygroup';

/** What proxies are made for. */
export interface Parent {
  readonly type: ParentType;
  /** That of the parent, or the operator's where the parent has none. */
  readonly namespace: string;
  readonly name: string;
}

const LABELS = {
  managed: 'tailscale.com/managed',
  name: 'tailscale.com/parent-resource',
  namespace: 'tailscale.com/parent-resource-ns',
  type: 'tailscale.com/parent-resource-type',
} as const;

/** The labels by which everything of a parent is found; the reference's, so that what it made is found as well. */
export function parentLabels({ type, namespace, name }: Parent): Readonly<Record<string, string>> {
  return {
    [LABELS.managed]: 'true',
    [LABELS.name]: labelValue(name),
    [LABELS.namespace]: namespace,
    [LABELS.type]: type,
  };
}

/** Selects what belongs to any parent of a type. */
export function typeSelector(type: ParentType): string {
  return labelSelector({ [LABELS.managed]: 'true', [LABELS.type]: type });
}

/** The parent of an object, from its labels. The name is the label's value: see {@link labelValue}. */
export function parentOf({ metadata }: KubeObject): Pick<Parent, 'namespace' | 'name'> | undefined {
  const name = metadata.labels?.[LABELS.name];
  const namespace = metadata.labels?.[LABELS.namespace];
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

/** The parent of an object, with its complete name where it is one of `resources`. */
export function parentAmong(
  object: KubeObject,
  resources: readonly KubeObject[],
): Pick<Parent, 'namespace' | 'name'> | undefined {
  const parent = parentOf(object);
  if (parent === undefined || !/-[0-9a-f]{8}$/.test(parent.name)) return parent;
  const resource = resources.find(
    ({ metadata: { name, namespace } }) =>
      labelValue(name) === parent.name && (namespace === undefined || namespace === parent.namespace),
  );
  return resource === undefined ? parent : { ...parent, name: resource.metadata.name };
}
