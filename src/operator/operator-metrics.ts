/** Metrics of the operator. */
import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client';

export interface OperatorMetrics {
  readonly registry: Registry;
  /** Uids of deployed Recorders; the gauge has the reference's name. */
  readonly recorders: Set<string>;
  /** Uids of deployed ProxyGroups of gateways. */
  readonly proxyGroups: Set<string>;
  /** Uids of Services with a deployed proxy. */
  readonly services: Set<string>;
  readonly ingresses: Set<string>;
  readonly gateways: Set<string>;
  readonly connectors: Set<string>;
  readonly egressGroups: Set<string>;
  readonly ingressGroups: Set<string>;
  readonly reconciles: Counter<'outcome'>;
  readonly keysCreated: Counter<'reason'>;
  readonly devicesDeleted: Counter;
  readonly leading: Gauge;
  /** Sets the source of the number of waiting and running keys, which is read at scrape time. */
  showPending(read: () => number): void;
}

export function createOperatorMetrics(options: { readonly processMetrics?: boolean } = {}): OperatorMetrics {
  const registry = new Registry();
  const registers = [registry];
  if (options.processMetrics === true) collectDefaultMetrics({ register: registry });
  const recorders = new Set<string>();
  const proxyGroups = new Set<string>();
  const services = new Set<string>();
  const ingresses = new Set<string>();
  const gateways = new Set<string>();
  const connectors = new Set<string>();
  const egressGroups = new Set<string>();
  const ingressGroups = new Set<string>();
  let pending = (): number => 0;
  function gauge(name: string, help: string, read: () => number): void {
    const shown: Gauge = new Gauge({ name, help, registers, collect: () => shown.set(read()) });
  }
  gauge('k8s_recorder_resources', 'Deployed Recorder resources.', () => recorders.size);
  gauge(
    'k8s_proxygroup_kube_apiserver_resources',
    'Deployed ProxyGroup resources of type kube-apiserver.',
    () => proxyGroups.size,
  );
  gauge('k8s_ingress_resources', 'Ingresses with their own proxy.', () => ingresses.size);
  gauge('k8s_connector_resources', 'Deployed Connector resources.', () => connectors.size);
  gauge(
    'k8s_proxygroup_egress_resources',
    'Deployed ProxyGroup resources of type egress.',
    () => egressGroups.size,
  );
  gauge(
    'k8s_proxygroup_ingress_resources',
    'Deployed ProxyGroup resources of type ingress.',
    () => ingressGroups.size,
  );
  gauge('tailcast_operator_services', 'Services with their own proxy.', () => services.size);
  gauge('tailcast_operator_gateways', 'Gateways with a proxy.', () => gateways.size);
  gauge('tailcast_operator_pending', 'Queued resources and resources in reconciliation.', () => pending());
  return {
    registry,
    recorders,
    proxyGroups,
    services,
    ingresses,
    gateways,
    connectors,
    egressGroups,
    ingressGroups,
    reconciles: new Counter({
      name: 'tailcast_operator_reconciles_total',
      help: 'Reconciliations of a resource, by outcome.',
      labelNames: ['outcome'],
      registers,
    }),
    keysCreated: new Counter({
      name: 'tailcast_operator_auth_keys_created_total',
      help: 'Created auth keys, by reason.',
      labelNames: ['reason'],
      registers,
    }),
    devicesDeleted: new Counter({
      name: 'tailcast_operator_devices_deleted_total',
      help: 'Nodes removed from the tailnet.',
      registers,
    }),
    leading: new Gauge({
      name: 'tailcast_operator_leading',
      help: '1 while this process has the Lease.',
      registers,
    }),
    showPending(read) {
      pending = read;
    },
  };
}
