/** Reads the reports of a group's nodes. Pure. */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { KubeObject } from '../kube-object.ts';
import { hostRoute } from '../networks.ts';
import type { ReplicaNode } from '../workload/keys.ts';
import { readNodeState, secretData } from '../workload/node-state.ts';
import { sameJson } from '../workload/status.ts';
import { GATES } from '../workload/proxy-specs.ts';
import { isBy, readGatedPod, type GatedPod } from '../workload/readiness.ts';
import { isIdle, ruleOf, type ServedMember, type NodeFacts, type ServeMode } from './plan.ts';
import { tailnetServiceName } from './tailnet-service.ts';
import { offerIn } from '../workload/proxy-config.ts';

/** Field of a node's state Secret in which containerboot reports its forwarding rules. */
const REPORT = 'ingress-config.json';

const reportSchema = z.object({
  podIPv4: z.string().default(''),
  podIPv6: z.string().default(''),
  configs: z.record(z.string(), z.unknown()).nullish(),
});

/** A node of the group, and its current pod. */
export interface GroupNode extends NodeFacts {
  readonly ordinal: number;
  readonly dnsName: string | undefined;
  readonly https: boolean;
  /** Routes and Tailscale Services that the node's tailscaled advertises. */
  readonly offers: { readonly routes: readonly string[]; readonly services: readonly string[] };
  readonly pod: GatedPod | undefined;
}

/** @param secret state Secret of the node */
export function readGroupNode(
  ordinal: number,
  secret: KubeObject | undefined,
  pod: KubeObject | undefined,
): GroupNode {
  const gated = pod === undefined ? undefined : readGatedPod(pod, GATES.ingress);
  const state = readNodeState(secret);
  const data = secretData(secret);
  const configs = configsOf(data, gated);
  return {
    ordinal,
    dnsName: state.dnsName,
    https: state.https,
    joined: state.deviceId !== undefined && state.addresses.length > 0,
    addresses: state.addresses,
    offer: offerIn(data),
    offers: { routes: state.routes, services: state.advertised },
    forwards: (name, rule) => sameJson(configs.get(name), rule),
    pod: gated,
  };
}

/** Returns the configurations that the pod has reported. Reports of an earlier pod with the same name are ignored. */
function configsOf(
  data: ReadonlyMap<string, string>,
  pod: GatedPod | undefined,
): ReadonlyMap<string, unknown> {
  const report = reportSchema.safeParse(jsonOrUndefined(data.get(REPORT) ?? '')).data;
  if (report === undefined || pod === undefined || !isBy(pod, report)) return new Map();
  return new Map(Object.entries(report.configs ?? {}));
}

/**
 * True if a node serves a member: the pod of the node is ready, forwards the member's packets, and advertises the
 * member's address.
 */
export function serves(mode: ServeMode, exposure: ServedMember, node: GroupNode): boolean {
  const { pod, joined, offers } = node;
  if (pod === undefined || !pod.up || pod.going || !joined || isIdle(exposure)) return false;
  const name = tailnetServiceName(exposure.member);
  const rule = ruleOf(mode, exposure, node.addresses);
  if (rule !== undefined && !node.forwards(name, rule)) return false;
  return mode === 'route'
    ? exposure.addresses.every((address) => offers.routes.includes(hostRoute(address)))
    : offers.services.includes(name);
}

/**
 * True if a pod has applied the configuration of its node, so that the roll-out may replace the next pod. Members that
 * this configuration does not advertise are ignored.
 */
export function followsOrders(
  mode: ServeMode,
  exposures: readonly ServedMember[],
  node: GroupNode,
  { state, ordinal }: ReplicaNode,
): boolean {
  const { pod } = node;
  if (pod === undefined || ordinal !== node.ordinal || !pod.up || pod.going || !node.joined) return false;
  if (state.podUid !== undefined && state.podUid !== pod.uid) return false;
  return exposures.every((exposure) => {
    const name = tailnetServiceName(exposure.member);
    const isAdvertised =
      mode === 'route'
        ? exposure.addresses.every((address) => node.offer.routes.includes(hostRoute(address)))
        : node.offer.services.includes(name);
    return !isAdvertised || isIdle(exposure) || serves(mode, exposure, node);
  });
}
