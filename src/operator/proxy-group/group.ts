/** A ProxyGroup as a group of nodes. Pure. */
import {
  groupLabels,
  ordinals,
  problemOfName,
  tagsOf,
  type NodeGroup,
  type SpecOptions,
  parentLabels,
  dnsLabel,
} from '../workload/workload.ts';
import type { ProxyGroup } from './resource.ts';

/**
 * ServiceAccount of gateways that impersonate users. It has the same name as in the reference (Tailscale's operator).
 * Its right to impersonate comes from `deploy/rbac/operator.yaml`, because the operator lacks this right and therefore
 * cannot grant it.
 */
const IMPERSONATING_ACCOUNT = 'kube-apiserver-auth-proxy';

/** Returns the hostname of a replica's node. */
export function nodeName({ metadata, spec }: ProxyGroup, ordinal: number): string {
  return dnsLabel(`${spec.hostnamePrefix || metadata.name}-${ordinal}`);
}

/** Returns the names of a group's nodes; an empty list if the group's own name is invalid. */
export function nodeNames(proxyGroup: ProxyGroup, group: NodeGroup): readonly string[] {
  if (problemOfName(proxyGroup.metadata.name) !== undefined) return [];
  return ordinals(group).map((ordinal) => nodeName(proxyGroup, ordinal));
}

type GroupOptions = Pick<SpecOptions, 'defaultTags'>;

/** @param options `defaultTags`: tags for groups without their own tags */
export function proxyGroupNodes(proxyGroup: ProxyGroup, options: GroupOptions): NodeGroup {
  const { metadata, spec } = proxyGroup;
  const shared = spec.kubeAPIServer.mode === 'auth';
  return nodesOf(proxyGroup, options, {
    labels: groupLabels('ProxyGroup', metadata.name),
    account: { name: shared ? IMPERSONATING_ACCOUNT : metadata.name, annotations: {}, shared },
  });
}

/**
 * Returns the nodes of an egress or ingress group, which many Services share. Their ServiceAccount may store the state
 * of the nodes and write events.
 */
export function sharedNodes(
  proxyGroup: ProxyGroup,
  options: Pick<SpecOptions, 'namespace' | 'defaultTags'>,
): NodeGroup {
  const { name } = proxyGroup.metadata;
  return nodesOf(proxyGroup, options, {
    labels: parentLabels({ type: 'proxygroup', namespace: options.namespace, name }),
    account: { name, annotations: {}, shared: false },
  });
}

function nodesOf(
  { metadata, spec }: ProxyGroup,
  { defaultTags }: GroupOptions,
  own: Pick<NodeGroup, 'labels' | 'account'>,
): NodeGroup {
  const { name, uid } = metadata;
  const tags = tagsOf(spec.tags, defaultTags);
  return { kind: 'ProxyGroup', name, uid, owned: true, replicas: spec.replicas, tags, ...own };
}
