/** Builds the operator role. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { CommandContext } from '../config/command-context.ts';
import type { OperatorConfig } from '../config/operator.ts';
import { errorText, TailcastError } from '../errors.ts';
import { keepHeapSmall } from '../memory/small-heap.ts';
import { openFatalErrors } from '../observe/fatal-errors.ts';
import { createLogger, type Logger } from '../observe/logger.ts';
import { openOpsServer, type ReadinessCheck } from '../observe/ops-server.ts';
import { systemClock } from '../operator/clock.ts';
import { connectCluster } from '../operator/cluster-connection.ts';
import { createController } from '../operator/controller.ts';
import { createDryRunClient, createDryRunControl } from '../operator/dry-run.ts';
import type { EventRecorder } from '../operator/event-recorder.ts';
import { createKubeClient } from '../operator/kube-client.ts';
import { KINDS } from '../operator/kube-object.ts';
import { leave, namesOf } from '../operator/leave.ts';
import { runWhileLeading } from '../operator/leader.ts';
import { createListedObjects, createWatchedObjects } from '../operator/object-cache.ts';
import { createOperatorMetrics } from '../operator/operator-metrics.ts';
import { operatorOptions } from './operator-options.ts';
import { createControl } from './operator-peers.ts';
import { type OperatorParts, controllersOf } from './operator-controllers.ts';

/**
 * Maximum duration of `--cleanup`, in milliseconds. This is enough for the grace period of pods, and for retries of
 * requests to the control server.
 */
const CLEANUP_LIMIT_MS = 10 * 60_000;

/** Maximum number of resources that are reconciled at the same time. */
const WORKERS = 16;

/** Interval at which unchanged resources are reconciled again, in milliseconds. */
const RESYNC_MS = 600_000;

/**
 * `tailcast operator`: runs until `signal` aborts. With `dryRun`, prints its plan and exits.
 *
 * @param image tailcast image for the pods that the operator deploys, unless the settings name another image
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
  const connection = connectCluster(config, environment);
  try {
    const namespace = config.namespace ?? connection.namespace;
    if (namespace === undefined) {
      throw new TailcastError(
        'CONFIG_INVALID',
        'namespace: name the one that the recorders run in (--namespace)',
      );
    }
    const options = operatorOptions(config, namespace, image);
    const open: OpenParts = (use) => {
      const client = createKubeClient(connection, use);
      const control = createControl(config, client, use);
      return { config, connection, log, client, control, metrics, options, signal: use };
    };
    if (config.cleanup) await cleanUp(open, signal);
    else if (config.dryRun) await printAll(open(signal), (text) => void stdout.write(text));
    else {
      warnOfUploads(config, log);
      await serve(open, signal);
    }
  } finally {
    connection.close();
  }
  fatalErrors.close();
}

/**
 * Warns that recorders accept uploads from all tailnet nodes, which is also the default of the reference (Tailscale's
 * operator).
 */
function warnOfUploads({ recorderUploaders }: OperatorConfig, log: Logger): void {
  if (recorderUploaders.length > 0) return;
  log.warn(
    { remedy: 'name the tags of gateways and SSH servers in recorderUploaders' },
    'every node that reaches a recorder may forge recordings and events',
  );
}

/** Opens clients whose requests end when the signal aborts. */
type OpenParts = (signal: AbortSignal) => OperatorParts;

async function serve(open: OpenParts, signal: AbortSignal): Promise<void> {
  const { config, client, metrics, log, options, connection } = open(signal);
  const at = { namespace: options.namespace, name: config.lease ?? 'tailcast-operator' };
  const check: ReadinessCheck = {
    name: 'api server',
    // Every response, even an error, proves that the API server is reachable, so this check sends the cheapest request.
    check: async (use) => void (await client.get(KINDS.lease, at, use)),
  };
  const ops = await openOpsServer(config.opsListen, { metrics: metrics.registry, checks: [check] });
  log.info(
    { apiServer: connection.server, namespace: options.namespace, ops: ops?.address },
    'operator is ready',
  );
  try {
    await whileLeading(open, lead, signal);
  } finally {
    await ops?.close();
  }
}

/** Runs the controllers until the signal aborts, for example because the process has lost the Lease. */
async function lead(parts: OperatorParts): Promise<void> {
  const { client, metrics, log, signal } = parts;
  const shared = { clock: systemClock, random: Math.random, log, signal };
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
  metrics.clearDeployed();
  metrics.leading.set(1);
  await controller.run();
  metrics.leading.set(0);
}

/** Runs `work` while this process holds the Lease, or immediately if the settings disable the Lease. */
function whileLeading(
  open: OpenParts,
  work: (parts: OperatorParts) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const parts = open(signal);
  const { config, client, options, log } = parts;
  if (config.lease === undefined) return work(parts);
  const identity = `${hostname()}_${randomUUID()}`;
  const { namespace } = options;
  const leader = { client, namespace, name: config.lease, identity, clock: systemClock, log };
  return runWhileLeading(leader, (use) => work(open(use)), signal);
}

/** Runs `--cleanup`. The cleanup needs the Lease, so it waits until a running operator releases the Lease. */
function cleanUp(open: OpenParts, signal: AbortSignal): Promise<void> {
  open(signal).log.info({}, 'waiting for the lease: stop the operator that holds it');
  const work = (parts: OperatorParts): Promise<void> => {
    const specs = controllersOf({ ...parts, leaving: true }, createListedObjects(parts.client));
    return leave({ ...parts, specs, clock: systemClock, limitMs: CLEANUP_LIMIT_MS });
  };
  return whileLeading(open, work, signal);
}

/** Prints the planned changes for each existing resource. */
async function printAll(parts: OperatorParts, print: (text: string) => void): Promise<void> {
  const client = createDryRunClient(parts.client, print);
  const control = createDryRunControl(parts.control, print, Date.now);
  const silent: EventRecorder = { warn: () => Promise.resolve() };
  const cache = createListedObjects(client);
  for (const [name, { reconciler, resources }] of controllersOf(
    { ...parts, client, control },
    cache,
    silent,
  )) {
    for (const one of await namesOf(client, resources)) {
      print(`# ${name} ${one}\n`);
      try {
        await reconciler.reconcile(one);
      } catch (error) {
        print(`# cannot be deployed: ${errorText(error)}\n`);
      }
    }
  }
}
