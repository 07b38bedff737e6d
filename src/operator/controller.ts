/** Ties informers to the queue: a resource is looked at when it or anything of it changes, and every now and then. */
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { Clock } from './clock.ts';
import { createInformer, type Informer } from './informer.ts';
import type { KubeClient } from './kube-client.ts';
import type { KubeObject, ResourceKind } from './kube-object.ts';
import type { Reconciler } from './nodes/lifecycle.ts';
import type { OperatorMetrics } from './operator-metrics.ts';
import { createWorkQueue, type WorkQueue } from './queue.ts';

/** Objects of one kind that are watched, and which resources they concern. */
export interface Watched {
  readonly kind: ResourceKind;
  readonly namespace?: string;
  readonly labelSelector?: string;
  /** What is kept of an object. Default: `metadata` alone is sent, because that it changed is all that matters. */
  readonly keep?: (object: KubeObject) => KubeObject;
  /**
   * Names of the resources to look at, as {@link Reconciler} takes them.
   *
   * @param resources all that are there
   * @param others what else is watched for them, by kind
   */
  readonly names: (
    object: KubeObject,
    resources: readonly KubeObject[],
    others: (kind: ResourceKind) => readonly KubeObject[],
  ) => readonly string[];
}

/** One reconciler, and what it is called for. */
export interface Supervision {
  readonly reconciler: Reconciler;
  readonly resources: Watched;
  /** What was made for them, or decides about them. */
  readonly others: readonly Watched[];
  /** Whether they are looked at every now and then even if nothing changed. */
  readonly resync: boolean;
}

export interface ControllerOptions {
  readonly client: KubeClient;
  /** By a name without a slash. */
  readonly supervisions: ReadonlyMap<string, Supervision>;
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

export function createController(options: ControllerOptions): Controller {
  const { client, supervisions, clock, random, log, metrics } = options;

  const queue: WorkQueue = createWorkQueue({
    workers: options.workers,
    clock,
    random,
    async handle(key, signal) {
      // Keys are `<reconciler>/<name>`, or `<reconciler>/<namespace>/<name>`.
      const slash = key.indexOf('/');
      const supervision = supervisions.get(key.slice(0, slash));
      const again = await supervision?.reconciler.reconcile(key.slice(slash + 1), signal);
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

  function informer(watched: Watched, onChange: (object: KubeObject) => void): Informer {
    const { kind, namespace, labelSelector, keep } = watched;
    const scope = { namespace, labelSelector, metadataOnly: keep === undefined };
    return createInformer({
      source: {
        name: kind.plural,
        list: (signal) => client.list(kind, scope, signal),
        watch: (resourceVersion, timeoutSeconds, signal) =>
          client.watch(kind, { ...scope, resourceVersion, timeoutSeconds }, signal),
      },
      ...(keep === undefined ? {} : { keep }),
      onChange: (_change, object) => onChange(object),
      clock,
      random,
      log,
    });
  }

  /** The resources of one reconciler, and what concerns them. */
  function informersOf(
    name: string,
    { resources: watched, others }: Supervision,
  ): { readonly resources: Informer; readonly all: Informer[] } {
    const add = ({ names }: Watched, object: KubeObject): void => {
      const known = (kind: ResourceKind): readonly KubeObject[] =>
        beside.filter((one) => one.kind === kind).flatMap((one) => one.copy.items);
      for (const one of names(object, resources.items, known)) queue.add(`${name}/${one}`);
    };
    const copyOf = (one: Watched): Informer => informer(one, (object) => add(one, object));
    const resources = copyOf(watched);
    const beside = others.map((other) => ({ kind: other.kind, copy: copyOf(other) }));
    return { resources, all: [resources, ...beside.map(({ copy }) => copy)] };
  }

  async function resync(
    name: string,
    { names }: Watched,
    resources: Informer,
    signal: AbortSignal,
  ): Promise<void> {
    while (!signal.aborted) {
      await pause(options.resyncMs, signal, clock);
      if (signal.aborted) return;
      for (const object of resources.items) {
        for (const one of names(object, [], () => [])) queue.add(`${name}/${one}`);
      }
    }
  }

  return {
    get pending() {
      return queue.size;
    },
    async run(signal) {
      const running = [...supervisions].flatMap(([name, supervision]) => {
        const { resources, all } = informersOf(name, supervision);
        const again = supervision.resync ? [resync(name, supervision.resources, resources, signal)] : [];
        return [...all.map((one) => one.run(signal)), ...again];
      });
      await Promise.all([...running, queue.run(signal)]);
    },
  };
}
