/** Reads and removes the front Services of an egress group in the cluster. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
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
    await removeFront(deps, front);
  }
}

/** Removes the front of one Service. */
export async function removeFront(
  { client }: FrontDeps,
  { metadata: { namespace, name, uid } }: KubeObject,
): Promise<void> {
  await client.remove(KINDS.service, { namespace, name }, { uid });
}
