/**
 * A *member* is a Service that leads to the tailnet through an egress group. Its *front* is a Service of type ClusterIP
 * in the operator's namespace. For each port of a member, the operator reserves one *node port*: a port of the group's
 * pods, and not a NodePort of Kubernetes. Pure.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { parentLabels, parentOf, objectNameOf } from '../workload/workload.ts';
import type { TailnetTarget } from '../service/classify.ts';
import type { Service } from '../service/resource.ts';
import { ANNOTATIONS } from '../service/predicates.ts';

/**
 * Labels of front Services, in addition to the labels of all objects. The reference (Tailscale's operator) uses the
 * same labels.
 */
export const LABELS = { group: 'tailscale.com/proxy-group', type: 'tailscale.com/svc-type' } as const;
const EGRESS = 'egress';
/**
 * Annotations in which a front Service stores its target. Users specify a target with other annotations. If a front
 * Service had the annotations of users, the operator would create a proxy for the front Service.
 */
const TARGET = { ip: 'tailcast.dev/target-ip', fqdn: 'tailcast.dev/target-fqdn' } as const;

/** Health check port of the nodes. It is not in the range of the node ports for Services. */
export const HEALTH_PORT = 9002;
const HEALTH_NAME = 'tailscale-health-check';
const LAST_HEALTH_PORT = 10_002;

/** First node port for Services. */
const FIRST_PORT = 10_000;
/** Maximum number of Service ports in one group. */
const PORTS_OF_A_GROUP = 1000;

const portSchema = z.object({
  name: z.string().default(''),
  port: z.number(),
  protocol: z.string().default('TCP'),
});

const frontSchema = z.object({
  spec: z
    .object({
      clusterIP: z.string().default(''),
      clusterIPs: z.array(z.string()).default([]),
      ports: z
        .array(portSchema.extend({ targetPort: z.union([z.number(), z.string()]).optional() }))
        .default([]),
    })
    .prefault({}),
});

/** A port of a Service, and the node port for it. */
export interface PortPair {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly nodePort: number;
}

/** A front Service, read from the cluster. Node ports are stored only in front Services. */
export interface ServiceFront {
  readonly object: KubeObject;
  /** Key of the member: `<namespace>.<name>`. Neither part of the key contains a dot. */
  readonly key: string;
  readonly ports: readonly PortPair[];
  /** Port of the front Service for the health check of the nodes. */
  readonly healthPort: number;
  /** Cluster IPs of the front Service; empty until the API server has assigned them. */
  readonly addresses: readonly string[];
  /** Target of the member; undefined if the front Service lacks the annotation because another operator created it. */
  readonly target: TailnetTarget | undefined;
}

/** Returns the key of a Service in its group. */
export function keyOf({
  namespace,
  name,
}: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return `${namespace ?? ''}.${name}`;
}

/** @returns undefined if the object lacks the labels that name a Service */
export function readFront(object: KubeObject): ServiceFront | undefined {
  const parent = parentOf(object);
  if (parent === undefined) return undefined;
  const { spec } = frontSchema.parse(object);
  const health = spec.ports.find(({ name }) => name === HEALTH_NAME);
  const ports = spec.ports.flatMap(({ name, port, protocol, targetPort }) =>
    name === HEALTH_NAME || typeof targetPort !== 'number'
      ? []
      : [{ name, port, protocol, nodePort: targetPort }],
  );
  const addresses = spec.clusterIPs.length > 0 ? spec.clusterIPs : [spec.clusterIP];
  const { [TARGET.ip]: ip = '', [TARGET.fqdn]: fqdn = '' } = object.metadata.annotations ?? {};
  return {
    object,
    key: keyOf(parent),
    ports,
    healthPort: health?.port ?? HEALTH_PORT,
    addresses: addresses.filter((address) => address !== '' && address !== 'None'),
    target: ip === '' && fqdn === '' ? undefined : { ip, fqdn },
  };
}

/** Returns the problem with the ports of a member, or undefined. */
export function problemOfPorts({ spec }: Service): string | undefined {
  const ports = spec.ports;
  if (ports.length === 0)
    return 'spec.ports: name at least one port, because Services of a group share its nodes';
  const odd = ports.find(({ protocol }) => protocol !== 'TCP' && protocol !== 'UDP');
  return odd === undefined ? undefined : `spec.ports: ${odd.protocol} cannot be forwarded: use TCP or UDP`;
}

/**
 * Assigns a node port to every port of a Service. A port keeps its node port, even if the name of the port changes.
 *
 * @param taken node ports of other Services of the group
 * @returns undefined if the group has no free ports
 */
