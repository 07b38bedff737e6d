/** Common parts of custom resources whose replicas are nodes of a tailnet. Pure. */
import { hash } from 'node:crypto';
import type { Network } from '../networks.ts';
import { controllerOf, labelValue, type KubeObject, type OwnerReference, shortened } from '../kube-object.ts';

/**
 * A tag that authors of resources in one namespace may choose. If `namespace` is undefined, authors in every namespace
 * may choose the tag.
 */
export interface AllowedTag {
  readonly namespace: string | undefined;
  readonly tag: string;
}

export type ReconciledKind =
  | 'proxyGroups'
  | 'services'
  | 'ingresses'
  | 'gateways'
  | 'connectors'
  | 'dnsConfigs';

/** Settings of the operator that reconcilers and watches use. */
export interface SpecOptions {
  /** Namespace of all created objects. */
  readonly namespace: string;
  /** URL of the control server at which the pods log in. */
  readonly loginServer: string;
  /** Default tags, for nodes whose resource has no tags of its own. */
  readonly defaultTags: readonly string[];
  /** Tags that authors of Services, Ingresses and Gateways may choose in addition to the default tags. */
  readonly allowedTags: readonly AllowedTag[];
  /**
   * Tags or IDs of the nodes that may upload to recorders. If empty, every node that the tailnet policy permits may
   * upload.
   */
  readonly recorderUploaders: readonly string[];
  /** Image of tailcast. The first argument of its entry point is the role, such as `recorder`. */
  readonly recorderImage: string;
  /** The stock tailscale image (containerboot and tailscaled). */
  readonly tailscaleImage: string;
  /**
   * MagicDNS domain of the tailnet. If the domain is known, the player accepts requests to the full name of its node.
   */
  readonly tailnetDomain: string | undefined;
  /**
   * Default ProxyClass, for resources that name no ProxyClass; Connectors do not use it. Empty if there is no default.
   */
  readonly defaultClass: string;
  /** Domain of the cluster's DNS, e.g. `cluster.local`. */
  readonly clusterDomain: string;
  /** True if the operator serves LoadBalancer Services without a `loadBalancerClass`. */
  readonly servesUnclassed: boolean;
  /** Kinds of resources that the operator reconciles. */
  readonly reconciled: Readonly<Record<ReconciledKind, boolean>>;
  /** Networks of the addresses that members of ingress groups get if the control server has no Tailscale Services. */
  readonly networks: readonly Network[];
  /** True if the operator's own control server supports Tailscale Services. */
  readonly hasTailnetServices: boolean;
}

/** The resource to which created objects belong. */
export interface ObjectOwner {
  /** Kind of the resource, such as `Recorder`. */
  readonly kind: string;
  /** Name of the StatefulSet, and prefix of other names; for a DNSConfig, the name of the resource. */
  readonly name: string;
  readonly uid: string;
  /**
   * True if the created objects have an owner reference to the resource, so that the garbage collector deletes them.
   * This requires a resource that is cluster-scoped or in the namespace of the objects. If false, labels identify the
   * objects, and the operator deletes each of them.
   */
  readonly owned: boolean;
  /** Labels that identify all objects of the resource. If the user sets the same labels, these values win. */
  readonly labels: Readonly<Record<string, string>>;
}

export interface NodeGroup extends ObjectOwner {
  readonly replicas: number;
  /** Tags of every node; sorted, and never empty. */
  readonly tags: readonly string[];
  /** ServiceAccount of the pods. A shared account belongs to the user, so the operator never deletes it. */
  readonly account: {
    readonly name: string;
    readonly annotations: Readonly<Record<string, string>>;
    readonly shared: boolean;
  };
}

/**
 * Maximum length of a StatefulSet's name. The StatefulSet controller adds a hyphen and a hash of 10 characters to the
 * name, and writes the result to the label `controller-revision-hash` of each pod. A label has at most 63 characters.
 */
export const MAX_GROUP_NAME = 52;

/**
 * Checks the name of a resource whose StatefulSet has the same name. Returns the reason why the name is invalid, or
 * undefined.
 */
export function problemOfName(name: string): string | undefined {
  return name.length <= MAX_GROUP_NAME
    ? undefined
    : `metadata.name: the name has ${name.length} characters, and the pods of a StatefulSet allow at most ${MAX_GROUP_NAME} characters: create the resource again with a shorter name`;
}

/** Kinds whose created objects have an owner reference to the resource. */
type OwningKind = 'Recorder' | 'ProxyGroup';

const MANAGED_BY = 'app.kubernetes.io/managed-by';
const OPERATOR = 'tailscale-operator';

/** Returns the labels of all objects of a group. */
export function groupLabels(kind: OwningKind, name: string): Readonly<Record<string, string>> {
  return {
    'app.kubernetes.io/name': kind.toLowerCase(),
    'app.kubernetes.io/instance': labelValue(name),
    [MANAGED_BY]: OPERATOR,
  };
}

