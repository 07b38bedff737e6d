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
import type { OperatorChoices } from './operator-choices.ts';

/**
 * Returns the controllers for ProxyGroups of all types. A group whose type is disabled gets a condition with the
 * reason.
 */
export function groupControllers(
  deps: ReconcilerDeps,
  choices: OperatorChoices,
): readonly (readonly [string, ControllerSpec])[] {
  const { namespace, services, ingresses } = choices;
  const served = [...(services ? ['egress'] : []), ...(services || ingresses ? ['ingress'] : [])];
  const specs: (readonly [string, ControllerSpec])[] = [
    ['ProxyGroup', ownerController('ProxyGroup', createProxyGroupReconciler(deps, { served }), namespace)],
  ];
  if (services || ingresses)
    specs.push([
      'IngressGroup',
      ingressGroupController(createIngressGroupReconciler(deps, choices), choices),
    ]);
  if (services)
    specs.push(
      ['EgressNodes', egressNodesController(createEgressNodesReconciler(deps, choices), choices)],
      ['EgressServices', egressServicesController(createEgressReconciler(deps, choices), namespace)],
    );
  return specs;
}
