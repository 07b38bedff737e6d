/** Manifests, roles and account for access requests in a real cluster. */
import type { Kubernetes } from '../rig/kubernetes.ts';
import { accountToken, applyManifest } from './manifests.ts';

const RBAC = 'rbac.authorization.k8s.io';

/**
 * Applies the manifests of `deploy/access`. Members of `readers` may read pods and configmaps, and members of `sre` may
 * change them and open sessions.
 *
 * @returns the token of the gateway's account
 */
export async function prepareAccess(cluster: Kubernetes): Promise<string> {
  await applyManifest(cluster, 'rbac/gateway.yaml');
  for (const file of ['accessrequest', 'policy', 'rbac']) await applyManifest(cluster, `access/${file}.yaml`);
  for (const [name, verbs] of [
    ['sre', ['*']],
    ['readers', ['get', 'list', 'watch']],
  ] as const) {
    const object = { apiVersion: `${RBAC}/v1`, metadata: { name } };
    await cluster.api('POST', `/apis/${RBAC}/v1/clusterroles`, {
      ...object,
      kind: 'ClusterRole',
      rules: [{ apiGroups: [''], resources: ['pods', 'pods/exec', 'configmaps'], verbs }],
    });
    await cluster.api('POST', `/apis/${RBAC}/v1/clusterrolebindings`, {
      ...object,
      kind: 'ClusterRoleBinding',
      roleRef: { apiGroup: RBAC, kind: 'ClusterRole', name },
      subjects: [{ kind: 'Group', name, apiGroup: RBAC }],
    });
  }
  return accountToken(cluster);
}
