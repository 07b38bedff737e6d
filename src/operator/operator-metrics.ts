/** Metrics of the operator. */
import { Registry, collectDefaultMetrics } from 'prom-client';
import { createMakers } from '../observe/metric-makers.ts';

export type OperatorMetrics = ReturnType<typeof createOperatorMetrics>;

/**
 * Creates the metrics. If the reference (Tailscale's operator) has a gauge for a kind of resource, tailcast's gauge for
 * this kind has the same name.
 */
export function createOperatorMetrics(options: { readonly processMetrics?: boolean } = {}) {
  const registry = new Registry();
  if (options.processMetrics === true) collectDefaultMetrics({ register: registry });
  const { counter, labelled, gauge } = createMakers(registry);
  /** Creates a set for uids of deployed resources, and a gauge that shows its size. */
  function uids(name: string, help: string): Set<string> {
    const set = new Set<string>();
    gauge(name, help, () => set.size);
    return set;
  }
  const deployed = {
    recorders: uids('k8s_recorder_resources', 'Deployed Recorder resources.'),
    /** ProxyGroups whose nodes are gateways. */
    proxyGroups: uids(
      'k8s_proxygroup_kube_apiserver_resources',
      'Deployed ProxyGroup resources of type kube-apiserver.',
    ),
    ingresses: uids('k8s_ingress_resources', 'Ingresses with their own proxy.'),
    connectors: uids('k8s_connector_resources', 'Deployed Connector resources.'),
    egressGroups: uids('k8s_proxygroup_egress_resources', 'Deployed ProxyGroup resources of type egress.'),
    ingressGroups: uids('k8s_proxygroup_ingress_resources', 'Deployed ProxyGroup resources of type ingress.'),
    services: uids('tailcast_operator_services', 'Services with their own proxy.'),
    gateways: uids('tailcast_operator_gateways', 'Gateway resources with their own proxy.'),
  };
  let pending = (): number => 0;
  gauge('tailcast_operator_pending', 'Queued resources and resources in reconciliation.', () => pending());
  return {
    registry,
    ...deployed,
    reconciles: labelled(
      'tailcast_operator_reconciles_total',
      'Reconciliations of a resource, by outcome: done or failed.',
      'outcome',
    ),
    keysCreated: labelled(
      'tailcast_operator_auth_keys_created_total',
      'Created auth keys, by reason: new, or old key expired, spent, with other tags, or rejected (requested).',
      'reason',
    ),
    devicesDeleted: counter('tailcast_operator_devices_deleted_total', 'Nodes removed from the tailnet.'),
    leading: gauge('tailcast_operator_leading', '1 while this process has the Lease.'),
    /** Forgets all deployed resources, before a new leader counts them again. */
    clearDeployed(): void {
      for (const uids of Object.values(deployed)) uids.clear();
    },
    /** Sets the function that returns the number of queued and running keys. Each scrape calls this function. */
    showPending(read: () => number): void {
      pending = read;
    },
  };
}
