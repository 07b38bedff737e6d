/** What stands for the Services of groups, as it is in the cluster. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
import type { SpecOptions } from '../nodes/node-group.ts';
import { frontSelector } from './member.ts';

interface FrontDeps {
  readonly client: Pick<KubeClient, 'list' | 'remove'>;
  readonly options: Pick<SpecOptions, 'namespace'>;
}

/** Removes everything that stands for Services in a group. Slices go with their Service. */
export async function removeFronts(deps: FrontDeps, group: string, signal: AbortSignal): Promise<void> {
  const scope = {
    namespace: deps.options.namespace,
    labelSelector: frontSelector(group),
    metadataOnly: true,
  };
  for (const front of (await deps.client.list(KINDS.service, scope, signal)).items) {
    await removeFront(deps, front, signal);
  }
}

export async function removeFront(
  { client }: FrontDeps,
  { metadata: { namespace, name, uid } }: KubeObject,
  signal: AbortSignal,
): Promise<void> {
  await client.remove(KINDS.service, { namespace, name }, { uid }, signal);
}
