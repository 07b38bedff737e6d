/** Points a Service to its front Service or its proxy in the operator's namespace. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import type { Service } from './resource.ts';

/** @param externalName full name in the cluster DNS */
export async function leadServiceTo(
  client: Pick<KubeClient, 'patch'>,
  { metadata, spec }: Service,
  externalName: string,
): Promise<void> {
  const hasSelector = Object.keys(spec.selector ?? {}).length > 0;
  if (spec.type === 'ExternalName' && spec.externalName === externalName && !hasSelector) return;
  const { namespace, name, uid } = metadata;
  // When the type becomes ExternalName, the API server itself removes the fields that only other types have.
  const body = { metadata: { uid }, spec: { type: 'ExternalName', externalName, selector: null } };
  await client.patch(KINDS.service, { namespace, name }, { kind: 'merge', body });
}
