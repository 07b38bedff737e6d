import { containerStatus, type Container } from './container.ts';
import type { ApiObject } from './json.ts';

/** IP address of the node on which all pods run. */
export const HOST_ADDRESS = '127.0.0.1';

/** Computes the `status` of a pod from the state of its containers. */
export function describePodStatus(pod: {
  readonly containers: readonly Container[];
  readonly ephemeral: readonly Container[];
  readonly ip: string;
  readonly startTime: string;
}): ApiObject {
  const phase = phaseOf(pod.containers);
  const ready = pod.containers.length > 0 && pod.containers.every(({ state }) => state.kind === 'running');
  const condition = (type: string, holds: boolean): ApiObject => ({
    type,
    status: holds ? 'True' : 'False',
    lastProbeTime: null,
    lastTransitionTime: pod.startTime,
    ...(holds ? {} : { reason: phase === 'Succeeded' ? 'PodCompleted' : 'ContainersNotReady' }),
  });
  return {
    phase,
    conditions: [
      condition('Initialized', true),
      condition('Ready', ready),
      condition('ContainersReady', ready),
      condition('PodScheduled', true),
    ],
    hostIP: HOST_ADDRESS,
    podIP: pod.ip,
    podIPs: [{ ip: pod.ip }],
    startTime: pod.startTime,
    containerStatuses: pod.containers.map(containerStatus),
    ...(pod.ephemeral.length === 0 ? {} : { ephemeralContainerStatuses: pod.ephemeral.map(containerStatus) }),
    qosClass: 'BestEffort',
  };
}

/** Returns the phase of a pod. Source: kubelet `pkg/kubelet/kubelet_pods.go` (getPhase). */
function phaseOf(containers: readonly Container[]): string {
  if (!containers.every(({ finished }) => finished)) {
    return containers.every(({ state }) => state.kind === 'waiting' && state.reason === 'ContainerCreating')
      ? 'Pending'
      : 'Running';
  }
  const failed = containers.some(({ state }) => state.kind !== 'terminated' || state.exitCode !== 0);
  return failed ? 'Failed' : 'Succeeded';
}