/** Returns labels as a selector for list and watch. */
export function labelSelector(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',');
}

/** Returns a label selector for the objects of all groups whose resources have this kind. */
export function kindSelector(kind: OwningKind): string {
  const { 'app.kubernetes.io/instance': _any, ...labels } = groupLabels(kind, '');
  return labelSelector(labels);
}

export function ownerReference({ kind, name, uid }: ObjectOwner): OwnerReference {
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
 * True if an object belongs to this resource: its owner is the resource, or it has no owner but all labels of the
 * resource. The operator creates some objects without an owner, and a backup tool may have removed the owner.
 */
export function belongsTo(group: ObjectOwner, object: KubeObject): boolean {
  const owner = controllerOf(object);
  if (owner !== undefined) return owner.uid === group.uid;
  return Object.entries(group.labels).every(([key, value]) => object.metadata.labels?.[key] === value);
}

/** Returns the tags, sorted and without duplicates, so that their order in the resource does not matter. */
export function tagsOf(wanted: readonly string[], defaults: readonly string[]): readonly string[] {
  return [...new Set(wanted.length > 0 ? wanted : defaults)].toSorted();
}

/** Returns the numbers from 0 to replicas − 1. */
export function ordinals({ replicas }: NodeGroup): readonly number[] {
  return Array.from({ length: replicas }, (_, ordinal) => ordinal);
}

/**
 * Returns the name of the Secret with the node state of replica `ordinal`. The pod of this replica has the same name.
 */
export function stateSecretName(groupName: string, ordinal: number): string {
  return `${groupName}-${ordinal}`;
}

/** Returns the name of the Secret with the auth key of replica `ordinal`. */
export function authSecretName(groupName: string, ordinal: number): string {
  return `${groupName}-auth-${ordinal}`;
}

/**
 * Derives the purpose of a group's Secret from the name of the Secret. A Secret with any other name does not belong to
 * the group, even if it has the group's labels.
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

/** Type of a parent. A label of the parent's objects contains this type. */
export type ParentType = 'svc' | 'ingress' | 'gateway' | 'connector' | 'proxygroup';

/** A resource that has proxies. */
export interface Parent {
  readonly type: ParentType;
  /** Namespace of the parent; for cluster-scoped parents the operator's namespace. */
  readonly namespace: string;
  readonly name: string;
}

const LABELS = {
  managed: 'tailscale.com/managed',
  name: 'tailscale.com/parent-resource',
  namespace: 'tailscale.com/parent-resource-ns',
  type: 'tailscale.com/parent-resource-type',
} as const;

/**
 * Returns the labels of all objects of a parent. The reference (Tailscale's operator) uses the same labels, so the
 * operator also finds objects that the reference created.
 */
export function parentLabels({ type, namespace, name }: Parent): Readonly<Record<string, string>> {
  return {
    [LABELS.managed]: 'true',
    [LABELS.name]: labelValue(name),
    [LABELS.namespace]: namespace,
    [LABELS.type]: type,
  };
}

/** Returns a label selector for the objects of all parents of a type. */
export function typeSelector(type: ParentType): string {
  return labelSelector({ [LABELS.managed]: 'true', [LABELS.type]: type });
}

/** Returns true for objects that belong to a group of pods of this operator or of the reference. */
export function isOfAnyGroup({ metadata: { labels = {} } }: KubeObject): boolean {
  return labels[LABELS.managed] === 'true' || labels[MANAGED_BY] === OPERATOR;
}

/**
 * Returns the parent of an object from the labels of the object. If the name is too long for a label, the result is the
 * name as shortened by {@link labelValue}.
 */
export function parentOf({ metadata }: KubeObject): Pick<Parent, 'namespace' | 'name'> | undefined {
  const name = metadata.labels?.[LABELS.name];
  const namespace = metadata.labels?.[LABELS.namespace];
  return name === undefined || namespace === undefined ? undefined : { namespace, name };
}

/**
 * Returns the parent of an object. If the label contains a shortened name, looks up the full name in `resources`. If
 * `resources` does not contain the parent, the name stays shortened.
 */
export function parentAmong(
  object: KubeObject,
  resources: () => readonly KubeObject[],
): Pick<Parent, 'namespace' | 'name'> | undefined {
  const parent = parentOf(object);
  if (parent === undefined || !/-[0-9a-f]{8}$/.test(parent.name)) return parent;
  const resource = resources().find(
    ({ metadata: { name, namespace } }) =>
      labelValue(name) === parent.name && (namespace === undefined || namespace === parent.namespace),
  );
  return resource === undefined ? parent : { ...parent, name: resource.metadata.name };
}

/** Task that forwards packets from or to one target. It needs privileges. */
export interface PacketDuty {
  readonly kind: keyof typeof PACKET_DUTIES;
  /** Address or DNS name of the target. */
  readonly target: string;
}

/**
 * Kinds of tasks that forward packets (*packet duties*). `variable` is the environment variable of containerboot with
 * the target, and `annotation` the annotation that shows the target to users who inspect the pod.
 */
export const PACKET_DUTIES = {
  /** Forwards packets from the tailnet to a cluster address. */
  ingress: { annotation: 'cluster-ip', variable: 'TS_DEST_IP' },
  /** Forwards packets from the tailnet to the addresses of a DNS name. */
  'ingress-name': { annotation: 'cluster-dns-name', variable: 'TS_EXPERIMENTAL_DEST_DNS_NAME' },
  /** Forwards packets from the cluster to the address of a node of the tailnet. */
  'egress-address': { annotation: 'ts-tailnet-target-ip', variable: 'TS_TAILNET_TARGET_IP' },
  /** Forwards packets from the cluster to the name of a node of the tailnet. */
  'egress-name': { annotation: 'ts-tailnet-target-fqdn', variable: 'TS_TAILNET_TARGET_FQDN' },
} as const;

/** True if the duty forwards packets from the cluster to the tailnet. */
export function leadsToTailnet({ kind }: PacketDuty): boolean {
  return kind === 'egress-address' || kind === 'egress-name';
}

/** Task of a proxy (*duty*). */
export type Duty =
  | PacketDuty
  /** Forwards packets from the cluster to many nodes, which a ConfigMap lists. */
  | { readonly kind: 'egress-group'; readonly configMap: string }
  /**
   * Serves addresses that all nodes of a group share. The nodes forward packets to Services, and HTTP requests to the
   * backends of Ingresses.
   */
  | {
      readonly kind: 'ingress-group';
      readonly orders: (ordinal: number) => NodeOrders;
      /** True if one node requests certificates for all nodes. */
      readonly sharesCertificates: boolean;
    }
  /** Routes requests from the tailnet to Services by host and path, with a serve configuration. */
  | {
      readonly kind: 'web';
      readonly serveConfig: string;
      /**
       * Ingress table for tailcast's ingress server behind tailscaled; undefined if tailscaled routes the requests
       * itself.
       */
      readonly table?: string | undefined;
    }
  /** Routes packets between the tailnet and networks. */
  | {
      readonly kind: 'connector';
      readonly routes: readonly string[];
      readonly appConnector: boolean;
    }
  | ForwardDuty;

/** Tasks like {@link PacketDuty}, but for pods without privileges, which forward TCP connections instead of packets. */
export type ForwardDuty =
  /** Forwards connections from the tailnet: tailscaled uses a serve configuration. */
  | { readonly kind: 'forward-in'; readonly of: PacketDuty; readonly serveConfig: string }
  /** Forwards connections into the tailnet: tailcast's forwarder accepts them, and dials through tailscaled. */
  | { readonly kind: 'forward-out'; readonly of: PacketDuty; readonly ports: readonly number[] };

/** Configuration of one node of a group. */
export interface NodeOrders {
  /** Routes to networks that the node advertises. */
  readonly routes: readonly string[];
  /** Names of the Tailscale Services that the node advertises. */
  readonly services: readonly string[];
  /** Forwarding rules for packets, in the format of containerboot. */
  readonly rules: object;
  /** Serve configuration of tailscaled. */
  readonly serveConfig: object;
}

export interface Proxy {
  readonly group: NodeGroup;
  readonly duty: Duty;
  /** Returns the hostname of a replica's node. */
  readonly hostname: (ordinal: number) => string;
  /** True if pods must comply with the restricted pod security standard, unless they forward packets. */
  readonly restricted?: boolean;
}

/**
 * Returns the name of a parent's objects. The name is deterministic, so that a second attempt after a crash creates no
 * duplicates.
 *
 * @param use purpose of the objects, for parents that have objects for several purposes
 */
export function objectNameOf({ type, namespace, name }: Parent, use: string = type): string {
  const id = hash('sha256', `${use}/${namespace}/${name}`).slice(0, 8);
  // The name of a Connector may contain dots, but the name of a Service may not.
  const readable = name.replaceAll('.', '-').slice(0, MAX_GROUP_NAME - 'ts--'.length - id.length);
  return `ts-${readable.replace(/-+$/, '')}-${id}`;
}

/** Returns a DNS label. A long name is truncated and gets a hash, so that names with the same prefix stay different. */
export function dnsLabel(name: string): string {
  return shortened(name.replaceAll('.', '-'), 63);
}

/** Returns the nodes of a proxy. Their pods have their own ServiceAccount. */
export function proxyNodes(
  kind: string,
  parent: Parent,
  more: Pick<NodeGroup, 'name' | 'uid' | 'replicas' | 'tags'>,
): NodeGroup {
  const account = { name: more.name, annotations: {}, shared: false };
  return { ...more, kind, owned: false, labels: parentLabels(parent), account };
}
