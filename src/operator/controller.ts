/** Ties informers to the queue: a Recorder is looked at when it or anything of it changes, and every now and then. */
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { pause, type Clock } from './clock.ts';
import { createInformer, type Informer } from './informer.ts';
import type { KubeClient } from './kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from './kube-object.ts';
import type { OperatorMetrics } from './operator-metrics.ts';
import { createWorkQueue, type WorkQueue } from './queue.ts';
import type { RecorderReconciler } from './recorder/reconcile.ts';
import { labelSelector } from './recorder/specs.ts';

export interface ControllerOptions {
  readonly client: KubeClient;
  readonly reconciler: RecorderReconciler;
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
];

export function createController(options: ControllerOptions): Controller {
  const { client, reconciler, namespace, clock, random, log, metrics } = options;

  const queue: WorkQueue = createWorkQueue({
    workers: options.workers,
    clock,
    random,
    async handle(name, signal) {
      const again = await reconciler.reconcile(name, signal);
      metrics.reconciles.inc({ outcome: 'done' });
      return again;
    },
    onFailure(name, error, retryInMs) {
      metrics.reconciles.inc({ outcome: 'failed' });
      log.warn(
        { recorder: name, error: errorText(error), retryInMs: Math.round(retryInMs) },
        'reconcile failed',
      );
    },
  });

  /** Owned objects are watched without their content: that they changed is all that matters. */
  function informer(kind: ResourceKind, onChange: (object: KubeObject) => void): Informer {
    const scope =
      kind === KINDS.recorder
        ? { metadataOnly: true }
        : { namespace, labelSelector: labelSelector(), metadataOnly: true };
    return createInformer({
      source: {
        name: kind.plural,
        list: (signal) => client.list(kind, scope, signal),
        watch: (resourceVersion, timeoutSeconds, signal) =>
          client.watch(kind, { ...scope, resourceVersion, timeoutSeconds }, signal),
      },
      onChange: (_change, object) => onChange(object),
      clock,
      random,
      log,
    });
  }

  async function resync(recorders: Informer, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(clock, options.resyncMs, signal);
      if (!signal.aborted) for (const { metadata } of recorders.items) queue.add(metadata.name);
    }
  }

  return {
    get pending() {
      return queue.size;
    },
    async run(signal) {
      const recorders = informer(KINDS.recorder, ({ metadata }) => queue.add(metadata.name));
      const owned = OWNED.map((kind) =>
        informer(kind, ({ metadata }) => {
          const owner = metadata.labels?.['app.kubernetes.io/instance'];
          if (owner !== undefined) queue.add(owner);
        }),
      );
      const running = [recorders, ...owned].map((one) => one.run(signal));
      await Promise.all([...running, resync(recorders, signal), queue.run(signal)]);
    },
  };
}
