/** Ties informers to the queue: a resource is looked at when it or anything of it changes, and every now and then. */
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import type { Clock } from './clock.ts';
import { createSharedInformers, type SharedInformers, type Selection } from './shared-informers.ts';
import type { Informer } from './informer.ts';
import type { KubeClient } from './kube-client.ts';
import type { KubeObject, ResourceKind } from './kube-object.ts';
import type { Reconciler } from './nodes/lifecycle.ts';
import type { OperatorMetrics } from './operator-metrics.ts';
import { createWorkQueue, type WorkQueue } from './queue.ts';

/** Objects of one kind that are watched, and which resources they concern. */
export interface Watched extends Selection {
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

  /** Tells the queue of what concerns the resources of one reconciler, and gives their copy. */
  function supervise(
    informers: SharedInformers,
    name: string,
    { resources: watched, others }: Supervision,
  ): Informer {
    const add = ({ names }: Watched, object: KubeObject): void => {
      const known = (kind: ResourceKind): readonly KubeObject[] =>
        beside.filter((one) => one.kind === kind).flatMap((one) => one.copy.items);
      for (const one of names(object, resources.items, known)) queue.add(`${name}/${one}`);
    };
    const resources = informers.of(watched, (object) => add(watched, object));
    const beside = others.map((other) => ({
      kind: other.kind,
      copy: informers.of(other, (object) => add(other, object)),
    }));
    return resources;
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
      const informers = createSharedInformers({ client, clock, random, log });
      const again = [...supervisions].flatMap(([name, supervision]) => {
        const resources = supervise(informers, name, supervision);
        return supervision.resync ? [resync(name, supervision.resources, resources, signal)] : [];
      });
      await Promise.all([informers.run(signal), ...again, queue.run(signal)]);
    },
  };
}
