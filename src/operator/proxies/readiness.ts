/** Whether a proxy does its work: its pods are ready, its nodes have joined, and their rules are in. Pure. */
import { z } from 'zod';
import type { KubeObject } from '../kube-object.ts';
import type { ReplicaNode } from '../nodes/keys.ts';
import { stateSecretName, type NodeGroup } from '../nodes/node-group.ts';
import type { Observed } from '../nodes/observe.ts';

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

/** What a proxy still waits for; undefined: for nothing. */
export function waitsFor(
  group: NodeGroup,
  nodes: readonly ReplicaNode[],
  observed: Observed,
): string | undefined {
  const joined = nodes.filter((node) => hasJoined(group, node, observed));
  if (joined.length < group.replicas) {
    return `waiting for proxy pod to finish auth: ${joined.length}/${group.replicas} nodes have joined`;
  }
  const ready = readyPodsOf(observed.statefulSet);
  return ready < group.replicas ? `waiting for proxy pods: ${ready}/${group.replicas} are ready` : undefined;
}

/** containerboot says who it is when its rules are in, and which pod it is when it starts. */
export function hasJoined(group: NodeGroup, { ordinal, state }: ReplicaNode, { pods }: Observed): boolean {
  const uid = pods.get(stateSecretName(group.name, ordinal));
  return (
    state.deviceId !== undefined &&
    state.dnsName !== undefined &&
    state.addresses.length > 0 &&
    (state.podUid === undefined || state.podUid === uid)
  );
}

/** Number of pods of a StatefulSet that are ready and run its current template. */
export function readyPodsOf(statefulSet: KubeObject | undefined): number {
  if (statefulSet === undefined) return 0;
  const { metadata, status } = statusSchema.parse(statefulSet);
  return status.observedGeneration < metadata.generation
    ? 0
    : Math.min(status.readyReplicas, status.updatedReplicas);
}
