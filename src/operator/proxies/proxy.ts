/** A proxy: nodes that carry packets between the tailnet and the cluster for one parent. Pure. */
import { createHash } from 'node:crypto';
import { shortened } from '../kube-object.ts';
import { MAX_GROUP_NAME, tagsOf, type NodeGroup } from '../nodes/node-group.ts';
import { parentLabels, type Parent } from './labels.ts';

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
