/** Reconciles one Service that is exposed to the tailnet, or that points into the tailnet. Effects only. */
import { frontSelector, LABELS as FRONT_LABELS } from '../egress-group/member.ts';
import { FINALIZER, KINDS } from '../kube-object.ts';
import {
  isActive,
  report,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  type FailureReason,
  type Observation,
} from '../workload/reconciler.ts';
import {
  labelSelector,
  stateSecretName,
  dnsLabel,
  leadsToTailnet,
  type PacketDuty,
  parentLabels,
  type Parent,
} from '../workload/workload.ts';
import { readNodeState } from '../workload/node-state.ts';
import { failed, removed, sameJson, succeeded, type Verdict } from '../workload/status.ts';
import type { Deployed } from '../workload/deploy.ts';
import { removeExact } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import { isUnprivileged, planForwards } from '../workload/unprivileged.ts';
import { ANNOTATIONS, isOurLoadBalancer, proxyClassNameOf } from './predicates.ts';
import { leadServiceTo } from './lead.ts';
import { isExposed, isOfGroup, leadsOut, purposeOf, tagsIn } from './classify.ts';
import { parseService, type LoadBalancerIngress, type Service } from './resource.ts';
import { EGRESS_CONDITIONS, INGRESS_CONDITIONS, ingressOf } from './status.ts';
import { classOf, deployProxy, existingName, manageProxy } from '../workload/proxy.ts';

/** Condition of a Service with its own proxy. */
const READY = 'TailscaleProxyReady';

export function createServiceReconciler(deps: ReconcilerDeps): Reconciler {
  const { servesUnclassed } = deps.options;
  return createReconciler<Service>(deps, {
    kind: KINDS.service,
    deployed: deps.metrics.services,
    parse: parseService,
    needsNodes: (service) => purposeOf(service, servesUnclassed).kind !== 'none',
    managed: (service) => managed(deps, service),
    names: (service) => (purposeOf(service, servesUnclassed).kind === 'proxy' ? [hostnameOf(service)] : []),
    deploy: (service, ...more) => deploy(deps, service, ...more),
    release: (service, resource) => release(deps, service, resource),
    notReady: (service, reason, message) =>
      reportReady(deps, service, failed(reasonOf(reason), message), undefined),
  });
}

async function managed(deps: ReconcilerDeps, service: Service): Promise<Managed | undefined> {
  const { metadata } = service;
  const parent: Parent = { type: 'svc', namespace: metadata.namespace ?? '', name: metadata.name };
  const isMarked = metadata.finalizers.includes(FINALIZER);
  if (isOfGroup(service) && !(isMarked && (await existingName(deps, parent)) !== undefined)) {
    // Egress groups use the same finalizer. Only an operator that serves egress groups may remove it.
    if (!deps.options.reconciled.proxyGroups) return undefined;
    if (isActive(deps, service)) {
      await leaveOtherGroups(deps, parent, service);
      return undefined;
    }
  }
  return manageProxy(deps, KINDS.service, 'svc', metadata, { tags: tagsIn(metadata.annotations) });
}

/** Removes the front Service in the group that the Service has left. */
async function leaveOtherGroups(deps: ReconcilerDeps, parent: Parent, { metadata }: Service): Promise<void> {
  if (!metadata.finalizers.includes(FINALIZER)) return;
  const selector = `${labelSelector(parentLabels(parent))},${frontSelector()}`;
  for (const front of await listOwn(deps, KINDS.service, selector, true)) {
    const group = front.metadata.labels?.[FRONT_LABELS.group];
    if (group !== metadata.annotations[ANNOTATIONS.proxyGroup]) await removeExact(deps, front);
  }
}

async function deploy(
  deps: ReconcilerDeps,
  service: Service,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { servesUnclassed, defaultClass, namespace, clusterDomain } = deps.options;
  const purpose = purposeOf(service, servesUnclassed);
  const refuse = async (message: string): Promise<undefined> => {
    await deps.events.warn(resource, { reason: 'INVALIDSERVICE', message });
    await reportReady(deps, service, failed('ProxyInvalid', message), undefined);
    deps.metrics.services.delete(service.metadata.uid);
  };
  if (purpose.kind !== 'proxy') return refuse(purpose.kind === 'invalid' ? purpose.message : '');
  const answer = await classOf(deps, proxyClassNameOf(service.metadata, defaultClass));
  if (answer.kind === 'waits') {
    await reportReady(deps, service, failed('ProxyPending', answer.message), undefined);
    return undefined;
  }
  const { duty } = purpose;
  const forwards = isUnprivileged(answer.proxyClass) ? planForwards(duty, service.spec.ports) : undefined;
  if (forwards?.kind === 'impossible') return refuse(forwards.message);
  if (forwards?.unserved !== undefined)
    await deps.events.warn(resource, { reason: 'PortsNotServed', message: forwards.unserved });
  deps.metrics.services.add(service.metadata.uid);
  const proxy = {
    group: resource.group,
    duty: forwards?.duty ?? duty,
    hostname: () => hostnameOf(service),
  };
  const deployed = await deployProxy(deps, proxy, answer.proxyClass, found);
  if (leadsToTailnet(duty)) {
    // The Service points to the name of the headless Service, which resolves to the pods of the proxy.
    const name = `${resource.group.name}.${namespace}.svc.${clusterDomain}`;
    await leadServiceTo(deps.client, service, name);
  }
  const ingress = isOurLoadBalancer(service.spec, servesUnclassed)
    ? shownIngress(service, deployed)
    : shownByOthers(service);
  await reportReady(deps, service, verdictOf(duty, deployed, forwards?.unserved), ingress);
  return deployed.retryAfterMs;
}

