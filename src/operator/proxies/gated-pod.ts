/** Pods of a group that count as ready when the operator says so: the StatefulSet then goes on to the next one. */
import { z } from 'zod';
import { KINDS, type KubeObject } from '../kube-object.ts';
import { timeOf, type ReconcilerDeps } from '../nodes/lifecycle.ts';

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
  /** Its containers are ready. */
  readonly up: boolean;
  /** It is being deleted. */
  readonly going: boolean;
  readonly gate: boolean;
  /** Where its condition is in the list; -1 where there is none. */
  readonly gateAt: number;
}

/** @param gate the condition that the operator sets */
export function readGatedPod(object: KubeObject, gate: string): GatedPod {
  const { metadata, spec, status } = podSchema.parse(object);
  const holds = (type: string): boolean =>
    status.conditions.some((one) => one.type === type && one.status === 'True');
  return {
    object,
    name: metadata.name,
    uid: metadata.uid,
    node: spec.nodeName,
    addresses: status.podIPs.map(({ ip }) => ip),
    up: holds('ContainersReady'),
    going: metadata.deletionTimestamp !== undefined,
    gate: holds(gate),
    gateAt: status.conditions.findIndex(({ type }) => type === gate),
  };
}

/** Whether a report carries the pod's own address: what an earlier pod said stays in the Secret. */
export function isBy(
  { addresses }: Pick<GatedPod, 'addresses'>,
  { podIPv4, podIPv6 }: { readonly podIPv4: string; readonly podIPv6: string },
): boolean {
  return [podIPv4, podIPv6].some((ip) => ip !== '' && addresses.includes(ip));
}

/** Says that a pod has taken over. */
export async function openPodGate(
  { client, clock }: Pick<ReconcilerDeps, 'client' | 'clock'>,
  { object, gateAt }: GatedPod,
  gate: string,
  signal: AbortSignal,
): Promise<void> {
  const { namespace, name, resourceVersion } = object.metadata;
  const value = { type: gate, status: 'True', lastTransitionTime: timeOf(clock) };
  const body = [
    { op: 'test', path: '/metadata/resourceVersion', value: resourceVersion },
    gateAt < 0
      ? { op: 'add', path: '/status/conditions/-', value }
      : { op: 'replace', path: `/status/conditions/${gateAt}`, value },
  ];
  await client.patch(KINDS.pod, { namespace, name, subresource: 'status' }, { kind: 'json', body }, signal);
}
