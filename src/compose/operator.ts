/** Builds the operator role. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { CommandContext } from '../config/command-context.ts';
import { reconciledBy, type OperatorConfig } from '../config/operator.ts';
import { errorText, TailcastError } from '../errors.ts';
import { keepHeapSmall } from '../memory/small-heap.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { openOpsServer } from '../observe/ops-server.ts';
import type { TailnetControl } from '../operator/auth-keys.ts';
import { systemClock } from '../operator/clock.ts';
import { connectCluster, type ClusterConnection } from '../operator/cluster-connection.ts';
import { createConnectorReconciler } from '../operator/connector/reconcile.ts';
import { createController, type ControllerSpec } from '../operator/controller.ts';
import { createDnsReconciler } from '../operator/dns/reconcile.ts';
import { createDryRunClient, createDryRunControl } from '../operator/dry-run.ts';
import { createEgressNodesReconciler } from '../operator/egress-group/nodes.ts';
import { createEgressReconciler } from '../operator/egress-group/reconcile.ts';
import { createEventRecorder, type EventRecorder } from '../operator/event-recorder.ts';
import { createGatewayClassReconciler, createGatewayReconciler } from '../operator/gateway/reconcile.ts';
import { createIngressReconciler } from '../operator/ingress/reconcile.ts';
import type { IngressGroupChoices } from '../operator/ingress-group/candidates.ts';
import { createIngressGroupReconciler } from '../operator/ingress-group/reconcile.ts';
import { createKubeClient, type KubeClient } from '../operator/kube-client.ts';
import { KINDS } from '../operator/kube-object.ts';
import { networkOf, type Network } from '../operator/networks.ts';
import { leave, namesOf } from '../operator/leave.ts';
import { runWhileLeading } from '../operator/leader.ts';
import { createListedObjects, createWatchedObjects, type ObjectCache } from '../operator/object-cache.ts';
import { createOperatorMetrics, type OperatorMetrics } from '../operator/operator-metrics.ts';
import { KeyKeeper } from '../operator/workload/keys.ts';
import type { ReconcilerDeps } from '../operator/workload/reconciler.ts';
import type { SpecOptions } from '../operator/workload/workload.ts';
import { createTagPolicy } from '../operator/workload/tags.ts';
import { createProxyClassReconciler } from '../operator/proxy-class/reconcile.ts';
import { createProxyGroupReconciler } from '../operator/proxy-group/reconcile.ts';
import { createProxyGroupPolicyReconciler } from '../operator/proxy-group-policy/reconcile.ts';
import { createRecorderReconciler } from '../operator/recorder/reconcile.ts';
import { createServiceReconciler, type ServiceChoices } from '../operator/service/reconcile.ts';
import {
  classController,
  connectorController,
  dnsController,
  egressNodesController,
  egressServicesController,
  gatewayClassController,
  gatewayController,
  ingressController,
  ingressGroupController,
  ownerController,
  policyController,
  serviceController,
  tailnetController,
} from '../operator/controllers.ts';
import { createTailnetReconciler } from '../operator/tailnet/reconcile.ts';
import { createTailnets } from '../operator/tailnet/tailnets.ts';
import { createControl, kubeconfigOf, TAILSCALE_LOGIN } from './operator-peers.ts';

/** Maximum duration of `--cleanup`. It covers the grace period of pods and retries of the control server. */
const CLEANUP_LIMIT_MS = 10 * 60_000;
/** Maximum number of resources that are reconciled at the same time. */
const WORKERS = 16;
/** Time after which an unchanged resource is reconciled again. */
const RESYNC_MS = 600_000;

/**
 * `tailcast operator`: runs until the signal. With `dryRun`, prints its plan and exits.
 *
 * @param image default image of nodes: the image of this version
 * @throws TailcastError `CONFIG_INVALID`
 */
