/** Approves routes of nodes at the control server. Effects. */
import { errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { ReplicaNode } from './keys.ts';
import type { ReconcilerDeps } from './reconciler.ts';

/** Approves routes at the control server. */
export type Approvals = ReturnType<typeof createApprovals>;

export function createApprovals({ log }: Pick<ReconcilerDeps, 'log'>) {
  /**
   * Routes that this process has approved. Map keys: id of the node. With this cache, a reconciliation sends no
   * request for unchanged routes.
   */
  const approved = new Map<string, string>();

  async function approve(
    control: TailnetControl,
    deviceId: string,
    routes: readonly string[],
  ): Promise<string | undefined> {
    const wanted = routes.join();
    if (approved.get(deviceId) === wanted || (routes.length === 0 && !approved.has(deviceId)))
      return undefined;
    try {
      await control.approveRoutes(deviceId, routes);
      approved.set(deviceId, wanted);
      return undefined;
    } catch (error) {
      log.warn({ deviceId, routes, error: errorText(error) }, 'routes not approved');
      return (
        `the operator may not approve its routes (${errorText(error)}): approve them at the control server, ` +
        'or name them in autoApprovers of the policy'
      );
    }
  }

  return {
    /**
     * Approves the routes of the nodes that have joined.
     * @returns instructions for the user if the control server cannot approve routes through its API
     */
    async see(
      control: TailnetControl,
      nodes: readonly ReplicaNode[],
      routes: readonly string[],
    ): Promise<string | undefined> {
      let pending: string | undefined;
      for (const { state, control: device } of nodes) {
        // If the control server did not return the node, nothing confirms that the node ID in the state Secret is
        // correct, so the operator approves no routes.
        if (state.deviceId !== undefined && device !== undefined) {
          pending = (await approve(control, state.deviceId, routes)) ?? pending;
        }
      }
      return pending;
    },
  };
}
