/** Reconciles one Ingress of the operator's class: its proxy, its backends, and its addresses. Effects only. */
import { FINALIZER, KINDS, type KubeObject } from '../kube-object.ts';
import {
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  warnOfAll,
  writeStatus,
  type Observation,
} from '../workload/reconciler.ts';
import { SERVICES, servicesNamed } from '../indexes.ts';
import { proxyClassNameOf } from '../service/predicates.ts';
import {
  backendNames,
  hostnameOf,
  INGRESS_ANNOTATIONS,
  INGRESS_CLASS,
  INGRESS_CONTROLLER,
  parseIngress,
  hasOwnProxy,
  type Ingress,
} from './resource.ts';
import { ingressRoutesOf, type IngressProblem } from './routes.ts';
import { planTable, secretNames, type TlsSecret } from './table.ts';
import { planServe, type ServePlan, type ServingNode } from './serve-config.ts';
import { deployWebNode, dnsNameOf, nextPassMs, nodeOf, tlsSecretsOf, type WebNodePlan } from './web-node.ts';
import { tagsIn } from '../service/classify.ts';
import { classOf, manageProxy } from '../workload/proxy.ts';

export function createIngressReconciler(deps: ReconcilerDeps): Reconciler {
  return createReconciler<Ingress>(deps, {
    kind: KINDS.ingress,
    deployed: deps.metrics.ingresses,
    parse: parseIngress,
    needsNodes: hasOwnProxy,
    managed: (ingress) => managed(deps, ingress),
    names: (ingress) => [hostnameOf(ingress)],
    deploy: (ingress, ...more) => deploy(deps, ingress, ...more),
    release: (ingress, resource) => release(deps, ingress, resource),
    async notReady(ingress, reason, message) {
      // An Ingress has no conditions, so only an event can report a failure. Other failures have an event already,
      // except write conflicts, which the retry resolves.
      if (reason !== 'TailnetUnavailable') return;
      await deps.events.warn({ kind: KINDS.ingress, metadata: ingress.metadata }, { reason, message });
    },
  });
}

async function managed(deps: ReconcilerDeps, ingress: Ingress): Promise<Managed | undefined> {
  const { metadata } = ingress;
  const isMarked = metadata.finalizers.includes(FINALIZER);
  if (!isMarked && (!hasOwnProxy(ingress) || (await isOfOther(deps)))) return undefined;
  return manageProxy(deps, KINDS.ingress, 'ingress', metadata, { tags: tagsIn(metadata.annotations) });
}

/** True if an IngressClass has the name of the operator's class but belongs to another controller. */
export async function isOfOther({ client }: Pick<ReconcilerDeps, 'client'>): Promise<boolean> {
  const object = await client.get(KINDS.ingressClass, { name: INGRESS_CLASS });
  const spec: unknown = object?.['spec'];
  if (typeof spec !== 'object' || spec === null || !('controller' in spec)) return false;
  return spec.controller !== INGRESS_CONTROLLER;
}

async function deploy(
  deps: ReconcilerDeps,
  ingress: Ingress,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { metadata } = ingress;
  const hostname = hostnameOf(ingress);
  const answer = await classOf(deps, proxyClassNameOf(metadata, deps.options.defaultClass));
  if (answer.kind === 'waits') {
    await deps.events.warn(resource, { reason: 'IngressNotServed', message: answer.message });
    return undefined;
  }
  deps.metrics.ingresses.add(metadata.uid);
  const node = nodeOf(resource.group, found);
  const cached = await deps.cache.read([SERVICES]);
  const services = servicesNamed(cached, metadata.namespace, backendNames(ingress));
  const secrets = await tlsSecretsOf(deps, metadata, secretNames(ingress));
  // If the operator has the permission to read none of the Secrets, it serves the Ingress without their certificates.
  const own = [...secrets.values()].some((secret) => secret !== 'forbidden' && secret !== 'excess');
  const { plan, problems } = own
    ? ownPlanOf(ingress, node, services, secrets, deps.clock.now())
    : planOf(ingress, node, services);
  await warnOfAll(deps, resource, problems);
  const facts = { hostname, node, plan };
  const deployed = await deployWebNode(deps, resource, answer.proxyClass, found, facts);
  const isReady = deployed.joined.length > 0 && deployed.serves;
  // While the pod restarts, the status keeps the address, because the tailnet node stays the same.
  if (isReady || plan.ports.length === 0) await show(deps, ingress, shownOf(plan, node.dnsName));
  return nextPassMs(deployed.retryAfterMs, secrets.size);
}

