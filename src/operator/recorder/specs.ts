/** From a Recorder to the objects it stands for, all but the StatefulSet (`stateful-set-specs.ts`). Pure. */
import type { DesiredObject, OwnerReference } from '../kube-object.ts';
import type { Recorder } from './resource.ts';

export const FINALIZER = 'tailscale.com/finalizer';

/** Annotations on the Secret of an auth key: what the control server said of it. */
export const KEY_ANNOTATIONS = {
  id: 'tailcast/key-id',
  expires: 'tailcast/key-expires',
  tags: 'tailcast/tags',
} as const;

/** What the operator itself is told and every Recorder needs. */
export interface SpecOptions {
  /** Where all objects are made. */
  readonly namespace: string;
  /** Control server that the pods log in to. */
  readonly loginServer: string;
  /** For Recorders that name none. */
  readonly defaultTags: readonly string[];
  /** Image of this project; its entry point takes the role as first argument. */
  readonly recorderImage: string;
  /** The stock tailscale image (containerboot and tailscaled). */
  readonly tailscaleImage: string;
  /** MagicDNS domain, so that the player answers under the full name of its node. */
  readonly tailnetDomain: string | undefined;
}

/** The labels by which everything of a Recorder is found. They win over the user's. */
export function baseLabels(recorderName: string): Readonly<Record<string, string>> {
  return {
    'app.kubernetes.io/name': 'recorder',
    'app.kubernetes.io/instance': recorderName,
    'app.kubernetes.io/managed-by': 'tailscale-operator',
  };
}

/** The same as a selector for list and watch; without a name: of all Recorders. */
export function labelSelector(recorderName?: string): string {
  const labels = Object.entries(baseLabels(recorderName ?? '')).filter(
    ([key]) => recorderName !== undefined || key !== 'app.kubernetes.io/instance',
  );
  return labels.map(([key, value]) => `${key}=${value}`).join(',');
}

export function ownerReference({ metadata }: Recorder): OwnerReference {
  return {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'Recorder',
    name: metadata.name,
    uid: metadata.uid,
    controller: true,
    blockOwnerDeletion: true,
  };
}

/** Sorted, so that the order in a resource changes nothing. */
export function tagsOf(
  { spec }: Recorder,
  { defaultTags }: Pick<SpecOptions, 'defaultTags'>,
): readonly string[] {
  return [...new Set(spec.tags.length > 0 ? spec.tags : defaultTags)].toSorted();
}

/** Name of the Secret in which replica `ordinal` keeps its node's state; also the name of its pod. */
export function stateSecretName(recorderName: string, ordinal: number): string {
  return `${recorderName}-${ordinal}`;
}

/** Name of the Secret in which the operator keeps the auth key of replica `ordinal`. */
export function authSecretName(recorderName: string, ordinal: number): string {
  return `${recorderName}-auth-${ordinal}`;
}

/**
 * Says what a Secret of a Recorder is for. A Secret with any other name is none of ours, whatever its labels say.
 */
export function secretRole(
  recorderName: string,
  secretName: string,
): { readonly kind: 'state' | 'auth'; readonly ordinal: number } | undefined {
  if (!secretName.startsWith(`${recorderName}-`)) return undefined;
  const match = /^(auth-)?(0|[1-9]\d{0,8})$/.exec(secretName.slice(recorderName.length + 1));
  if (match === null) return undefined;
  return { kind: match[1] === undefined ? 'state' : 'auth', ordinal: Number(match[2]) };
}

export function serviceAccountName({ metadata, spec }: Recorder): string {
  const { name } = spec.statefulSet.pod.serviceAccount;
  return name === '' ? metadata.name : name;
}

export function serviceAccount(recorder: Recorder, options: SpecOptions): DesiredObject {
  return {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: metadataOf(recorder, options, serviceAccountName(recorder), {
      annotations: recorder.spec.statefulSet.pod.serviceAccount.annotations,
    }),
  };
}

/**
 * What the pods may do: keep their nodes' state, and write events. An auth key reaches its pod inside the state Secret,
 * so the Secrets of the keys are not named. With no replicas there is no rule about Secrets at all: one without names
 * would mean every Secret of the namespace.
 */
export function role(
  recorder: Recorder,
  options: SpecOptions,
): DesiredObject & { readonly rules: readonly object[] } {
  const resourceNames = ordinals(recorder).map((ordinal) => stateSecretName(recorder.metadata.name, ordinal));
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
    metadata: metadataOf(recorder, options, recorder.metadata.name),
    rules: resourceNames.length > 0 ? [secrets, events] : [events],
  };
}

export function roleBinding(recorder: Recorder, options: SpecOptions): DesiredObject {
  const desired = {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'RoleBinding',
    metadata: metadataOf(recorder, options, recorder.metadata.name),
    subjects: [{ kind: 'ServiceAccount', name: serviceAccountName(recorder), namespace: options.namespace }],
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: recorder.metadata.name },
  };
  return desired;
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
  recorder: Recorder,
  options: SpecOptions,
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
    metadata: metadataOf(recorder, options, authSecretName(recorder.metadata.name, ordinal), { annotations }),
    data: { authkey: base64(stored.key) },
  };
}

/**
 * The Secret in which a replica keeps its state. It exists before the pod, so that it has the owner reference.
 *
 * @param authKey what the pod's tailscaled logs in with; undefined once its node is known, so that no used key stays
 *   behind.
 */
export function stateSecret(
  recorder: Recorder,
  options: SpecOptions,
  ordinal: number,
  authKey: string | undefined,
): DesiredObject & { readonly data?: Readonly<Record<string, string>> } {
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: metadataOf(recorder, options, stateSecretName(recorder.metadata.name, ordinal)),
    ...(authKey === undefined ? {} : { data: { authkey: base64(authKey) } }),
  };
}

/** 0 … replicas − 1 */
export function ordinals({ spec }: Recorder): readonly number[] {
  return Array.from({ length: spec.replicas }, (_, ordinal) => ordinal);
}

/** Labels, owner and place that every object of a Recorder has. */
export function metadataOf(
  recorder: Recorder,
  { namespace }: SpecOptions,
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
    labels: { ...extra.labels, ...baseLabels(recorder.metadata.name) },
    ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    ownerReferences: [ownerReference(recorder)],
  };
}

/** Secret data on the wire; keys are ASCII. */
function base64(text: string): string {
  return btoa(text);
}
