/**
 * Uninstalls the operator: removes everything that it has created in the cluster and the tailnet, resource by resource.
 */
import { pause } from '../async/pause.ts';
import { errorText, TailcastError } from '../errors.ts';
import type { Runtime } from './clock.ts';
import type { ControllerSpec, Watched } from './controller.ts';
import type { KubeClient } from './kube-client.ts';
import { listOf, viewOf } from './object-cache.ts';

export interface LeaveOptions extends Omit<Runtime, 'random'> {
  readonly client: Pick<KubeClient, 'list'>;
  /** Controllers whose reconcilers delete everything that the operator created for a resource. */
  readonly specs: ReadonlyMap<string, ControllerSpec>;
  /** Maximum duration of the cleanup, in milliseconds. */
  readonly limitMs: number;
}

/** Delay before a retry. */
const RETRY_MS = 5000;

/**
 * Removes the created objects and the finalizers; the resources themselves stay.
 *
 * @throws TailcastError `CLEANUP_INCOMPLETE` with the remaining resources after the time limit
 */
export async function leave(options: LeaveOptions): Promise<void> {
  const { client, specs, clock, log, limitMs, signal } = options;
  const endMs = clock.monotonic() + limitMs;
  const waiting = new Map<string, string>();
  for (const [name, { resources }] of specs)
    for (const key of await namesOf(client, resources)) waiting.set(`${name}/${key}`, 'not started');
  log.info({ resources: waiting.size }, 'cleaning up');
  while (!signal.aborted) {
    let retryMs = RETRY_MS;
    for (const key of waiting.keys()) {
      if (signal.aborted) break;
      const slash = key.indexOf('/');
      try {
        const retryAfterMs = await specs.get(key.slice(0, slash))?.reconciler.reconcile(key.slice(slash + 1));
        if (retryAfterMs === undefined) waiting.delete(key);
        else {
          waiting.set(key, 'its pods are still there');
          retryMs = Math.min(retryMs, retryAfterMs);
        }
      } catch (error) {
        waiting.set(key, errorText(error));
        log.warn({ resource: key, error: errorText(error) }, 'not cleaned up yet');
      }
    }
    if (waiting.size === 0) {
      log.info({}, 'nothing of the operator is left');
      return;
    }
    if (clock.monotonic() >= endMs) {
      const left = [...waiting].map(([key, reason]) => `${key} (${reason})`).join(', ');
      throw new TailcastError('CLEANUP_INCOMPLETE', `not cleaned up: ${left}`);
    }
    await pause(retryMs, signal, clock);
  }
}

/** Returns the names of all resources of a controller. */
export async function namesOf(
  client: Pick<KubeClient, 'list'>,
  resources: Watched,
): Promise<ReadonlySet<string>> {
  const objects = await listOf(client, resources);
  const cached = viewOf([[resources, objects]]);
  return new Set(objects.flatMap((object) => resources.names(object, cached)));
}
