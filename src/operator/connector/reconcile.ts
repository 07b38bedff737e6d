/** Reconciles one Connector: its nodes, their routes, and the approval of the routes. Effects only. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import { createApprovals, type Approvals } from '../workload/approvals.ts';
import {
  timeOf,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  failed,
  warn,
  writeStatus,
  type Observation,
} from '../workload/reconciler.ts';
import { ordinals, type Parent, dnsLabel, proxyNodes, type Proxy } from '../workload/workload.ts';
import { devicesOf, sameJson, withCondition, type ShownDevice, type Verdict } from '../workload/status.ts';
import { parseConnector, problemOf, routesOf, type Connector } from './resource.ts';
import { privilegedClassOf, deployProxy, existingName } from '../workload/proxy.ts';

/** Reasons of the condition `ConnectorReady`. The reasons are stable, because dashboards and scripts match them. */
type ConnectorReason =
  | 'ConnectorCreated'
  | 'ConnectorCreating'
  | 'ConnectorCreationFailed'
  | 'ConnectorInvalid'
  | 'ConnectorTailnetUnavailable'
  | 'ConnectorNameTaken'
  | 'ConnectorTagsNotAllowed';

export function createConnectorReconciler(deps: ReconcilerDeps): Reconciler {
  const approvals = createApprovals(deps);
  return createReconciler<Connector>(deps, {
    kind: KINDS.connector,
    deployed: deps.metrics.connectors,
    parse: parseConnector,
    managed: (connector) => managed(deps, connector),
    names: (connector, { group }) =>
      problemOf(connector) === undefined ? ordinals(group).map(hostnamesOf(connector)) : [],
    deploy: (connector, ...more) => deploy(deps, approvals, connector, ...more),
    notReady: (connector, reason, message) =>
      report(deps, connector, failed(`Connector${reason}`, message), undefined),
  });
}

async function managed(deps: ReconcilerDeps, connector: Connector): Promise<Managed> {
  const { options } = deps;
  const { metadata, spec } = connector;
  const parent: Parent = { type: 'connector', namespace: options.namespace, name: metadata.name };
  const group = proxyNodes({
    kind: 'Connector',
    parent,
    uid: metadata.uid,
    replicas: spec.replicas,
    tags: spec.tags,
    defaultTags: options.defaultTags,
    objectName: metadata.finalizers.includes(FINALIZER) ? await existingName(deps, parent) : undefined,
  });
  return { kind: KINDS.connector, finalizer: FINALIZER, group, tailnet: spec.tailnet, metadata };
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
    await warn(deps, resource, verdict);
    await report(deps, connector, verdict, undefined);
    deps.metrics.connectors.delete(connector.metadata.uid);
    return undefined;
  }
  const answer = await privilegedClassOf(deps, connector.spec.proxyClass);
  if (answer.kind === 'waits') {
    await report(deps, connector, failed('ConnectorCreating', `waiting: ${answer.message}`), undefined);
    return undefined;
  }
  deps.metrics.connectors.add(connector.metadata.uid);
  const proxy = proxyOf(connector, resource, deps.options.namespace);
  const deployed = await deployProxy(deps, proxy, answer.proxyClass, found);
  const pending = await approvals.see(found.control, deployed.nodes, routesOf(connector));
  const verdict: Verdict<ConnectorReason> =
    deployed.missing === undefined
      ? { ready: true, reason: 'ConnectorCreated', message: pending ?? 'ConnectorCreated' }
      : failed('ConnectorCreating', deployed.missing);
  await report(deps, connector, verdict, devicesOf(deployed.nodes, false));
  return deployed.retryAfterMs;
}

function proxyOf(connector: Connector, { group }: Managed, namespace: string): Proxy {
  const { metadata } = connector;
  return {
    parent: { type: 'connector', namespace, name: metadata.name },
    group,
    duty: {
      kind: 'connector',
      routes: routesOf(connector),
      appConnector: connector.spec.appConnector !== undefined,
    },
    hostname: hostnamesOf(connector),
  };
}

function hostnamesOf({ metadata, spec }: Connector): (ordinal: number) => string {
  const single = spec.hostname === '' ? dnsLabel(`${metadata.name}-connector`) : spec.hostname;
  const many = spec.hostnamePrefix === '' ? dnsLabel(`${metadata.name}-connector`) : spec.hostnamePrefix;
  const numbered = spec.hostnamePrefix !== '' || spec.replicas > 1;
  return (ordinal) => (numbered ? dnsLabel(`${many}-${ordinal}`) : single);
}

/**
 * Writes the status, unless the Connector has this status already.
 *
 * @param devices undefined if nothing was deployed; the status then keeps its devices
 */
function report(
  deps: ReconcilerDeps,
  { metadata, spec, status }: Connector,
  verdict: Verdict<ConnectorReason>,
  devices: readonly ShownDevice[] | undefined,
): Promise<void> {
  const { conditions: before, ...known } = status;
  const time = timeOf(deps.clock);
  const conditions = withCondition(before, 'ConnectorReady', verdict, metadata.generation, time);
  const [first] = devices ?? [];
  const shown =
    devices === undefined
      ? known
      : {
          subnetRoutes: (spec.subnetRouter?.advertiseRoutes ?? []).toSorted().join(','),
          isExitNode: spec.exitNode,
          isAppConnector: spec.appConnector !== undefined,
          devices,
          // Older clients read the first device from these fields.
          hostname: first?.hostname ?? '',
          tailnetIPs: first?.tailnetIPs ?? [],
        };
  const next = { conditions, ...shown };
  const changed = sameJson(next, status) ? undefined : next;
  return writeStatus(deps, { kind: KINDS.connector, metadata }, changed);
}
