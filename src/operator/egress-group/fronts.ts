/** Removes the front Services of an egress group in the cluster. Effects. */
import { KINDS } from '../kube-object.ts';
import { removeExact } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import type { ReconcilerDeps } from '../workload/reconciler.ts';
import { frontSelector } from './member.ts';

/** Removes all front Services of a group. The garbage collector deletes their EndpointSlices. */
export async function removeFronts(
  deps: Pick<ReconcilerDeps, 'client' | 'options'>,
  group: string,
): Promise<void> {
  for (const front of await listOwn(deps, KINDS.service, frontSelector(group), true))
    await removeExact(deps, front);
}
