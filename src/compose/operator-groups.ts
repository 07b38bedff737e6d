/** The controllers of ProxyGroups and of the resources that they serve. */
import type { ControllerSpec } from '../operator/controller.ts';
import { createEgressNodesReconciler } from '../operator/egress-group/nodes.ts';
import { createEgressReconciler } from '../operator/egress-group/reconcile.ts';
import { createIngressGroupReconciler } from '../operator/ingress-group/reconcile.ts';
import type { ReconcilerDeps } from '../operator/workload/reconciler.ts';
import { createProxyGroupReconciler } from '../operator/proxy-group/reconcile.ts';
import {
  egressNodesController,
  egressServicesController,
  ingressGroupController,
  ownerController,
} from '../operator/controllers.ts';

/**
 * Returns the controllers for ProxyGroups of all types. A group whose type is disabled gets a condition with the
 * reason.
 */
export function groupControllers(deps: ReconcilerDeps): readonly (readonly [string, ControllerSpec])[] {
  const { options } = deps;
  const { services, ingresses } = options.reconciled;
  const specs: (readonly [string, ControllerSpec])[] = [
    ['ProxyGroup', ownerController('ProxyGroup', createProxyGroupReconciler(deps), options)],
  ];
  if (services || ingresses)
    specs.push(['IngressGroup', ingressGroupController(createIngressGroupReconciler(deps), options)]);
  if (services)
    specs.push(
      ['EgressNodes', egressNodesController(createEgressNodesReconciler(deps), options)],
      ['EgressServices', egressServicesController(createEgressReconciler(deps), options)],
    );
  return specs;
}