export async function runOperator(
  config: OperatorConfig,
  { stdout, environment, signal: stop }: CommandContext,
  image: string,
): Promise<void> {
  keepHeapSmall();
  const log = createLogger({ level: config.logLevel });
  const metrics = createOperatorMetrics({ processMetrics: true });
  const fatalErrors = openFatalErrors({ log, stop, registry: metrics.registry });
  const { signal } = fatalErrors;
  const connection = connectCluster({
    kubeconfig: kubeconfigOf(config, environment),
    context: config.context,
    environment,
  });
  try {
    const namespace = config.namespace ?? connection.namespace;
    if (namespace === undefined) {
      throw new TailcastError(
        'CONFIG_INVALID',
        'namespace: name the one that the recorders run in (--namespace)',
      );
    }
    const client = createKubeClient(connection);
    const parts: Parts = {
      config,
      connection,
      log,
      client,
      control: createControl(config, client),
      metrics,
      options: specOptions(config, namespace, image),
    };
    if (config.cleanup) await cleanUp(parts, signal);
    else if (config.dryRun) await printAll(parts, (text) => void stdout.write(text), signal);
    else {
      warnOfUploads(parts);
      await serve(parts, signal);
    }
  } finally {
    connection.close();
  }
  fatalErrors.close();
}

/**
 * Warns that recorders accept uploads of all nodes, which is also the default of the reference (Tailscale's operator).
 */
function warnOfUploads({ config, log }: Pick<Parts, 'config' | 'log'>): void {
  if (config.recorderUploaders.length > 0) return;
  log.warn(
    { remedy: 'name the tags of gateways and SSH servers in recorderUploaders' },
    'every node that reaches a recorder may make up recordings and events',
  );
}

interface Parts {
  readonly config: OperatorConfig;
  readonly connection: ClusterConnection;
  readonly log: Logger;
  readonly client: KubeClient;
  readonly control: TailnetControl;
  readonly metrics: OperatorMetrics;
  readonly options: SpecOptions;
  /** True if reconcilers must delete all their objects. */
  readonly leaving?: boolean;
}

async function serve(parts: Parts, signal: AbortSignal): Promise<void> {
  const { config, client, metrics, log, options, connection } = parts;
  const shared = { clock: systemClock, random: Math.random, log };
  const watches = createWatchedObjects({ client, ...shared });
  const controller = createController({
    ...shared,
    watches,
    specs: controllersOf(parts, watches),
    workers: WORKERS,
    resyncMs: RESYNC_MS,
    metrics,
  });
  metrics.showPending(() => controller.pending);
  const ops =
    config.opsListen === undefined
      ? undefined
      : await openOpsServer({
          ...config.opsListen,
          metrics: metrics.registry,
          checks: [
            {
              name: 'api server',
              // Every response proves the connection, so this sends the cheapest request.
              check: async (use) =>
                void (await client.get(
                  KINDS.lease,
                  { namespace: options.namespace, name: config.leaseName },
                  use,
                )),
            },
          ],
        });
  log.info(
    { apiServer: connection.server, namespace: options.namespace, ops: ops?.address },
    'operator is ready',
  );
  const lead = async (use: AbortSignal): Promise<void> => {
    metrics.leading.set(1);
    await controller.run(use);
    metrics.leading.set(0);
  };
  try {
    await whileLeading(parts, lead, signal);
  } finally {
    await ops?.close();
  }
}

