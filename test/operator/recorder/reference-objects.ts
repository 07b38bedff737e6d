/** Objects that the reference operator has created for a Recorder with one replica. tailcast's operator adopts them. */
const NAMESPACE = 'tailcast';

interface Owner {
  readonly name: string;
  readonly uid: string;
}

const metadata = ({ name, uid }: Owner, own: string) => ({
  name: own,
  namespace: NAMESPACE,
  labels: {
    'app.kubernetes.io/name': 'recorder',
    'app.kubernetes.io/instance': name,
    'app.kubernetes.io/managed-by': 'tailscale-operator',
  },
  ownerReferences: [
    {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'Recorder',
      name,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    },
  ],
});

const encode = (text: string): string => Buffer.from(text).toString('base64');

/**
 * Returns the state of a joined node, in the format of the embedded tailscaled.
 *
 * @param machineKey private machine key of the node in base64. Default: none
 */
export function referenceState(
  nodeId: string,
  loginName: string,
  machineKey?: string,
): Readonly<Record<string, string>> {
  return {
    ...(machineKey === undefined ? {} : { _machinekey: machineKey }),
    '_current-profile': encode('profile-1'),
    'profile-1': encode(
      JSON.stringify({ Config: { NodeID: nodeId, UserProfile: { LoginName: loginName } } }),
    ),
  };
}

/**
 * @param options.command command of the container; `/tsrecorder` in the reference.
 * @param options.podLabels labels of the Recorder for its pods; the reference puts them into the selector.
 */
export function referenceObjects(
  owner: Owner,
  options: {
    readonly command: readonly string[];
    readonly state: Readonly<Record<string, string>>;
    readonly podLabels?: Readonly<Record<string, string>>;
  },
) {
  const { name } = owner;
  const labels = { ...options.podLabels, ...metadata(owner, name).labels };
  return [
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: metadata(owner, `${name}-auth-0`),
      data: { authkey: encode('tskey-used') },
    },
    { apiVersion: 'v1', kind: 'Secret', metadata: metadata(owner, `${name}-0`), data: options.state },
    { apiVersion: 'v1', kind: 'ServiceAccount', metadata: metadata(owner, name) },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'Role',
      metadata: metadata(owner, name),
      rules: [
        {
          apiGroups: [''],
          resources: ['secrets'],
          verbs: ['get', 'patch', 'update'],
          resourceNames: [`${name}-0`, `${name}-auth-0`],
        },
        { apiGroups: [''], resources: ['events'], verbs: ['get', 'create', 'patch'] },
      ],
    },
    {
      apiVersion: 'rbac.authorization.k8s.io/v1',
      kind: 'RoleBinding',
      metadata: metadata(owner, name),
      subjects: [{ kind: 'ServiceAccount', name, namespace: NAMESPACE }],
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: metadata(owner, name),
      spec: {
        replicas: 1,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            serviceAccountName: name,
            containers: [
              {
                name: 'recorder',
                image: 'tailscale/tsrecorder:v1.102.5',
                command: options.command,
                env: [
                  { name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
                  { name: 'POD_UID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
                  { name: 'TS_AUTHKEY_FILE', value: '/etc/tailscaled/$(POD_NAME)/authkey' },
                  { name: 'TS_STATE', value: 'kube:$(POD_NAME)' },
                  { name: 'TSRECORDER_HOSTNAME', value: '$(POD_NAME)' },
                  { name: 'TSRECORDER_LOGIN_SERVER', value: 'https://controlplane.tailscale.com' },
                  { name: 'TSRECORDER_DST', value: '/data/recordings' },
                  { name: 'TSRECORDER_UI', value: 'true' },
                ],
                volumeMounts: [
                  { name: 'data', mountPath: '/data' },
                  { name: 'authkey-0', readOnly: true, mountPath: `/etc/tailscaled/${name}-0` },
                ],
              },
            ],
            volumes: [
              { name: 'data', emptyDir: {} },
              {
                name: 'authkey-0',
                secret: {
                  secretName: `${name}-auth-0`,
                  items: [{ key: 'authkey', path: 'authkey' }],
                },
              },
            ],
          },
        },
      },
    },
  ];
}
