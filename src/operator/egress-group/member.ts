/**
 * A Service that leads to the tailnet through a group, and what stands for it in the operator's namespace: a Service of
 * type ClusterIP, each of whose ports has a port of its own on every node of the group. Pure.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { conditionSchema, metadataSchema } from '../workload/schema.ts';
import { parentLabels, parentOf, objectNameOf } from '../workload/workload.ts';
import type { TailnetTarget } from '../service/classify.ts';

/** Labels of what is made for such a Service, beside those that every child has; the reference's. */
export const LABELS = { group: 'tailscale.com/proxy-group', type: 'tailscale.com/svc-type' } as const;
const EGRESS = 'egress';
/** Where it leads. Not in the words of the user's annotations: it would be a Service that asks for a proxy itself. */
const TARGET = { ip: 'tailcast.dev/target-ip', fqdn: 'tailcast.dev/target-fqdn' } as const;

/** Where the nodes answer who they are; the rest of a pod's ports is for the Services. */
export const HEALTH_PORT = 9002;
const HEALTH_NAME = 'tailscale-health-check';
const LAST_HEALTH_PORT = 10_002;

/** Ports of the nodes that Services may have; how many there are bounds what one group serves. */
const FIRST_PORT = 10_000;
export const PORTS_OF_A_GROUP = 1000;

const portSchema = z.object({
  name: z.string().default(''),
  port: z.number(),
  protocol: z.string().default('TCP'),
});

const memberSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      type: z.string().default('ClusterIP'),
      externalName: z.string().default(''),
      loadBalancerClass: z.string().optional(),
      selector: z.record(z.string(), z.string()).nullish(),
      ports: z.array(portSchema).nullish(),
    })
    .prefault({}),
  status: z.object({ conditions: z.array(conditionSchema).default([]) }).prefault({}),
});

/** As a person wrote it. */
export type Member = z.infer<typeof memberSchema>;

/** @throws ZodError when it is no Service */
export function parseMember(object: KubeObject): Member {
  return memberSchema.parse(object);
}

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

/** One port of a Service, and that of the nodes which stands for it. */
export interface PortPair {
  readonly name: string;
  readonly port: number;
  readonly protocol: string;
  readonly nodePort: number;
}

/** What stands for a Service, read back: the ports of the nodes are stored in it and nowhere else. */
export interface ServiceFront {
  readonly object: KubeObject;
  /** `<namespace>.<name>` of the Service; neither has a dot. */
  readonly key: string;
  readonly ports: readonly PortPair[];
  /** Port of the ClusterIP under which the nodes say who they are. */
  readonly healthPort: number;
  /** Empty until the API server has chosen. */
  readonly addresses: readonly string[];
  /** Undefined where another operator has not written it down. */
  readonly target: TailnetTarget | undefined;
}

export function keyOf({
  namespace,
  name,
}: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return `${namespace ?? ''}.${name}`;
}

/** @returns undefined when it does not say what it stands for */
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

/** What is wrong with a Service of a group, beyond its target. */
export function problemOfPorts({ spec }: Member): string | undefined {
  const ports = spec.ports ?? [];
  if (ports.length === 0)
    return 'spec.ports: name at least one; the nodes of a group are shared, so each port has to be said';
  const odd = ports.find(({ protocol }) => protocol !== 'TCP' && protocol !== 'UDP');
  return odd === undefined ? undefined : `spec.ports: ${odd.protocol} cannot be forwarded: use TCP or UDP`;
}

/**
 * A port of the nodes for every port of a Service. What it has stays, whatever it is called.
 *
 * @param taken by other Services of the group
 * @returns undefined when the group has no more
 */
export function assignPorts(
  member: Member,
  front: ServiceFront | undefined,
  taken: ReadonlySet<number>,
): readonly PortPair[] | undefined {
  const before = new Map(
    front?.ports.map(({ port, protocol, nodePort }) => [`${protocol}/${port}`, nodePort]),
  );
  const used = new Set([...taken, ...before.values()]);
  const pairs: PortPair[] = [];
  for (const { name, port, protocol } of member.spec.ports ?? []) {
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

function isNodePort(port: number): boolean {
  return port >= FIRST_PORT && port < FIRST_PORT + PORTS_OF_A_GROUP;
}

/** Beginning where the name of the port leads, so that the same Service finds the same ones again. */
function freePort(used: ReadonlySet<number>, seed: string): number | undefined {
  const start = createHash('sha256').update(seed).digest().readUInt32BE() % PORTS_OF_A_GROUP;
  for (let step = 0; step < PORTS_OF_A_GROUP; step += 1) {
    const port = FIRST_PORT + ((start + step) % PORTS_OF_A_GROUP);
    if (!used.has(port)) return port;
  }
  return undefined;
}

/** Selects what was made for the Services of one group, or of all. */
export function frontSelector(group?: string): string {
  return `${LABELS.type}=${EGRESS}${group === undefined ? '' : `,${LABELS.group}=${group}`}`;
}

function frontLabels(group: string, { namespace = '', name }: Member['metadata']): Record<string, string> {
  return { ...parentLabels({ type: 'svc', namespace, name }), [LABELS.group]: group, [LABELS.type]: EGRESS };
}

/** The Service that stands for another one. */
export function frontObject(
  group: string,
  { metadata }: Member,
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
      // Another one for each group: one that is left may still be going.
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