export function assignPorts(
  member: Service,
  front: ServiceFront | undefined,
  taken: ReadonlySet<number>,
): readonly PortPair[] | undefined {
  const before = new Map(
    front?.ports.map(({ port, protocol, nodePort }) => [`${protocol}/${port}`, nodePort]),
  );
  const used = new Set([...taken, ...before.values()]);
  const pairs: PortPair[] = [];
  for (const { name, port, protocol } of member.spec.ports) {
    const kept = before.get(`${protocol}/${port}`);
    const nodePort =
      kept !== undefined && isNodePort(kept) && !taken.has(kept)
        ? kept
        : freePort(used, `${keyOf(member.metadata)}/${protocol}/${port}`);
    if (nodePort === undefined) return undefined;
    used.add(nodePort);
    pairs.push({ name: name === '' ? 'tailscale-unnamed' : name, port, protocol, nodePort });
  }
  return pairs;
}

/**
 * Returns the reason why a Service cannot get its node ports, or undefined. The Services of a namespace get at most
 * half of the ports that other namespaces leave free, so that no namespace can take all ports.
 */
export function problemOfShare(
  group: string,
  namespace: string,
  {
    wanted,
    before,
    others,
  }: {
    /** Ports that the Service needs; undefined if the group has no free ports. */
    readonly wanted: readonly PortPair[] | undefined;
    readonly before: ServiceFront | undefined;
    readonly others: readonly ServiceFront[];
  },
): string | undefined {
  const count = (fronts: readonly ServiceFront[]): number =>
    fronts.reduce((sum, { ports }) => sum + ports.length, 0);
  const own = count(others.filter(({ key }) => key.startsWith(`${namespace}.`)));
  const taken = count(others);
  const share = Math.floor((PORTS_OF_A_GROUP - (taken - own)) / 2);
  const isGrowing = wanted === undefined || wanted.length > (before?.ports.length ?? 0);
  if (!isGrowing || own + (wanted?.length ?? PORTS_OF_A_GROUP) <= share) return undefined;
  return (
    `spec.ports: ${taken} of ${PORTS_OF_A_GROUP} ports of ProxyGroup "${group}" are taken, and namespace ` +
    `${namespace} may use ${share}: name another in ${ANNOTATIONS.proxyGroup}`
  );
}

function isNodePort(port: number): boolean {
  return port >= FIRST_PORT && port < FIRST_PORT + PORTS_OF_A_GROUP;
}

/**
 * Returns a free node port. The search starts at a hash of `seed`, so that a recreated Service usually gets the same
 * node ports.
 */
function freePort(used: ReadonlySet<number>, seed: string): number | undefined {
  const start = hash('sha256', seed, 'buffer').readUInt32BE() % PORTS_OF_A_GROUP;
  for (let step = 0; step < PORTS_OF_A_GROUP; step += 1) {
    const port = FIRST_PORT + ((start + step) % PORTS_OF_A_GROUP);
    if (!used.has(port)) return port;
  }
  return undefined;
}

/** Returns a label selector for the front Services of one group, or of all groups if `group` is undefined. */
export function frontSelector(group?: string): string {
  return `${LABELS.type}=${EGRESS}${group === undefined ? '' : `,${LABELS.group}=${group}`}`;
}

function frontLabels(group: string, { namespace = '', name }: Service['metadata']): Record<string, string> {
  return { ...parentLabels({ type: 'svc', namespace, name }), [LABELS.group]: group, [LABELS.type]: EGRESS };
}

/** Returns the front Service of a member. */
export function frontObject(
  group: string,
  { metadata }: Service,
  target: TailnetTarget,
  pairs: readonly PortPair[],
  { namespace, name }: { readonly namespace: string; readonly name: string | undefined },
): DesiredObject & { readonly spec: object } {
  const parent = { namespace: metadata.namespace ?? '', name: metadata.name };
  const taken = new Set(pairs.filter(({ protocol }) => protocol === 'TCP').map(({ port }) => port));
  let healthPort = HEALTH_PORT;
  while (taken.has(healthPort) && healthPort < LAST_HEALTH_PORT) healthPort += 1;
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      // The name depends on the group, because the front Service in the member's previous group may still exist.
      name: name ?? objectNameOf({ type: 'svc', ...parent, name: metadata.name }, `egress/${group}`),
      namespace,
      labels: frontLabels(group, metadata),
      annotations: target.fqdn === '' ? { [TARGET.ip]: target.ip } : { [TARGET.fqdn]: target.fqdn },
      ownerReferences: [],
    },
    spec: {
      type: 'ClusterIP',
      ipFamilyPolicy: 'PreferDualStack',
      ports: [
        ...pairs.map(({ nodePort, ...port }) => ({ ...port, targetPort: nodePort })),
        { name: HEALTH_NAME, port: healthPort, protocol: 'TCP', targetPort: HEALTH_PORT },
      ],
    },
  };
}
