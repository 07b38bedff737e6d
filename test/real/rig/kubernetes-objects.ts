/** Returns the objects that the rig creates in a new cluster. */
export function bootstrapObjects(): readonly { readonly path: string; readonly object: object }[] {
  const rbac = '/apis/rbac.authorization.k8s.io/v1';
  return [
    {
      path: '/api/v1/namespaces',
      object: { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'tailcast' } },
    },
    {
      path: '/api/v1/namespaces/tailcast/serviceaccounts',
      object: { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'gateway' } },
    },
    {
      // Minimum rights of a gateway in mode `auth`. These rights permit only impersonation, so a request without
      // impersonation fails.
      path: `${rbac}/clusterroles`,
      object: {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRole',
        metadata: { name: 'rig:impersonator' },
        rules: [
          { apiGroups: [''], resources: ['users', 'groups'], verbs: ['impersonate'] },
          {
            apiGroups: ['authentication.k8s.io'],
            resources: ['uids', 'userextras/*'],
            verbs: ['impersonate'],
          },
        ],
      },
    },
    binding('rig:impersonator', 'rig:impersonator', {
      kind: 'ServiceAccount',
      name: 'gateway',
      namespace: 'tailcast',
    }),
    binding('rig:viewers', 'view', {
      kind: 'Group',
      name: 'rig:viewers',
      apiGroup: 'rbac.authorization.k8s.io',
    }),
  ];
}

function binding(name: string, role: string, subject: object): { path: string; object: object } {
  return {
    path: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
    object: {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'ClusterRoleBinding',
      metadata: { name },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: role },
      subjects: [subject],
    },
  };
}
