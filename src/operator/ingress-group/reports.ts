/** What the nodes of a group say that they do. Pure. */
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

/** The member of a node's state Secret in which containerboot says what it forwards. */
const REPORT = 'ingress-config.json';

const reportSchema = z.object({
  podIPv4: z.string().default(''),
  podIPv6: z.string().default(''),
  configs: z.record(z.string(), z.unknown()).nullish(),
});

/** A node of the group, and the pod that runs as it now. */
export interface GroupNode extends NodeFacts {
  readonly ordinal: number;
  readonly dnsName: string | undefined;
  readonly https: boolean;
  /** What it offers, as its tailscaled says. */
  readonly offers: { readonly routes: readonly string[]; readonly services: readonly string[] };
  readonly pod: GatedPod | undefined;
}

/** @param secret its state Secret */
export function readGroupNode(
  ordinal: number,
  secret: KubeObject | undefined,
  pod: KubeObject | undefined,
): GroupNode {
  const gated = pod === undefined ? undefined : readGatedPod(pod, GATES.ingress);
  if (secret === undefined) return { ...UNKNOWN, ordinal, pod: gated };
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

const NO_OFFER = { routes: [], services: [] };
const UNKNOWN: Omit<GroupNode, 'ordinal' | 'pod'> = {
  dnsName: undefined,
  https: true,
  joined: false,
  addresses: [],
  offer: NO_OFFER,
  offers: NO_OFFER,
  forwards: () => false,
};

/** What an earlier pod said does not count. */
function configsOf(
  data: ReadonlyMap<string, string>,
  pod: GatedPod | undefined,
): ReadonlyMap<string, unknown> {
  const said = reportSchema.safeParse(jsonOrUndefined(data.get(REPORT) ?? '')).data;
  if (said === undefined || pod === undefined || !isBy(pod, said)) return new Map();
  return new Map(Object.entries(said.configs ?? {}));
}

/** Whether a node answers for a member: it runs, forwards what comes, and offers the address. */
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
 * Whether a pod has taken over: it does everything that its node was told. What was not told yet does not hold a roll-out up.
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
    const told =
      mode === 'route'
        ? exposure.addresses.every((address) => node.offer.routes.includes(hostRoute(address)))
        : node.offer.services.includes(name);
    return !told || isIdle(exposure) || serves(mode, exposure, node);
  });
}
