/**
 * Reconciles one Gateway of the operator's class: its node, and the status of the Gateway and its HTTPRoutes. Effects
 * only.
 */
import { timeOf } from '../clock.ts';
import { HTTP_ROUTES, ROUTES_BY_GATEWAY, SERVICES, servicesNamed } from '../indexes.ts';
import { FINALIZER, KINDS } from '../kube-object.ts';
import type { TlsSecret } from '../ingress/table.ts';
import { deployWebNode, dnsNameOf, nextPassMs, nodeOf, tlsSecretsOf } from '../ingress/web-node.ts';
import {
  REFUSED_RETRY_MS,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  report,
  writeStatus,
  type FailureReason,
  type Observation,
} from '../workload/reconciler.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import { proxyClassNameOf } from '../service/predicates.ts';
import { certificateNames } from './listeners.ts';
import { planGateway, type GatewayPlan, type RoutePlan } from './plan.ts';
import {
  gatewayHostname,
  isOurClass,
  parseGateway,
  parseHttpRoute,
  routeBackends,
  type Gateway,
  type HttpRoute,
  parseGatewayClass,
} from './resource.ts';
import {
  gatewayStatus,
  problemOfGateway,
  releasedStatus,
  routeStatus,
  type GatewayFindings,
  acceptedClass,
} from './status.ts';
import { KubeRefusal } from '../kube-client.ts';
import { forEachMember, throwFirst } from '../workload/for-each-member.ts';
import { tagsIn } from '../service/classify.ts';
import { classOf, manageProxy } from '../workload/proxy.ts';

export function createGatewayReconciler(deps: ReconcilerDeps): Reconciler {
  return createReconciler<Gateway>(deps, {
    kind: KINDS.gateway,
    deployed: deps.metrics.gateways,
    parse: parseGateway,
    needsNodes: (gateway) => isOurs(deps, gateway),
    managed: (gateway) => managed(deps, gateway),
    names: (gateway) => (problemOfGateway(gateway) === undefined ? [gatewayHostname(gateway)] : []),
    deploy: (gateway, ...more) => deploy(deps, gateway, ...more),
    release: (gateway, resource) => release(deps, gateway, resource),
    notReady: (gateway, reason, message) =>
      reportGateway(deps, gateway, { programmed: programmedOf(reason, message) }),
    // Routes outlive a deleted Gateway, so the operator removes the Gateway's entries from their status.
    removeMore: ({ metadata }, _control) => forgetRoutes(deps, nameOf(metadata)),
  });
}

function programmedOf(reason: FailureReason, message: string): Verdict {
  if (reason === 'NameTaken') return failed('AddressNotUsable', message);
  if (reason === 'TagsNotAllowed') return failed('Invalid', message);
  return failed('Pending', `${reason}: ${message}`);
}

async function isOurs({ client }: Pick<ReconcilerDeps, 'client'>, { spec }: Gateway): Promise<boolean> {
  if (spec.gatewayClassName === '') return false;
  return isOurClass(await client.get(KINDS.gatewayClass, { name: spec.gatewayClassName }));
}

async function managed(deps: ReconcilerDeps, gateway: Gateway): Promise<Managed | undefined> {
  const { metadata } = gateway;
  const isMarked = metadata.finalizers.includes(FINALIZER);
  if (!isMarked && !(await isOurs(deps, gateway))) return undefined;
  return manageProxy(deps, KINDS.gateway, 'gateway', metadata, { tags: tagsIn(metadata.annotations) });
}

function nameOf({ namespace, name }: Managed['metadata']): string {
  return `${namespace ?? ''}/${name}`;
}

async function deploy(
  deps: ReconcilerDeps,
  gateway: Gateway,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { metadata } = gateway;
  const problem = problemOfGateway(gateway);
  if (problem !== undefined) {
    await reportGateway(deps, gateway, { problem, programmed: failed('Invalid', problem.message) });
    return undefined;
  }
  const hostname = gatewayHostname(gateway);
  const answer = await classOf(deps, proxyClassNameOf(metadata, deps.options.defaultClass));
  if (answer.kind === 'waits') {
    await reportGateway(deps, gateway, { programmed: failed('Pending', answer.message) });
    return undefined;
  }
  deps.metrics.gateways.add(metadata.uid);
  const node = nodeOf(resource.group, found);
  const names = certificateNames(gateway);
  const plan = await planOf(deps, gateway, {
    hostname,
    node,
    secrets: await tlsSecretsOf(deps, metadata, names),
  });
  const facts = { hostname, node, plan };
  const deployed = await deployWebNode(deps, resource, answer.proxyClass, found, facts);
  const failure = await writeRouteStatuses(deps, nameOf(metadata), plan.routes);
  const hasNode = deployed.joined.length > 0;
  const programmed: Verdict = !hasNode
    ? failed('AddressNotAssigned', deployed.missing ?? 'waiting for the node to join')
    : deployed.serves
      ? succeeded('Programmed')
      : failed('Pending', deployed.missing ?? 'waiting for the node to serve');
  const addresses = hasNode ? addressesOf(node) : undefined;
  await reportGateway(deps, gateway, { plan, programmed, addresses });
  const nextMs = nextPassMs(deployed.retryAfterMs, names.length);
  if (!(failure instanceof KubeRefusal) || failure.conflict) {
    throwFirst(failure);
    return nextMs;
  }
  // The API server refused the status of a route. A later reconciliation writes the status again. The Gateway keeps
  // serving the other routes.
  return Math.min(nextMs ?? REFUSED_RETRY_MS, REFUSED_RETRY_MS);
}