interface PlanOf {
  readonly plan: Pick<ServePlan, 'ports'> & WebNodePlan;
  readonly problems: readonly IngressProblem[];
}

/** Plans an Ingress whose certificates are in Secrets. */
function ownPlanOf(
  ingress: Ingress,
  { dnsName }: ServingNode,
  services: ReadonlyMap<string, KubeObject>,
  secrets: ReadonlyMap<string, TlsSecret>,
  nowMs: number,
): PlanOf {
  const { hosts, problems } = ingressRoutesOf(ingress, services, 'own');
  const plan = planTable(ingress, hosts, dnsName, secrets, nowMs);
  const none = hosts.size === 0 ? [NOTHING_TO_SERVE] : [];
  return { plan, problems: [...problems, ...plan.problems, ...none] };
}

function planOf(ingress: Ingress, node: ServingNode, services: ReadonlyMap<string, KubeObject>): PlanOf {
  const { hosts, problems } = ingressRoutesOf(ingress, services);
  const { annotations } = ingress.metadata;
  const plan = planServe(hosts, node, {
    hostname: hostnameOf(ingress),
    redirect: annotations[INGRESS_ANNOTATIONS.redirect] === 'true',
    funnel: annotations[INGRESS_ANNOTATIONS.funnel] === 'true',
  });
  const ignored = secretIgnored(
    ingress,
    'the operator may not read it, so only certificates of the control server are served: grant it get on this ' +
      'Secret (deploy/rbac/ingress-secrets.yaml), or remove it',
  );
  return {
    plan,
    problems: [...problems, ...plan.problems, ...ignored, ...problemsOfIngress(ingress, node, hosts.size)],
  };
}

function shownOf({ ports }: PlanOf['plan'], dnsName: string | undefined): readonly object[] {
  if (dnsName === undefined || ports.length === 0) return [];
  return [{ hostname: dnsName, ports: ports.map((port) => ({ port, protocol: 'TCP' })) }];
}

const NOTHING_TO_SERVE: IngressProblem = {
  reason: 'NoValidBackends',
  message: 'spec.rules, spec.defaultBackend: no backend can be served, so the node serves nothing',
};

/** Returns the problems of an Ingress that is served without the certificates in its Secrets. */
export function secretIgnored({ spec }: Ingress, why: string): readonly IngressProblem[] {
  const named = spec.tls.findIndex(({ secretName }) => secretName !== '');
  if (named < 0) return [];
  return [{ reason: 'TLSSecretIgnored', message: `spec.tls[${named}].secretName: ${why}` }];
}

/** Returns the unsupported features of an Ingress, except features that concern hosts, paths or Secrets. */
export function problemsOfIngress(
  { metadata, spec }: Ingress,
  { dnsName, hasCertificate }: Pick<ServingNode, 'dnsName' | 'hasCertificate'>,
  hosts: number,
): readonly IngressProblem[] {
  const problems: IngressProblem[] = [];
  if (!hasCertificate && dnsName !== undefined) {
    const { redirect, funnel } = INGRESS_ANNOTATIONS;
    const fields = [
      ...(spec.tls.length > 0 ? ['spec.tls'] : []),
      ...[redirect, funnel].filter((key) => metadata.annotations[key] === 'true'),
    ];
    if (fields.length > 0) {
      const message =
        `${fields.join(', ')}: the control server issues no certificates, so http://${dnsName} is ` +
        'served, within the tailnet’s encryption: enable HTTPS there, or remove these fields';
      problems.push({ reason: 'HTTPSNotEnabled', message });
    }
  }
  if (hosts === 0) problems.push(NOTHING_TO_SERVE);
  return problems;
}

/**
 * Removes the node's hostname from the status of an Ingress that still exists but no longer belongs to the operator.
 * Entries of other controllers stay.
 */
async function release(deps: ReconcilerDeps, ingress: Ingress, resource: Managed): Promise<boolean> {
  const name = await dnsNameOf(deps, resource.group);
  const left = ingress.status.loadBalancer.ingress.filter(({ hostname }) => hostname !== name);
  return show(deps, ingress, left);
}

/** @returns true if the status has changed */
function show(deps: ReconcilerDeps, ingress: Ingress, shown: readonly object[]): Promise<boolean> {
  return writeStatus(deps, KINDS.ingress, ingress, { loadBalancer: { ingress: shown } });
}
