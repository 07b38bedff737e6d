/** A custom resource whose replicas are nodes of a tailnet: what its kinds have in common. Pure. */
import { controllerOf, labelValue, type KubeObject, type OwnerReference } from '../kube-object.ts';

/** A tag that the authors of a namespace may choose; undefined: of every namespace. */
export interface AllowedTag {
  readonly namespace: string | undefined;
  readonly tag: string;
}

/** What the operator itself is told and every resource needs. */
export interface SpecOptions {
  /** Where all objects are made. */
  readonly namespace: string;
  /** Control server that the pods log in to. */
  readonly loginServer: string;
  /** For resources that name none. */
  readonly defaultTags: readonly string[];
  /** Tags besides the default ones that authors of Services, Ingresses and Gateways may choose. */
  readonly allowedTags: readonly AllowedTag[];
  /** Tags or node IDs that may upload to recorders; none: every node that the tailnet policy lets in. */
  readonly recorderUploaders: readonly string[];
  /** Image of this project; its entry point takes the role as first argument. */
  readonly recorderImage: string;
  /** The stock tailscale image (containerboot and tailscaled). */
  readonly tailscaleImage: string;
  /** MagicDNS domain, so that the player answers under the full name of its node. */
  readonly tailnetDomain: string | undefined;
}

export interface NodeGroup {
  readonly kind: 'Recorder' | 'ProxyGroup' | 'Service' | 'Ingress' | 'Gateway' | 'Connector';
  /** Of the StatefulSet and of what is named after it. */
  readonly name: string;
  readonly uid: string;
  /**
   * Whether what is made for the resource has it as owner, and goes with it. Owners must be in the same namespace, or in
   * none; elsewhere the labels alone say whose an object is, and it is removed one by one.
   */
  readonly owned: boolean;
  readonly replicas: number;
  /** Of every node; sorted, and never empty. */
  readonly tags: readonly string[];
  /** By which everything of the group is found. They win over the user's. */
  readonly labels: Readonly<Record<string, string>>;
  /** The account of the pods. One that is shared is made by somebody else, and stays. */
  readonly account: {
    readonly name: string;
    readonly annotations: Readonly<Record<string, string>>;
    readonly shared: boolean;
  };
}

/**
 * Maximum length of a StatefulSet's name. The StatefulSet controller adds a hyphen and a hash of 10 characters, and puts the result
 * into the label `controller-revision-hash` of each pod.
 */
export const MAX_GROUP_NAME = 52;

/** Returns what is wrong with the name of a resource whose StatefulSet has the same name, or undefined. */
export function problemOfName(name: string): string | undefined {
  return name.length <= MAX_GROUP_NAME
    ? undefined
    : `metadata.name: the name has ${name.length} characters, and the pods of a StatefulSet allow at most ${MAX_GROUP_NAME} characters: create the resource again with a shorter name`;
}

/** The kinds whose objects have them as owner. */
type OwningKind = 'Recorder' | 'ProxyGroup';

/** The labels by which everything of a group is found. */
export function groupLabels(kind: OwningKind, name: string): Readonly<Record<string, string>> {
  return {
    'app.kubernetes.io/name': kind.toLowerCase(),
    'app.kubernetes.io/instance': labelValue(name),
    'app.kubernetes.io/managed-by': 'tailscale-operator',
  };
}

/** Labels as a selector for list and watch. */
export function labelSelector(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}

/** Selects what belongs to any group of a kind. */
export function kindSelector(kind: OwningKind): string {
  const { 'app.kubernetes.io/instance': _any, ...labels } = groupLabels(kind, '');
  return labelSelector(labels);
}

export function ownerReference({ kind, name, uid }: NodeGroup): OwnerReference {
  return {
    apiVersion: 'tailscale.com/v1alpha1',
    kind,
    name,
    uid,
    controller: true,
    blockOwnerDeletion: true,
  };
}

/**
 * Whether an object is this group's: it is owned by it, or nobody owns it and it carries all of its labels, as objects
 * do whose owner reference a backup tool has dropped.
 */
export function belongsTo(group: NodeGroup, object: KubeObject): boolean {
  const owner = controllerOf(object);
  if (owner !== undefined) return owner.uid === group.uid;
  return Object.entries(group.labels).every(([key, value]) => object.metadata.labels?.[key] === value);
}

/** Sorted and without repetitions, so that the order in a resource changes nothing. */
export function tagsOf(wanted: readonly string[], defaults: readonly string[]): readonly string[] {
  return [...new Set(wanted.length > 0 ? wanted : defaults)].toSorted();
}

/** 0 … replicas − 1 */
export function ordinals({ replicas }: NodeGroup): readonly number[] {
  return Array.from({ length: replicas }, (_, ordinal) => ordinal);
}

/** Name of the Secret in which replica `ordinal` keeps its node's state; also the name of its pod. */
export function stateSecretName(groupName: string, ordinal: number): string {
  return `${groupName}-${ordinal}`;
}

/** Name of the Secret in which the operator keeps the auth key of replica `ordinal`. */
export function authSecretName(groupName: string, ordinal: number): string {
  return `${groupName}-auth-${ordinal}`;
}

/**
 * Says what a Secret of a group is for. A Secret with any other name is none of ours, whatever its labels say.
 */
export function secretRole(
  groupName: string,
  secretName: string,
): { readonly kind: 'state' | 'auth'; readonly ordinal: number } | undefined {
  if (!secretName.startsWith(`${groupName}-`)) return undefined;
  const match = /^(auth-)?(0|[1-9]\d{0,8})$/.exec(secretName.slice(groupName.length + 1));
  if (match === null) return undefined;
  return { kind: match[1] === undefined ? 'state' : 'auth', ordinal: Number(match[2]) };
}