function whileLeading(
  { config, client, options, log }: Parts,
  lead: (use: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  if (!config.leaderElection) return lead(signal);
  const leader = {
    client,
    namespace: options.namespace,
    name: config.leaseName,
    identity: `${hostname()}_${randomUUID()}`,
    clock: systemClock,
    log,
  };
  return runWhileLeading(leader, lead, signal);
}

/** Runs `--cleanup`. It needs the Lease, so it waits until any running operator releases it. */
function cleanUp(parts: Parts, signal: AbortSignal): Promise<void> {
  const { client, log } = parts;
  const specs = controllersOf({ ...parts, leaving: true }, createListedObjects(client));
  log.info({}, 'waiting for the lease: stop the operator that holds it');
  const lead = (use: AbortSignal): Promise<void> =>
    leave({ client, specs, clock: systemClock, log, limitMs: CLEANUP_LIMIT_MS }, use);
  return whileLeading(parts, lead, signal);
}

/** Prints the plan for every existing resource. */
async function printAll(parts: Parts, print: (text: string) => void, signal: AbortSignal): Promise<void> {
  const client = createDryRunClient(parts.client, print);
  const control = createDryRunControl(parts.control, print, Date.now);
  const silent: EventRecorder = { record: () => Promise.resolve() };
  const cache = createListedObjects(client);
  for (const [name, { reconciler, resources }] of controllersOf(
    { ...parts, client, control },
    cache,
    silent,
  )) {
    for (const one of await namesOf(client, resources, signal)) {
      print(`# ${name} ${one}\n`);
      try {
        await reconciler.reconcile(one, signal);
      } catch (error) {
        print(`# cannot be deployed: ${errorText(error)}\n`);
      }
    }
  }
}

function controllersOf(
  parts: Parts,
  cache: ObjectCache,
  silent?: EventRecorder,
): ReadonlyMap<string, ControllerSpec> {
  const { client, control, metrics, options, log, leaving = false } = parts;
  const clock = systemClock;
  const deps = {
    leaving,
    client,
    cache,
    options,
    metrics,
    clock,
    log,
    tailnets: createTailnets({
      client,
      namespace: options.namespace,
      own: control,
      defaultLoginServer: TAILSCALE_LOGIN,
      nowMs: Date.now,
    }),
    keys: new KeyKeeper({ metrics, nowMs: Date.now, log }),
    tags: createTagPolicy({ client, options, clock }),
    events: silent ?? createEventRecorder({ client, clock, log, createId: () => randomUUID().slice(0, 13) }),
  };
  const { config } = parts;
  const choices = choicesOf(config, options.namespace);
  const { namespace } = choices;
  const reconciled = reconciledBy(config);
  const specs = new Map([
    ['Recorder', ownerController('Recorder', createRecorderReconciler(deps), namespace)],
  ]);
  // Classes come first, because a dry run also prints the objects that depend on them.
  if (reconciled.services || reconciled.connectors || reconciled.ingresses || reconciled.gateways)
    specs.set('ProxyClass', classController(createProxyClassReconciler(deps)));
  if (reconciled.connectors)
    specs.set('Connector', connectorController(createConnectorReconciler(deps), namespace));
  if (reconciled.dnsConfigs) specs.set('DNSConfig', dnsController(createDnsReconciler(deps), namespace));
  if (reconciled.ingresses)
    specs.set('Ingress', ingressController(createIngressReconciler(deps, choices), choices));
  if (reconciled.gateways) {
    specs.set('GatewayClass', gatewayClassController(createGatewayClassReconciler(deps)));
    specs.set('Gateway', gatewayController(createGatewayReconciler(deps, choices), choices));
  }
  specs.set('Tailnet', tailnetController(createTailnetReconciler(deps)));
  if (reconciled.proxyGroups) {
    specs.set('ProxyGroupPolicy', policyController(createProxyGroupPolicyReconciler(deps)));
    for (const [name, spec] of groupControllers(deps, choices)) specs.set(name, spec);
  }
  if (reconciled.services)
    specs.set('Service', serviceController(createServiceReconciler(deps, choices), choices));
  return specs;
}

/** Settings of all reconcilers and their watches. */
type Choices = ServiceChoices &
  IngressGroupChoices & { readonly namespace: string; readonly tailnetServices: boolean };

function choicesOf(config: OperatorConfig, namespace: string): Choices {
  const { defaultProxyClass: defaultClass = '', clusterDomain } = config;
  const { proxyGroups, services, ingresses } = reconciledBy(config);
  return {
    namespace,
    defaultClass,
    clusterDomain,
    services,
    ingresses,
    servesUnclassed: config.defaultLoadBalancer,
    servesGroups: proxyGroups,
    networks: networksOf(config),
    tailnetServices: config.control === 'tailscale',
  };
}

/** Controllers for ProxyGroups of all types. Unsupported groups get a condition with the reason. */
function groupControllers(
  deps: ReconcilerDeps,
  choices: Choices,
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

/** @throws TailcastError `CONFIG_INVALID` */
function networksOf({ ingressAddresses }: OperatorConfig): readonly Network[] {
  const networks = ingressAddresses.map((text) => {
    const network = networkOf(text);
    if (network?.isAligned === true) return network;
    throw new TailcastError(
      'CONFIG_INVALID',
      `ingressAddresses: ${JSON.stringify(text)} is not a network such as 10.99.0.0/24, without bits behind its prefix`,
    );
  });
  if (new Set(networks.map(({ family }) => family)).size < networks.length) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'ingressAddresses: name one network of IPv4 and one of IPv6 at most',
    );
  }
  return networks;
}

function specOptions(config: OperatorConfig, namespace: string, image: string): SpecOptions {
  return {
    namespace,
    // A login server from the adapter of the control server replaces this default for each Recorder.
    loginServer: TAILSCALE_LOGIN,
    defaultTags: config.defaultTags,
    allowedTags: config.allowedTags,
    recorderUploaders: config.recorderUploaders,
    recorderImage: config.recorderImage ?? image,
    tailscaleImage: config.tailscaleImage,
    tailnetDomain: config.tailnetDomain,
  };
}
