/**
 * Checks whether a proxy is ready: its pods are ready, and its nodes have joined and applied their rules. Also opens
 * readiness gates.
 */
import { z } from 'zod';
import { type KubeObject, KINDS } from '../kube-object.ts';
import type { ReplicaNode } from './keys.ts';
import type { Observed } from './observe.ts';
import { timeOf } from '../clock.ts';
import type { ReconcilerDeps } from './reconciler.ts';
import { stateSecretName, type NodeGroup } from './workload.ts';

const statusSchema = z.object({
  metadata: z.object({ generation: z.number().default(0) }),
  status: z
    .object({
      observedGeneration: z.number().default(0),
      readyReplicas: z.number().default(0),
      updatedReplicas: z.number().default(0),
    })
    .prefault({}),
});

/** Returns the condition that a proxy does not meet yet, or undefined if it is ready. */
export function missingCondition(
  { replicas }: NodeGroup,
  joined: number,
  observed: Observed,
): string | undefined {
  if (joined < replicas) {
    return `waiting for proxy pod to finish auth: ${joined}/${replicas} nodes have joined`;
  }
  const ready = readyPodsOf(observed.statefulSet);
  return ready < replicas ? `waiting for proxy pods: ${ready}/${replicas} are ready` : undefined;
}

/**
 * True if the node has joined and its rules are in effect. containerboot writes the pod uid to the state Secret when it
 * starts, and the device ID when the rules are in effect.
 */
export function hasJoined(group: NodeGroup, { ordinal, state }: ReplicaNode, { pods }: Observed): boolean {
  const uid = pods.get(stateSecretName(group.name, ordinal));
  return (
    state.deviceId !== undefined &&
    state.dnsName !== undefined &&
    state.addresses.length > 0 &&
    (state.podUid === undefined || state.podUid === uid)
  );
}

/**
 * Returns the number of pods of a StatefulSet that are ready and run its current template. During a roll-out, the
 * result is an upper bound.
 */
export function readyPodsOf(statefulSet: KubeObject | undefined): number {
  if (statefulSet === undefined) return 0;
  const { metadata, status } = statusSchema.parse(statefulSet);
  return status.observedGeneration < metadata.generation
    ? 0
    : Math.min(status.readyReplicas, status.updatedReplicas);
}

const podSchema = z.object({
  metadata: z.object({ name: z.string(), uid: z.string(), deletionTimestamp: z.string().optional() }),
  spec: z.object({ nodeName: z.string().optional() }).prefault({}),
  status: z
    .object({
      podIPs: z.array(z.object({ ip: z.string() })).default([]),
      conditions: z.array(z.looseObject({ type: z.string(), status: z.string() })).default([]),
    })
    .prefault({}),
});

export interface GatedPod {
  readonly object: KubeObject;
  readonly name: string;
  readonly uid: string;
  readonly node: string | undefined;
  readonly addresses: readonly string[];
  /** True if the pod's containers are ready. */
  readonly up: boolean;
  /** True if the pod is being deleted. */
  readonly going: boolean;
  readonly gate: boolean;
  /** Index of the gate's condition in the list of the pod's conditions; -1 if the list lacks it. */
  readonly gateAt: number;
}

/** @param gate condition type of the readiness gate */
export function readGatedPod(object: KubeObject, gate: string): GatedPod {
  const { metadata, spec, status } = podSchema.parse(object);
  const isTrue = (type: string): boolean =>
    status.conditions.some((one) => one.type === type && one.status === 'True');
  return {
    object,
    name: metadata.name,
    uid: metadata.uid,
    node: spec.nodeName,
    addresses: status.podIPs.map(({ ip }) => ip),
    up: isTrue('ContainersReady'),
    going: metadata.deletionTimestamp !== undefined,
    gate: isTrue(gate),
    gateAt: status.conditions.findIndex(({ type }) => type === gate),
  };
}

/**
 * True if the addresses in the report are those of this pod. The Secret may still contain the report of an earlier pod.
 */
export function isBy(
  { addresses }: Pick<GatedPod, 'addresses'>,
  { podIPv4, podIPv6 }: { readonly podIPv4: string; readonly podIPv6: string },
): boolean {
  return [podIPv4, podIPv6].some((ip) => ip !== '' && addresses.includes(ip));
}

/** Opens the readiness gate of a pod: sets the condition in its status to true. */
export async function openPodGate(
  { client, clock }: Pick<ReconcilerDeps, 'client' | 'clock'>,
  { object, gateAt }: GatedPod,
  gate: string,
): Promise<void> {
  const { namespace, name, resourceVersion } = object.metadata;
  const value = { type: gate, status: 'True', lastTransitionTime: timeOf(clock) };
  const body = [
    { op: 'test', path: '/metadata/resourceVersion', value: resourceVersion },
    gateAt < 0
      ? { op: 'add', path: '/status/conditions/-', value }
      : { op: 'replace', path: `/status/conditions/${gateAt}`, value },
  ];
  await client.patch(KINDS.pod, { namespace, name, subresource: 'status' }, { kind: 'json', body });
}
