/** A ProxyGroup as a group of nodes. Pure. */
import { groupLabels, tagsOf, type NodeGroup, type SpecOptions } from '../nodes/node-group.ts';
import type { ProxyGroup } from './resource.ts';

/**
 * The account of gateways that impersonate, under the reference's name. It is installed together with its right to
 * impersonate (`deploy/rbac/operator.yaml`): an operator that could hand that right out would have it himself.
 */
const IMPERSONATING_ACCOUNT = 'kube-apiserver-auth-proxy';

/** @param options `defaultTags` are those of groups that name none. */
export function proxyGroupNodes(
  { metadata, spec }: ProxyGroup,
  { defaultTags }: Pick<SpecOptions, 'defaultTags'>,
): NodeGroup {
  const { name, uid } = metadata;
  const shared = spec.kubeAPIServer.mode === 'auth';
  return {
    kind: 'ProxyGroup',
    name,
    uid,
    owned: true,
    replicas: spec.replicas,
    tags: tagsOf(spec.tags, defaultTags),
    labels: groupLabels('ProxyGroup', name),
    account: { name: shared ? IMPERSONATING_ACCOUNT : name, annotations: {}, shared },
  };
}