function addressesOf({
  dnsName,
  addresses,
}: Parameters<typeof planGateway>[2]['node']): Gateway['status']['addresses'] {
  return [
    ...(dnsName === undefined ? [] : [{ type: 'Hostname', value: dnsName }]),
    ...addresses.map((value) => ({ type: 'IPAddress', value })),
  ];
}

async function planOf(
  deps: ReconcilerDeps,
  gateway: Gateway,
  facts: Pick<Parameters<typeof planGateway>[2], 'hostname' | 'node'> & {
    readonly secrets: ReadonlyMap<string, TlsSecret>;
  },
): Promise<GatewayPlan> {
  const routes = await routesOf(deps, nameOf(gateway.metadata));
  const cached = await deps.cache.read([SERVICES]);
  return planGateway(gateway, routes, {
    ...facts,
    nowMs: deps.clock.now(),
    servicesOf: (route) => servicesNamed(cached, route.metadata.namespace, routeBackends(route)),
  });
}

/** Returns the routes that have a parent reference to the Gateway or a status entry for the Gateway. */
async function routesOf(
  { cache }: Pick<ReconcilerDeps, 'cache'>,
  gateway: string,
): Promise<readonly HttpRoute[]> {
  const cached = await cache.read([HTTP_ROUTES]);
  return cached.by(ROUTES_BY_GATEWAY, gateway).map(parseHttpRoute);
}

/** Writes the status of each route. Returns the first failure. */
function writeRouteStatuses(
  deps: Pick<ReconcilerDeps, 'client' | 'clock' | 'log' | 'signal'>,
  gateway: string,
  plans: readonly RoutePlan[],
): Promise<Error | undefined> {
  const write = (plan: RoutePlan): Promise<void> => writeRouteStatus(deps, gateway, plan);
  return forEachMember(deps, plans, ({ route }) => nameOf(route.metadata), write);
}

/**
 * Writes the status of a route, unless the route has this status already. The route is read first, because its list of
 * parents also contains entries of other controllers, which must stay.
 */
async function writeRouteStatus(
  { client, clock }: Pick<ReconcilerDeps, 'client' | 'clock'>,
  gateway: string,
  { route, parents }: RoutePlan,
): Promise<void> {
  const { namespace, name, uid } = route.metadata;
  if (routeStatus(route, gateway, parents, timeOf(clock)) === undefined) return;
  const object = await client.get(KINDS.httpRoute, { namespace, name });
  if (object === undefined || object.metadata.uid !== uid) return;
  const current = parseHttpRoute(object);
  const status = routeStatus(current, gateway, parents, timeOf(clock));
  if (status === undefined) return;
  const { resourceVersion } = current.metadata;
  const body = { metadata: { uid, resourceVersion }, status };
  await client.patch(KINDS.httpRoute, { namespace, name, subresource: 'status' }, { kind: 'merge', body });
}

/** Removes the entries of a Gateway from the status of its routes. */
async function forgetRoutes(
  deps: Pick<ReconcilerDeps, 'cache' | 'client' | 'clock' | 'log' | 'signal'>,
  gateway: string,
): Promise<void> {
  const plans = (await routesOf(deps, gateway)).map((route) => ({ route, parents: [] }));
  throwFirst(await writeRouteStatuses(deps, gateway, plans));
}

/**
 * Clears the status of a Gateway that still exists but no longer belongs to the operator. Also removes the Gateway's
 * entries from the status of its routes.
 */
async function release(
  deps: ReconcilerDeps,
  gateway: Gateway,
  { group, metadata }: Managed,
): Promise<boolean> {
  await forgetRoutes(deps, nameOf(metadata));
  const name = await dnsNameOf(deps, group);
  return writeStatus(deps, KINDS.gateway, gateway, releasedStatus(gateway, name, timeOf(deps.clock)) ?? {});
}

function reportGateway(
  deps: Pick<ReconcilerDeps, 'client' | 'clock'>,
  gateway: Gateway,
  findings: GatewayFindings,
): Promise<boolean> {
  return writeStatus(deps, KINDS.gateway, gateway, gatewayStatus(gateway, findings, timeOf(deps.clock)));
}

/** Creates the reconciler that accepts the GatewayClasses of the operator. */
export function createGatewayClassReconciler(
  deps: Pick<ReconcilerDeps, 'client' | 'clock' | 'leaving'>,
): Reconciler {
  return {
    async reconcile(name) {
      const object = await deps.client.get(KINDS.gatewayClass, { name });
      if (object === undefined || !isOurClass(object) || deps.leaving === true) return undefined;
      const gatewayClass = parseGatewayClass(object);
      if (gatewayClass.metadata.deletionTimestamp !== undefined) return undefined;
      await report(deps, KINDS.gatewayClass, gatewayClass, { Accepted: acceptedClass(gatewayClass) });
      return undefined;
    },
  };
}
