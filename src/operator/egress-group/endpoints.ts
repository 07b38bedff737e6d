/** Which pods of a group take the connections of a Service, by what they say themselves. Pure. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { secretData } from '../workload/node-state.ts';
import { GATES } from '../workload/proxy-specs.ts';
import { isBy, readGatedPod, type GatedPod } from '../workload/readiness.ts';
import { rulesOf, SERVICES_KEY, type PortRule } from './config-map.ts';
import { HEALTH_PORT, type ServiceFront, type PortPair } from './member.ts';

/** What the StatefulSet waits for before it replaces the next pod. */
export const GATE = GATES.egress;

const reportSchema = z.object({
  podIPv4: z.string().default(''),
  podIPv6: z.string().default(''),
  services: z
    .record(
      z.string(),
      z.object({
        ports: z
          .array(z.object({ protocol: z.string(), matchPort: z.number(), targetPort: z.number() }))
          .nullish(),
        tailnetTargetIPs: z.array(z.string()).nullish(),
        tailnetTarget: z.object({ ip: z.string().default(''), fqdn: z.string().default('') }).prefault({}),
      }),
    )
    .nullish(),
});

type Report = z.infer<typeof reportSchema>;

/** A pod of the group, with what it says that it forwards. */
export interface GroupPod extends GatedPod {
  /** Undefined: it has not said anything yet; what an earlier pod said does not count. */
  readonly report: Report | undefined;
}

/** @param secret its state Secret */
export function readPod(object: KubeObject, secret: KubeObject | undefined): GroupPod {
  const pod = readGatedPod(object, GATE);
  const said = secret === undefined ? undefined : secretData(secret).get(SERVICES_KEY);
  const report = said === undefined ? undefined : reportSchema.safeParse(jsonOrUndefined(said)).data;
  return { ...pod, report: report !== undefined && isBy(pod, report) ? report : undefined };
}

/** How a pod stands with a Service. */
interface Standing {
  /** It has read what is wanted now, whether or not it knows the target. */
  readonly informed: boolean;
  /** Rules that are in force, of those that are wanted. */
  readonly rules: readonly PortRule[];
}

const NOTHING: Standing = { informed: false, rules: [] };

function standingOf({ report }: GroupPod, front: ServiceFront): Standing {
  const said = report?.services?.[front.key];
  const { target } = front;
  if (said === undefined || target === undefined) return NOTHING;
  if (said.tailnetTarget.ip !== target.ip || said.tailnetTarget.fqdn !== target.fqdn) return NOTHING;
  const inForce = new Set((said.ports ?? []).map(textOf));
  const wanted = rulesOf(front);
  const rules = wanted.filter((rule) => inForce.has(textOf(rule)));
  const known = (said.tailnetTargetIPs ?? []).length > 0;
  return {
    informed: rules.length === wanted.length && inForce.size === wanted.length,
    rules: known ? rules : [],
  };
}

function textOf({ protocol, matchPort, targetPort }: PortRule): string {
  return `${protocol}/${matchPort}/${targetPort}`;
}

/** What the pods of a group make of a Service. */
export interface Serving {
  /** Pods that forward everything that is wanted. */
  readonly complete: number;
  /** Pods that have read what is wanted, and do not know the target. */
  readonly unresolved: number;
  /** Ports that every pod which takes connections forwards. */
  readonly ports: readonly PortPair[];
  readonly pods: readonly GroupPod[];
}

/**
 * A pod takes connections as soon as it forwards one port of the Service; the Service has the ports that all of these
 * forward. So a port that is added comes when the last of them has it, and the others never go away for it.
 */
export function servingOf(front: ServiceFront, pods: readonly GroupPod[]): Serving {
  const standings = pods.map((pod) => ({ pod, ...standingOf(pod, front) }));
  const up = standings.filter(({ pod }) => pod.up && !pod.going);
  const taking = standings.filter(({ pod, rules }) => pod.up && rules.length > 0);
  const deciding = taking.filter(({ pod }) => !pod.going);
  // Where all are going, they are what there is.
  const common = (deciding.length > 0 ? deciding : taking).map(
    ({ rules }) => new Set(rules.map((rule) => rule.matchPort)),
  );
  const ports = front.ports.filter(
    ({ nodePort }) => common.length > 0 && common.every((rules) => rules.has(nodePort)),
  );
  return {
    complete: up.filter(({ rules }) => rules.length === front.ports.length).length,
    unresolved: up.filter(({ informed, rules }) => informed && rules.length === 0).length,
    ports,
    pods: taking.map(({ pod }) => pod),
  };
}

/** One slice for each family of addresses that the Service has. A pod that ends is taken where there is no other. */
export function slicesOf(
  front: ServiceFront,
  { ports, pods }: Serving,
): readonly (DesiredObject & { readonly endpoints: readonly object[] })[] {
  const { name, namespace = '', uid = '' } = front.object.metadata;
  const owner = { apiVersion: 'v1', kind: 'Service', name, uid, controller: true, blockOwnerDeletion: false };
  const families = new Set(front.addresses.map((address) => isIP(address)));
  return [...families]
    .toSorted((a, b) => a - b)
    .map((family) => ({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: {
        name: `${name}-ipv${family}`,
        namespace,
        labels: {
          ...front.object.metadata.labels,
          'kubernetes.io/service-name': name,
          'endpointslice.kubernetes.io/managed-by': 'tailscale.com',
        },
        ownerReferences: [owner],
      },
      addressType: `IPv${family}`,
      endpoints: pods
        .toSorted((a, b) => (a.name < b.name ? -1 : 1))
        .flatMap(({ addresses, uid: podUid, node, going }) => {
          const address = addresses.find((one) => isIP(one) === family);
          if (address === undefined) return [];
          return [
            {
              addresses: [address],
              hostname: podUid,
              conditions: { ready: !going, serving: true, terminating: going },
              ...(node === undefined ? {} : { nodeName: node }),
            },
          ];
        }),
      ports:
        ports.length === 0
          ? []
          : [
              ...ports.map(({ name: portName, protocol, nodePort }) => ({
                name: portName,
                protocol,
                port: nodePort,
              })),
              { name: 'tailscale-health-check', protocol: 'TCP', port: HEALTH_PORT },
            ],
    }));
}

/**
 * Whether a pod has taken over everything: it has read what is wanted of every Service, and is among those that take
 * connections where it can. One whose target nobody knows does not hold the others up.
 */
export function hasTakenOver(pod: GroupPod, fronts: readonly ServiceFront[]): boolean {
  return (
    pod.up &&
    !pod.going &&
    fronts.every((front) => front.target === undefined || standingOf(pod, front).informed)
  );
}