/** Returns the hostname of the node. */
function hostnameOf({ metadata }: Pick<Service, 'metadata'>): string {
  const { annotations, namespace = '', name } = metadata;
  return annotations[ANNOTATIONS.hostname] ?? dnsLabel(`${namespace}-${name}`);
}

function reasonOf(reason: FailureReason): string {
  if (reason === 'Creating') return 'ProxyPending';
  return reason === 'NameTaken' || reason === 'TagsNotAllowed' ? 'ProxyInvalid' : 'ProxyFailed';
}

function verdictOf(duty: PacketDuty, { missing }: Deployed, unserved: string | undefined): Verdict {
  if (missing === undefined)
    return unserved === undefined ? succeeded('ProxyCreated') : succeeded('ProxyPartial', unserved);
  const name = duty.kind === 'egress-name' ? `, and for ${duty.target} to be known in the tailnet` : '';
  return failed('ProxyPending', `${missing}${name}`);
}

/**
 * Returns the addresses for the status if the node has joined. Returns undefined to keep the previous addresses, for
 * example while the pod restarts.
 */
function shownIngress(
  service: Service,
  { joined: [node] }: Deployed,
): readonly LoadBalancerIngress[] | undefined {
  return node === undefined ? undefined : ingressOf(service, node.state);
}

/**
 * Returns the addresses for the status of a Service that is not a load balancer of the operator. Returns undefined to
 * keep addresses from another load balancer controller.
 */
function shownByOthers({ spec }: Service): readonly [] | undefined {
  return spec.type === 'LoadBalancer' ? undefined : [];
}

/**
 * Clears the status of a Service that still exists but no longer belongs to the operator. Entries of other controllers
 * stay.
 */
async function release(deps: ReconcilerDeps, service: Service, resource: Managed): Promise<boolean> {
  if (!service.metadata.finalizers.includes(FINALIZER)) return false;
  // If the Service has another load balancer class, another controller has written its addresses, so they must stay.
  const { type, loadBalancerClass } = service.spec;
  const { annotations } = service.metadata;
  const shownByUs = type !== 'LoadBalancer' || isOurLoadBalancer({ type, loadBalancerClass }, true);
  const exposedByGroup = isOfGroup(service) && !leadsOut(annotations) && isExposed(service, true);
  const shown = service.status.loadBalancer.ingress;
  const left = exposedByGroup ? await withoutNode(deps, service, resource) : shownByUs ? [] : shown;
  const types = [READY, ...EGRESS_CONDITIONS, ...(exposedByGroup ? [] : INGRESS_CONDITIONS)];
  return report(deps, KINDS.service, service, removed(types), { loadBalancer: { ingress: left } });
}

/**
 * Returns the addresses in the status without those of the Service's former proxy. A ProxyGroup exposes the Service
 * now, and the addresses of the ProxyGroup stay.
 */
async function withoutNode(
  { client, options }: ReconcilerDeps,
  service: Service,
  { group }: Managed,
): Promise<readonly LoadBalancerIngress[]> {
  const reference = { namespace: options.namespace, name: stateSecretName(group.name, 0) };
  const own = ingressOf(service, readNodeState(await client.get(KINDS.secret, reference)));
  const isOwn = (entry: LoadBalancerIngress): boolean => own.some((one) => sameJson(one, entry));
  return service.status.loadBalancer.ingress.filter((entry) => !isOwn(entry));
}

/** @param ingress addresses for the status; undefined to keep the present addresses */
function reportReady(
  deps: ReconcilerDeps,
  service: Service,
  verdict: Verdict,
  ingress: readonly LoadBalancerIngress[] | undefined,
): Promise<boolean> {
  const verdicts = { ...removed([...EGRESS_CONDITIONS, ...INGRESS_CONDITIONS]), [READY]: verdict };
  return report(deps, KINDS.service, service, verdicts, {
    loadBalancer: ingress === undefined ? undefined : { ingress },
  });
}
