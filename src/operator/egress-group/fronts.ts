/** Removes the front Services of an egress group in the cluster. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import { removeExact } from '../workload/cleanup.ts';
import type { SpecOptions } from '../workload/workload.ts';
import { frontSelector } from './member.ts';

interface FrontDeps {
  readonly client: Pick<KubeClient, 'list' | 'remove'>;
  readonly options: Pick<SpecOptions, 'namespace'>;
}

/** Removes all front Services of a group. The garbage collector deletes the EndpointSlices of the fronts. */
export async function removeFronts(deps: FrontDeps, group: string): Promise<void> {
  const scope = {
    namespace: deps.options.namespace,
    labelSelector: frontSelector(group),
    metadataOnly: true,
  };
  for (const front of (await deps.client.list(KINDS.service, scope)).items) {
    await removeExact(deps, front);
  }
}
