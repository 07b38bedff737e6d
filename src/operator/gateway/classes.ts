/** One pass over one GatewayClass: it says whether its Gateways are seen to. Effects only. */
import { KINDS } from '../kube-object.ts';
import { timeOf, type Reconciler, type ReconcilerDeps } from '../nodes/lifecycle.ts';
import { writeStatus } from '../nodes/pass.ts';
import { isOurClass, parseGatewayClass } from './resource.ts';
import { classStatus } from './status.ts';

export function createGatewayClassReconciler(
  deps: Pick<ReconcilerDeps, 'client' | 'clock' | 'leaving'>,
): Reconciler {
  return {
    async reconcile(name, signal) {
      const object = await deps.client.get(KINDS.gatewayClass, { name }, signal);
      if (object === undefined || !isOurClass(object) || deps.leaving === true) return undefined;
      const gatewayClass = parseGatewayClass(object);
      const { metadata } = gatewayClass;
      if (metadata.deletionTimestamp !== undefined) return undefined;
      const status = classStatus(gatewayClass, timeOf(deps.clock));
      await writeStatus(deps, { kind: KINDS.gatewayClass, metadata }, status, signal);
      return undefined;
    },
  };
}
