/** Selects the pods of a group that accept connections for a Service, based on the reports of the pods. Pure. */
import { isIP } from 'node:net';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { secretData } from '../workload/node-state.ts';
import { GATES } from '../workload/proxy-specs.ts';
import { isBy, readGatedPod, type GatedPod } from '../workload/readiness.ts';
import { rulesOf, SERVICES_KEY, type PortRule } from './config-map.ts';
import { HEALTH_PORT, type ServiceFront, type PortPair } from './member.ts';

/** Readiness gate of the pods. The StatefulSet waits for this gate before it replaces the next pod. */
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

/** A pod of the group, and its report. */
export interface GroupPod extends GatedPod {
  /**
   * Last report of this pod; undefined before its first report. Reports of an earlier pod with the same name are
   * ignored.
   */
  readonly report: Report | undefined;
}

/** @param secret state Secret of the pod */
export function readPod(object: KubeObject, secret: KubeObject | undefined): GroupPod {
  const pod = readGatedPod(object, GATE);
  const text = secretData(secret).get(SERVICES_KEY) ?? '';
  const report = reportSchema.safeParse(jsonOrUndefined(text)).data;
  return { ...pod, report: report !== undefined && isBy(pod, report) ? report : undefined };
}

/** State of a pod with regard to one Service. */
interface Standing {
  /** True if the pod has applied the current rules, even if it could not resolve the target. */
  readonly informed: boolean;
  /** Desired forwarding rules that are in effect. Empty if the pod could not resolve the target. */
  readonly rules: readonly PortRule[];
}

const NOTHING: Standing = { informed: false, rules: [] };

function standingOf({ report }: GroupPod, front: ServiceFront): Standing {
  const service = report?.services?.[front.key];
  const { target } = front;
  if (service === undefined || target === undefined) return NOTHING;
  if (service.tailnetTarget.ip !== target.ip || service.tailnetTarget.fqdn !== target.fqdn) return NOTHING;
  const inForce = new Set((service.ports ?? []).map(textOf));
  const wanted = rulesOf(front);
  const rules = wanted.filter((rule) => inForce.has(textOf(rule)));
  const known = (service.tailnetTargetIPs ?? []).length > 0;
  return {
    informed: rules.length === wanted.length && inForce.size === wanted.length,
    rules: known ? rules : [],
  };
}

function textOf({ protocol, matchPort, targetPort }: PortRule): string {
  return `${protocol}/${matchPort}/${targetPort}`;
}

/** State of a group's pods with regard to one Service. */
export interface Serving {
  /** Number of pods that forward all ports. */
  readonly complete: number;
  /** Number of pods that have applied the rules but could not resolve the target. */
  readonly unresolved: number;
  /** Ports that all accepting pods forward. */
  readonly ports: readonly PortPair[];
  readonly pods: readonly GroupPod[];
}

/**
 * Returns the endpoints of a Service. A pod accepts connections when it forwards at least one port of the Service. The
 * endpoints contain only ports that all accepting pods forward. A new port therefore becomes available only after all
 * of these pods forward it.
 */
export function servingOf(front: ServiceFront, pods: readonly GroupPod[]): Serving {
  const standings = pods.map((pod) => ({ pod, ...standingOf(pod, front) }));
  const up = standings.filter(({ pod }) => pod.up && !pod.going);
  const taking = standings.filter(({ pod, rules }) => pod.up && rules.length > 0);
  const deciding = taking.filter(({ pod }) => !pod.going);
  // If at least one other pod accepts connections, terminating pods do not influence the ports.
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

/**
 * Returns one EndpointSlice for each address family of the Service. Terminating pods are listed as not ready, so
 * Kubernetes uses these pods only if no other pod accepts connections.
 */
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
 * True if a pod has applied the rules of every Service, so that the roll-out may replace the next pod. A target that
 * cannot be resolved does not delay the roll-out. Call this function only after the pod is in the EndpointSlices of all
 * Services that it can serve.
 */
export function hasTakenOver(pod: GroupPod, fronts: readonly ServiceFront[]): boolean {
  return (
    pod.up &&
    !pod.going &&
    fronts.every((front) => front.target === undefined || standingOf(pod, front).informed)
  );
}
