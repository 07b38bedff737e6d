/** A custom resource whose replicas are nodes of a tailnet: what its kinds have in common. Pure. */
import { createHash } from 'node:crypto';
import { controllerOf, labelValue, type KubeObject, type OwnerReference, shortened } from '../kube-object.ts';

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
const MAX_GROUP_NAME = 52;

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

/** What a proxy does with packets. */
export type Duty =
  /** From its tailnet address to an address of the cluster. */
  | { readonly kind: 'ingress'; readonly address: string }
  /** The same, to whatever a DNS name says. */
  | { readonly kind: 'ingress-name'; readonly name: string }
  /** From the cluster to one node of the tailnet. */
  | { readonly kind: 'egress-address'; readonly address: string }
  | { readonly kind: 'egress-name'; readonly name: string }
  /** From the cluster to many nodes, as a ConfigMap says. */
  | { readonly kind: 'egress-group'; readonly configMap: string }
  /** From addresses that all nodes of a group share, packets to Services and requests to what Ingresses say. */
  | {
      readonly kind: 'ingress-group';
      readonly orders: (ordinal: number) => NodeOrders;
      /** One node asks for certificates, and all have them. */
      readonly sharesCertificates: boolean;
    }
  /** Requests from the tailnet to Services, by their host and path, as a configuration says. */
  | {
      readonly kind: 'web';
      readonly serveConfig: string;
      /** For a server of ours that tailscaled leads connections to; undefined where it serves them itself. */
      readonly table?: string | undefined;
    }
  /** Between the tailnet and whole networks. */
  | {
      readonly kind: 'connector';
      readonly routes: readonly string[];
      readonly appConnector: boolean;
    }
  | ForwardDuty;

/** What needs a privilege to be carried as packets: from or to one place. */
export type PacketDuty = Extract<
  Duty,
  { readonly kind: 'ingress' | 'ingress-name' | 'egress-address' | 'egress-name' }
>;

/** The same without a privilege: TCP connections, port by port. */
export type ForwardDuty =
  /** By tailscaled itself, as a configuration says. */
  | { readonly kind: 'forward-in'; readonly of: PacketDuty; readonly serveConfig: string }
  /** By a listener of ours that dials through tailscaled. */
  | {
      readonly kind: 'forward-out';
      readonly of: PacketDuty;
      readonly target: string;
      readonly ports: readonly number[];
    };

/** What one node of a group is to do. */
export interface NodeOrders {
  /** What it offers to the tailnet: networks, and Tailscale Services by name. */
  readonly routes: readonly string[];
  readonly services: readonly string[];
  /** Where packets to an address go, as containerboot reads it. */
  readonly rules: object;
  /** What tailscaled serves itself. */
  readonly serveConfig: object;
}

export interface Proxy {
  readonly parent: Parent;
  readonly group: NodeGroup;
  readonly duty: Duty;
  /** Name of a replica's node. */
  readonly hostname: (ordinal: number) => string;
  /** Its pods keep to the strictest of Kubernetes' standards, where they carry no packets. */
  readonly restricted?: boolean;
}

/**
 * The name of a parent's objects. It is always the same, so that making them again after a crash makes nothing twice.
 *
 * @param use of parents that several things are made for.
 */
export function objectNameOf({ type, namespace, name }: Parent, use: string = type): string {
  const id = digest(`${use}/${namespace}/${name}`).slice(0, 8);
  // Connectors' names may have dots, Services' may not.
  const readable = name.replaceAll('.', '-').slice(0, MAX_GROUP_NAME - 'ts--'.length - id.length);
  return `ts-${readable.replace(/-+$/, '')}-${id}`;
}

/** A DNS label: one that is too long is cut, and stays different from others that begin alike. */
export function dnsLabel(name: string): string {
  return shortened(name.replaceAll('.', '-'), 63);
}

export interface ProxyGroupOptions {
  readonly kind: 'Service' | 'Ingress' | 'Gateway' | 'Connector';
  readonly parent: Parent;
  readonly uid: string;
  readonly replicas: number;
  readonly tags: readonly string[];
  readonly defaultTags: readonly string[];
  /** Of objects that are there already. */
  readonly objectName: string | undefined;
}

/** The nodes of a proxy. Their account may read and write their own state and nothing else. */
export function proxyNodes({ kind, parent, uid, replicas, ...options }: ProxyGroupOptions): NodeGroup {
  const name = options.objectName ?? objectNameOf(parent);
  return {
    kind,
    name,
    uid,
    owned: false,
    replicas,
    tags: tagsOf(options.tags, options.defaultTags),
    labels: parentLabels(parent),
    account: { name, annotations: {}, shared: false },
  };
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
