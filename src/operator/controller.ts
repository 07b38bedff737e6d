/** Ties informers to the queue: a resource is looked at when it or anything of it changes, and every now and then. */
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { pause, type Clock } from './clock.ts';
import { createInformer, type Informer } from './informer.ts';
import type { KubeClient } from './kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import type { Reconciler } from './nodes/lifecycle.ts';
import { kindSelector, type NodeGroup } from './nodes/node-group.ts';
import type { OperatorMetrics } from './operator-metrics.ts';
import { createWorkQueue, type WorkQueue } from './queue.ts';

export interface ControllerOptions {
  readonly client: KubeClient;
  /** What is watched, and who sees to it. */
  readonly reconcilers: ReadonlyMap<NodeGroup['kind'], Reconciler>;
  readonly namespace: string;
  readonly workers: number;
  readonly resyncMs: number;
  readonly clock: Clock;
  readonly random: () => number;
  readonly metrics: OperatorMetrics;
  readonly log: Logger;
}

export interface Controller {
  /** Keys that wait or are being worked on. */
  readonly pending: number;
  /** Works until the signal. */
  run(signal: AbortSignal): Promise<void>;
}

const OWNED: readonly ResourceKind[] = [
  KINDS.statefulSet,
  KINDS.serviceAccount,
  KINDS.secret,
  KINDS.role,
  KINDS.roleBinding,
  KINDS.disruptionBudget,
];

export function createController(options: ControllerOptions): Controller {
  const { client, reconcilers, namespace, clock, random, log, metrics } = options;

  const queue: WorkQueue = createWorkQueue({
    workers: options.workers,
    clock,
    random,
    async handle(key, signal) {
      const { kind, name } = readKey(key);
      const again = await reconcilers.get(kind)?.reconcile(name, signal);
      metrics.reconciles.inc({ outcome: 'done' });
      return again;
    },
    onFailure(key, error, retryInMs) {
      metrics.reconciles.inc({ outcome: 'failed' });
      log.warn(
        { resource: key, error: errorText(error), retryInMs: Math.round(retryInMs) },
        'reconcile failed',
      );
    },
  });

  /** Objects are watched without their content: that they changed is all that matters. */
  function informer(
    kind: ResourceKind,
    scope: { readonly namespace?: string; readonly labelSelector?: string },
    onChange: (object: KubeObject) => void,
  ): Informer {
    const options = { ...scope, metadataOnly: true };
    return createInformer({
      source: {
        name: kind.plural,
        list: (signal) => client.list(kind, options, signal),
        watch: (resourceVersion, timeoutSeconds, signal) =>
          client.watch(kind, { ...options, resourceVersion, timeoutSeconds }, signal),
      },
      onChange: (_change, object) => onChange(object),
      clock,
      random,
      log,
    });
  }

  /** The resources of one kind, and what belongs to them. */
  function informersOf(kind: NodeGroup['kind']): { readonly resources: Informer; readonly all: Informer[] } {
    const add = (name: string): void => queue.add(`${kind}/${name}`);
    const resources = informer(RESOURCES[kind], {}, ({ metadata }) => add(metadata.name));
    const owned = OWNED.map((ownedKind) =>
      informer(ownedKind, { namespace, labelSelector: kindSelector(kind) }, ({ metadata }) => {
        const owner = metadata.labels?.['app.kubernetes.io/instance'];
        if (owner !== undefined) add(owner);
      }),
    );
    return { resources, all: [resources, ...owned] };
  }

  async function resync(kind: NodeGroup['kind'], resources: Informer, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(clock, options.resyncMs, signal);
      if (!signal.aborted) {
        for (const { metadata } of resources.items) queue.add(`${kind}/${metadata.name}`);
      }
    }
  }

  return {
    get pending() {
      return queue.size;
    },
    async run(signal) {
      const running = [...reconcilers.keys()].flatMap((kind) => {
        const { resources, all } = informersOf(kind);
        return [...all.map((one) => one.run(signal)), resync(kind, resources, signal)];
      });
      await Promise.all([...running, queue.run(signal)]);
    },
  };
}

const RESOURCES: Readonly<Record<NodeGroup['kind'], ResourceKind>> = {
  Recorder: KINDS.recorder,
  ProxyGroup: KINDS.proxyGroup,
};

/** Keys of the queue are `<kind>/<name>`; names have no slash. */
function readKey(key: string): { readonly kind: NodeGroup['kind']; readonly name: string } {
  const slash = key.indexOf('/');
  const kind = key.slice(0, slash);
  return { kind: kind === 'ProxyGroup' ? kind : 'Recorder', name: key.slice(slash + 1) };
}
