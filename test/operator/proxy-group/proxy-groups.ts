/** ProxyGroups for the tests. */
import { parseProxyGroup, type ProxyGroup } from '../../../src/operator/proxy-group/resource.ts';

/** Returns a manifest for the reference operator. */
export function proxyGroupObject(spec: object = {}, metadata: object = {}) {
  return {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'ProxyGroup',
    metadata: { name: 'prod', uid: 'uid-1', generation: 1, ...metadata },
    spec: { type: 'kube-apiserver', ...spec },
  };
}

export function proxyGroup(spec: object = {}, metadata: object = {}): ProxyGroup {
  return parseProxyGroup(proxyGroupObject(spec, metadata));
}
