/** From a group of nodes to the objects it stands for, all but the StatefulSet. Pure. */
import type { DesiredObject } from '../kube-object.ts';
import {
  authSecretName,
  ordinals,
  ownerReference,
  stateSecretName,
  type NodeGroup,
  type SpecOptions,
} from './workload.ts';

/** Annotations on the Secret of an auth key: what the control server said of it. */
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
 * What the pods may do: keep their nodes' state, and write events. An auth key reaches its pod inside the state Secret,
 * so the Secrets of the keys are not named. With no replicas there is no rule about Secrets at all: one without names
 * would mean every Secret of the namespace.
 */
export function role(
  group: NodeGroup,
  options: Place,
): DesiredObject & { readonly rules: readonly object[] } {
  const resourceNames = ordinals(group).map((ordinal) => stateSecretName(group.name, ordinal));
  const secrets = {
    apiGroups: [''],
    resources: ['secrets'],
    verbs: ['get', 'patch', 'update'],
    resourceNames,
  };
  const events = { apiGroups: [''], resources: ['events'], verbs: ['get', 'create', 'patch'] };
  return {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'Role',
    metadata: metadataOf(group, options, group.name),
    rules: resourceNames.length > 0 ? [secrets, events] : [events],
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

/** Machines that are drained take one replica after the other, so that the rest goes on taking callers. */
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

/** An auth key with what must be remembered about it. */
export interface StoredKey {
  readonly key: string;
  /** Undefined for keys that another operator left behind. */
  readonly id: string | undefined;
  readonly expiresAtMs: number | undefined;
  readonly tags: readonly string[] | undefined;
}

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
 * The Secret in which a replica keeps its state. It exists before the pod, so that it has the labels.
 *
 * @param data what the operator hands to the pod, such as the key that its tailscaled logs in with; none once its node is
 *   known, so that no used key stays behind.
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

/** Labels, owner and place that every object of a group has. */
export function metadataOf(
  group: NodeGroup,
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
 * What is known of a node goes after the node. A deletion in the foreground takes everything that has an owner before that
 * one's finalizers are heard.
 */
function ownerless(metadata: DesiredObject['metadata']): DesiredObject['metadata'] {
  return { ...metadata, ownerReferences: [] };
}

/** Secret data on the wire; what we write there is ASCII. */
function base64(text: string): string {
  return btoa(text);
}
