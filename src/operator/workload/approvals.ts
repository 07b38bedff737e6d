/** The routes of nodes, and that the control server lets them through. Effects. */
import { errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { ReplicaNode } from './keys.ts';
import type { ReconcilerDeps } from './reconciler.ts';

/** Sees that the control server lets routes through. */
export interface Approvals {
  /** @returns what people have to do, where the control server does not do it for us */
  see(
    control: TailnetControl,
    nodes: readonly ReplicaNode[],
    routes: readonly string[],
    signal: AbortSignal,
  ): Promise<string | undefined>;
}

export function createApprovals({ log }: Pick<ReconcilerDeps, 'log'>): Approvals {
  /** What was approved for a node, so that it is not asked for at each look. As many as there are nodes. */
  const approved = new Map<string, string>();

  async function approve(
    control: TailnetControl,
    deviceId: string,
    routes: readonly string[],
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const wanted = routes.join();
    if (approved.get(deviceId) === wanted || (routes.length === 0 && !approved.has(deviceId)))
      return undefined;
    try {
      await control.approveRoutes(deviceId, routes, signal);
      approved.set(deviceId, wanted);
      return undefined;
    } catch (error) {
      if (signal.aborted) throw error;
      log.warn({ deviceId, routes, error: errorText(error) }, 'routes not approved');
      return `the operator may not approve its routes (${errorText(error)}): approve them at the control server, or name them in autoApprovers of the policy`;
    }
  }

  return {
    async see(control, nodes, routes, signal) {
      let pending: string | undefined;
      for (const { state } of nodes) {
        if (state.deviceId !== undefined) {
          pending = (await approve(control, state.deviceId, routes, signal)) ?? pending;
        }
      }
      return pending;
    },
  };
}
