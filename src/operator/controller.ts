/**
 * Connects the watches to the work queue. A change of a resource or of one of its objects starts a reconciliation of
 * the resource. Some controllers also reconcile all their resources periodically.
 */
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Runtime } from './clock.ts';
import type { KubeObject } from './kube-object.ts';
import type { Reconciler } from './workload/reconciler.ts';
import type { CachedObjects, Selection, WatchedObjects } from './object-cache.ts';
import type { OperatorMetrics } from './operator-metrics.ts';
import { WorkQueue } from './queue.ts';

/** Objects to watch, and the resources to reconcile after one of these objects changes. */
export interface Watched extends Selection {
  /** Returns the names of the resources to reconcile, in the form that {@link Reconciler} expects. */
  readonly names: (object: KubeObject, cached: CachedObjects) => readonly string[];
}

/** A reconciler with its watches. */
export interface ControllerSpec {
  readonly reconciler: Reconciler;
  /** Resources that the controller reconciles. */
  readonly resources: Watched;
  /** Other objects to watch: those that the reconciler creates for its resources, and those that it reads. */
  readonly others: readonly Watched[];
  /** True if the resources are also reconciled periodically. */
  readonly resync: boolean;
}

export interface ControllerOptions extends Runtime {
  readonly watches: WatchedObjects;
  /** Controllers. Map keys: name of the controller, which must not contain a slash. */
  readonly specs: ReadonlyMap<string, ControllerSpec>;
  readonly workers: number;
  readonly resyncMs: number;
  readonly metrics: OperatorMetrics;
}

/** Creates the controller. Call `run` to start it. */
export function createController(options: ControllerOptions) {
  const { watches, specs, clock, random, log, metrics, signal } = options;

  const queue: WorkQueue = new WorkQueue({
    workers: options.workers,
    shareOf(key) {
      const [, namespace, name] = key.split('/');
      return namespace === undefined || name === undefined ? key : namespace;
    },
    clock,
    random,
    async handle(key) {
      // Keys are `<controller>/<name>`, or `<controller>/<namespace>/<name>`.
      const slash = key.indexOf('/');
      const spec = specs.get(key.slice(0, slash));
      const retryAfterMs = await spec?.reconciler.reconcile(key.slice(slash + 1));
      metrics.reconciles.inc({ outcome: 'done' });
      return retryAfterMs;
    },
    onFailure(key, error, retryInMs) {
      metrics.reconciles.inc({ outcome: 'failed' });
      log.warn(
        { resource: key, error: errorText(error), retryInMs: Math.round(retryInMs) },
        'reconcile failed',
      );
    },
  });

  for (const [name, { resources, others }] of specs) {
    for (const watched of [resources, ...others]) {
      // Resources to which the object referred before the change are reconciled too.
      watches.watch(watched, (...versions) => {
        for (const object of versions)
          if (object !== undefined)
            for (const one of watched.names(object, watches.objects)) queue.add(`${name}/${one}`);
      });
    }
  }

  async function resync(name: string, { resources }: ControllerSpec): Promise<void> {
    while (!signal.aborted) {
      await pause(options.resyncMs, signal, clock);
      if (signal.aborted) return;
      for (const object of watches.objects.all(resources))
        for (const one of resources.names(object, watches.objects)) queue.add(`${name}/${one}`);
    }
  }

  return {
    /** Number of queued and running keys. */
    get pending(): number {
      return queue.size;
    },
    /** Runs until the signal of the options aborts. */
    async run(): Promise<void> {
      const periodic = [...specs].filter(([, spec]) => spec.resync);
      await Promise.all([
        watches.run(),
        ...periodic.map(([name, spec]) => resync(name, spec)),
        queue.run(signal),
      ]);
    },
  };
}
