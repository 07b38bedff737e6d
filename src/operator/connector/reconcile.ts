/** Reconciles one Connector: its nodes, their routes, and the approval of the routes. Effects only. */
import { KINDS } from '../kube-object.ts';
import { createApprovals, type Approvals } from '../workload/approvals.ts';
import {
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  report,
  type Observation,
} from '../workload/reconciler.ts';
import { ordinals, dnsLabel, type Proxy } from '../workload/workload.ts';
import { devicesOf, failed, succeeded, type ShownDevice, type Verdict } from '../workload/status.ts';
import { parseConnector, problemOf, routesOf, type Connector } from './resource.ts';
import { privilegedClassOf, deployProxy, manageProxy } from '../workload/proxy.ts';

export function createConnectorReconciler(deps: ReconcilerDeps): Reconciler {
  const approvals = createApprovals(deps);
  return createReconciler<Connector>(deps, {
    kind: KINDS.connector,
    deployed: deps.metrics.connectors,
    parse: parseConnector,
    managed: ({ metadata, spec }) => manageProxy(deps, KINDS.connector, 'connector', metadata, spec),
    names: (connector, { group }) =>
      problemOf(connector) === undefined ? ordinals(group).map(hostnamesOf(connector)) : [],
    deploy: (connector, ...more) => deploy(deps, approvals, connector, ...more),
    notReady: (connector, reason, message) =>
      reportReady(deps, connector, failed(`Connector${reason}`, message)),
  });
}

async function deploy(
  deps: ReconcilerDeps,
  approvals: Approvals,
  connector: Connector,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const problem = problemOf(connector);
  if (problem !== undefined) {
    const verdict = failed('ConnectorInvalid', `Connector is invalid: ${problem}`);
    await deps.events.warn(resource, verdict);
    await reportReady(deps, connector, verdict);
    deps.metrics.connectors.delete(connector.metadata.uid);
    return undefined;
  }
  const answer = await privilegedClassOf(deps, connector.spec.proxyClass);
  if (answer.kind === 'waits') {
    await reportReady(deps, connector, failed('ConnectorCreating', answer.message));
    return undefined;
  }
  deps.metrics.connectors.add(connector.metadata.uid);
  const routes = routesOf(connector);
  const proxy: Proxy = {
    group: resource.group,
    duty: { kind: 'connector', routes, appConnector: connector.spec.appConnector !== undefined },
    hostname: hostnamesOf(connector),
  };
  const deployed = await deployProxy(deps, proxy, answer.proxyClass, found);
  const pending = await approvals.see(found.control, deployed.nodes, routes);
  const verdict =
    deployed.missing === undefined
      ? succeeded('ConnectorCreated', pending)
      : failed('ConnectorCreating', deployed.missing);
  await reportReady(deps, connector, verdict, statusOf(connector, devicesOf(deployed.nodes, false)));
  return deployed.retryAfterMs;
}

function hostnamesOf({ metadata, spec }: Connector): (ordinal: number) => string {
  const single = spec.hostname === '' ? dnsLabel(`${metadata.name}-connector`) : spec.hostname;
  const many = spec.hostnamePrefix === '' ? dnsLabel(`${metadata.name}-connector`) : spec.hostnamePrefix;
  const numbered = spec.hostnamePrefix !== '' || spec.replicas > 1;
  return (ordinal) => (numbered ? dnsLabel(`${many}-${ordinal}`) : single);
}

function reportReady(
  deps: ReconcilerDeps,
  connector: Connector,
  verdict: Verdict,
  fields?: object,
): Promise<boolean> {
  return report(deps, KINDS.connector, connector, { ConnectorReady: verdict }, fields);
}

/** Returns the fields of the status, except the conditions. */
function statusOf({ spec }: Connector, devices: readonly ShownDevice[]): object {
  const [first] = devices;
  return {
    subnetRoutes: (spec.subnetRouter?.advertiseRoutes ?? []).toSorted().join(','),
    isExitNode: spec.exitNode,
    isAppConnector: spec.appConnector !== undefined,
    devices,
    // Older clients read the first device from these fields.
    hostname: first?.hostname ?? '',
    tailnetIPs: first?.tailnetIPs ?? [],
  };
}
