/** Taking the node of a replica out of the tailnet. Effects. */
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { KubeObject } from '../kube-object.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import { machineKeyOf, readNodeState } from './node-state.ts';

export interface DepartureDeps {
  readonly metrics: Pick<OperatorMetrics, 'devicesDeleted'>;
  readonly log: Logger;
}

/**
 * Removes the node that a state Secret tells of. Where it names none that is there, a pod may have registered one and
 * ended before it said so: such a node has the machine key of the Secret. No name is gone by, for names are anybody's.
 */
export async function removeNode(
  deps: DepartureDeps,
  state: KubeObject,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<void> {
  const { deviceId } = readNodeState(state);
  const remove = async (id: string): Promise<boolean> => {
    const removed = await control.deleteDevice(id, signal);
    if (removed) {
      deps.metrics.devicesDeleted.inc();
      deps.log.info({ replica: state.metadata.name, deviceId: id }, 'node removed from the tailnet');
    }
    return removed;
  };
  if (deviceId !== undefined && (await remove(deviceId))) return;
  const machineKey = machineKeyOf(state);
  if (machineKey === undefined) return;
  const known = await control.allDevices(signal);
  for (const { id } of known.filter((node) => node.machineKey === machineKey)) await remove(id);
}
