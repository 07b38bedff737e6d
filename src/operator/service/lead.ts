/** Makes a Service lead to what stands for it in the operator's namespace. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';

/** As much of a Service as that takes. */
interface Leading {
  readonly metadata: { readonly namespace?: string | undefined; readonly name: string; readonly uid: string };
  readonly spec: {
    readonly type: string;
    readonly externalName: string;
    readonly selector?: Readonly<Record<string, string>> | null | undefined;
  };
}

/** @param externalName the full name in the cluster's DNS */
export async function leadServiceTo(
  client: Pick<KubeClient, 'patch'>,
  { metadata, spec }: Leading,
  externalName: string,
  signal: AbortSignal,
): Promise<void> {
  const hasSelector = Object.keys(spec.selector ?? {}).length > 0;
  if (spec.type === 'ExternalName' && spec.externalName === externalName && !hasSelector) return;
  const { namespace, name, uid } = metadata;
  // A Service of another type has members that this one may not have; the API server takes those away by itself.
  const body = { metadata: { uid }, spec: { type: 'ExternalName', externalName, selector: null } };
  await client.patch(KINDS.service, { namespace, name }, { kind: 'merge', body }, signal);
}
