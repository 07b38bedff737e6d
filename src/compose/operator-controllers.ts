/** Creates the controllers of the operator role from its settings. */
import { randomUUID } from 'node:crypto';
import type { OperatorConfig } from '../config/operator.ts';
import type { Logger } from '../observe/logger.ts';
import type { TailnetControl } from '../operator/auth-keys.ts';
import { systemClock } from '../operator/clock.ts';
import type { ClusterConnection } from '../operator/cluster-connection.ts';
import { createConnectorReconciler } from '../operator/connector/reconcile.ts';
import type { ControllerSpec } from '../operator/controller.ts';
import { createDnsReconciler } from '../operator/dns/reconcile.ts';
import { createEventRecorder, type EventRecorder } from '../operator/event-recorder.ts';
import { createGatewayClassReconciler, createGatewayReconciler } from '../operator/gateway/reconcile.ts';
import { createIngressReconciler } from '../operator/ingress/reconcile.ts';
import type { KubeClient } from '../operator/kube-client.ts';
import type { ObjectCache } from '../operator/object-cache.ts';
import type { OperatorMetrics } from '../operator/operator-metrics.ts';
import { KeyKeeper } from '../operator/workload/keys.ts';
import type { SpecOptions } from '../operator/workload/workload.ts';
import { createTagPolicy } from '../operator/workload/tags.ts';
import { createProxyClassReconciler } from '../operator/proxy-class/reconcile.ts';
import { createProxyGroupPolicyReconciler } from '../operator/proxy-group-policy/reconcile.ts';
import { createRecorderReconciler } from '../operator/recorder/reconcile.ts';
import { createServiceReconciler } from '../operator/service/reconcile.ts';
import {
  classController,
  connectorController,
  dnsController,
  gatewayClassController,
  gatewayController,
  ingressController,
  ownerController,
  policyController,
  serviceController,
  tailnetController,
} from '../operator/controllers.ts';
import { createTailnetReconciler } from '../operator/tailnet/reconcile.ts';
import { createTailnets } from '../operator/tailnet/tailnets.ts';
import { TAILSCALE_LOGIN } from './operator-peers.ts';
import { groupControllers } from './operator-groups.ts';

/** Settings and connections of a running operator. */
export interface OperatorParts {
  readonly config: OperatorConfig;
  readonly connection: ClusterConnection;
  readonly log: Logger;
  readonly client: KubeClient;
  readonly control: TailnetControl;
  readonly metrics: OperatorMetrics;
  readonly options: SpecOptions;
  readonly signal: AbortSignal;
  /** True if the operator is being uninstalled. Reconcilers must then delete all objects that they have created. */
  readonly leaving?: boolean;
}

/** Returns the controllers that the settings select, with their names as map keys. */
export function controllersOf(
  parts: OperatorParts,
  cache: ObjectCache,
  silent?: EventRecorder,
): ReadonlyMap<string, ControllerSpec> {
  const { client, control, metrics, options, log, signal } = parts;
  const clock = systemClock;
  const deps = {
    ...parts,
    cache,
    clock,
    tailnets: createTailnets({
      client,
      namespace: options.namespace,
      own: control,
      defaultLoginServer: TAILSCALE_LOGIN,
      nowMs: Date.now,
      signal,
    }),
    keys: new KeyKeeper({ metrics, nowMs: Date.now, log }),
    tags: createTagPolicy({ client, options, clock }),
    events: silent ?? createEventRecorder({ client, clock, log, createId: () => randomUUID().slice(0, 13) }),
  };
  const { reconciled } = options;
  const specs = new Map([['Recorder', ownerController('Recorder', createRecorderReconciler(deps), options)]]);
  // ProxyClasses come before the resources that use them, because a dry run visits the controllers in this order.
  if (reconciled.services || reconciled.connectors || reconciled.ingresses || reconciled.gateways)
    specs.set('ProxyClass', classController(createProxyClassReconciler(deps)));
  if (reconciled.connectors)
    specs.set('Connector', connectorController(createConnectorReconciler(deps), options));
  if (reconciled.dnsConfigs) specs.set('DNSConfig', dnsController(createDnsReconciler(deps), options));
  if (reconciled.ingresses) specs.set('Ingress', ingressController(createIngressReconciler(deps), options));
  if (reconciled.gateways) {
    specs.set('GatewayClass', gatewayClassController(createGatewayClassReconciler(deps)));
    specs.set('Gateway', gatewayController(createGatewayReconciler(deps), options));
  }
  specs.set('Tailnet', tailnetController(createTailnetReconciler(deps)));
  if (reconciled.proxyGroups) {
    specs.set('ProxyGroupPolicy', policyController(createProxyGroupPolicyReconciler(deps)));
    for (const [name, spec] of groupControllers(deps)) specs.set(name, spec);
  }
  if (reconciled.services) specs.set('Service', serviceController(createServiceReconciler(deps), options));
  return specs;
}
