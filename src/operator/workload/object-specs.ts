/** Objects of a group of nodes, except the StatefulSet. Pure. */
import type { DesiredObject } from '../kube-object.ts';
import {
  authSecretName,
  ordinals,
  ownerReference,
  stateSecretName,
  type NodeGroup,
  type ObjectOwner,
  type SpecOptions,
} from './workload.ts';

/** Annotations of an auth Secret: ID, expiry and tags of the key. */
export const KEY_ANNOTATIONS = {
  id: 'tailcast.dev/key-id',
  expires: 'tailcast.dev/key-expires',
  tags: 'tailcast.dev/tags',
} as const;

type Place = Pick<SpecOptions, 'namespace'>;

export function serviceAccount(group: NodeGroup, options: Place): DesiredObject {
  return {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: metadataOf(group, options, group.account.name, { annotations: group.account.annotations }),
  };
}

/**
 * Returns the Role of the pods, which permits them to store the state of their nodes and to write events. A pod reads
 * its auth key from its state Secret, so it needs no access to the auth Secrets. A group without replicas gets no rule
 * for Secrets, because a rule without resource names would grant access to all Secrets of the namespace.
 *
 * @param readable names of other Secrets that the pods may read
 */
export function role(
  group: NodeGroup,
  options: Place,
  readable: readonly string[] = [],
): DesiredObject & { readonly rules: readonly object[] } {
  const resourceNames = ordinals(group).map((ordinal) => stateSecretName(group.name, ordinal));
  const secrets = {
    apiGroups: [''],
    resources: ['secrets'],
    verbs: ['get', 'patch', 'update'],
    resourceNames,
  };
  const others = { apiGroups: [''], resources: ['secrets'], verbs: ['get'], resourceNames: readable };
  const events = { apiGroups: [''], resources: ['events'], verbs: ['get', 'create', 'patch'] };
  return {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'Role',
    metadata: metadataOf(group, options, group.name),
    rules: [...(resourceNames.length > 0 ? [secrets] : []), events, ...(readable.length > 0 ? [others] : [])],
  };
}

export function roleBinding(group: NodeGroup, options: Place): DesiredObject {
  const desired = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: metadataOf(group, options, group.name),
    subjects: [{ kind: 'ServiceAccount', name: group.account.name, namespace: options.namespace }],
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: group.name },
  };
  return desired;
}

/**
 * Returns the PodDisruptionBudget that permits the eviction of one replica at a time, so that the other replicas keep
 * serving callers while Kubernetes nodes are drained.
 */
export function disruptionBudget(
  group: NodeGroup,
  options: Place,
): DesiredObject & { readonly spec: object } {
  return {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: metadataOf(group, options, group.name),
    spec: { maxUnavailable: 1, selector: { matchLabels: { ...group.labels } } },
  };
}

/** An auth key and its metadata. */
export interface StoredKey {
  readonly key: string;
  /** ID of the key at the control server; undefined for keys that another operator created. */
  readonly id: string | undefined;
  readonly expiresAtMs: number | undefined;
  readonly tags: readonly string[] | undefined;
}

/** Returns the Secret with the auth key of a replica. */
export function authSecret(
  group: NodeGroup,
  options: Place,
  ordinal: number,
  stored: StoredKey,
): DesiredObject & { readonly data: Readonly<Record<string, string>> } {
  const annotations = {
    ...(stored.id === undefined ? {} : { [KEY_ANNOTATIONS.id]: stored.id }),
    ...(stored.expiresAtMs === undefined
      ? {}
      : { [KEY_ANNOTATIONS.expires]: String(Math.round(stored.expiresAtMs)) }),
    ...(stored.tags === undefined ? {} : { [KEY_ANNOTATIONS.tags]: stored.tags.join(',') }),
  };
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: ownerless(metadataOf(group, options, authSecretName(group.name, ordinal), { annotations })),
    data: { authkey: base64(stored.key) },
  };
}

/**
 * Returns the Secret for the state of a replica. The operator creates the Secret before the pod. Otherwise, the pod
 * would create a Secret without the labels.
 *
 * @param data data for the pod, such as the auth key of its tailscaled; empty after the node has joined, so that no
 *   used key stays in the Secret
 */
export function stateSecret(
  group: NodeGroup,
  options: Place,
  ordinal: number,
  data: Readonly<Record<string, string>>,
): DesiredObject & { readonly data?: Readonly<Record<string, string>> } {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: ownerless(metadataOf(group, options, stateSecretName(group.name, ordinal))),
    ...(Object.keys(data).length === 0
      ? {}
      : { data: Object.fromEntries(Object.entries(data).map(([key, value]) => [key, base64(value)])) }),
  };
}

/** Returns the metadata of an object that the operator creates for a resource. */
export function metadataOf(
  group: ObjectOwner,
  { namespace }: Place,
  name: string,
  extra: {
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  } = {},
): DesiredObject['metadata'] {
  const annotations = extra.annotations ?? {};
  return {
    name,
    namespace,
    labels: { ...extra.labels, ...group.labels },
    ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    ownerReferences: group.owned ? [ownerReference(group)] : [],
  };
}

/**
 * Removes the owner reference from the metadata of a node's Secret, which must exist until the node has left the
 * tailnet. A foreground deletion of the resource would delete owned objects before the operator removes the node.
 */
function ownerless(metadata: DesiredObject['metadata']): DesiredObject['metadata'] {
  return { ...metadata, ownerReferences: [] };
}

/** Encodes a value for `data` of a Secret, or `binaryData` of a ConfigMap. */
export function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}
