/** `identity: requestHeader` in front of a real API server with the flags of request headers. */
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openClusterRig, type ClusterRig } from '../../support/cluster-rig.ts';
import { createPod } from '../cases/case.ts';
import { createAuthority, type Authority, type Leaf } from '../rig/certificates.ts';
import { findKubectls, runKubectl } from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { createRig, type Rig } from '../rig/rig.ts';

const kubectl = (await findKubectls()).at(-1)!;
const RULE = { clusters: ['*'], impersonate: { groups: ['rig:viewers', 'a,b'] } };

describe('request headers at a real API server', () => {
  let rig: Rig;
  let cluster: Kubernetes;
  let authority: Authority;
  let ours: Leaf;
  const open: ClusterRig[] = [];

  beforeAll(async () => {
    rig = createRig();
    authority = await createAuthority(rig.folder, 'front');
    ours = await authority.issue({ name: 'gateway', commonName: 'tailcast-gateway' });
    for (const { keyPath } of [ours]) chmodSync(keyPath, 0o600);
    cluster = await startKubernetes(rig, {
      node: { webSockets: true },
      apiServerFlags: [
        `--requestheader-client-ca-file=${authority.certificatePath}`,
        '--requestheader-allowed-names=tailcast-gateway',
        '--requestheader-username-headers=X-Remote-User',
        '--requestheader-group-headers=X-Remote-Group',
        '--requestheader-uid-headers=X-Remote-Uid',
        '--requestheader-extra-headers-prefix=X-Remote-Extra-',
      ],
    });
    await createPod(cluster, 'target', { command: ['sleep', 'infinity'] });
    await cluster.api('POST', '/apis/rbac.authorization.k8s.io/v1/clusterroles', {
      metadata: { name: 'as-carol' },
      rules: [{ apiGroups: [''], resources: ['users'], resourceNames: ['carol'], verbs: ['impersonate'] }],
    });
    await cluster.api('POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', {
      metadata: { name: 'as-carol' },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'as-carol' },
      subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'alice@example.com' }],
    });
  });

  afterEach(async () => {
    for (const one of open.splice(0)) await one.close();
  });

  afterAll(() => rig.stop());

  function kubeconfigWith(user: object, more: object = {}): string {
    const ca = { 'certificate-authority-data': Buffer.from(cluster.ca).toString('base64') };
    return JSON.stringify({
      'current-context': 'c',
      clusters: [{ name: 'k', cluster: { server: cluster.url, ...ca, ...more } }],
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      users: [{ name: 'u', user }],
    });
  }

  const certificate = (leaf: Leaf) => ({
    'client-certificate': leaf.certificatePath,
    'client-key': leaf.keyPath,
  });

  async function start(
    text = kubeconfigWith(certificate(ours)),
    settings: Readonly<Record<string, unknown>> = {},
    rule: object = RULE,
  ): Promise<ClusterRig> {
    const content = {
      clusters: [{ name: 'a', identity: 'requestHeader', kubeconfig: { file: 'DIR/a.yaml' } }],
    };
    const one = await openClusterRig({ content, files: { 'a.yaml': text }, rules: [rule], settings });
    open.push(one);
    return one;
  }

  async function kubectlAt(gateway: ClusterRig, ...args: readonly string[]) {
    const kubeconfig = cluster.kubeconfig('caller', {
      token: 'unused',
      server: `https://127.0.0.1:${gateway.gateway.port}/clusters/a`,
      ca: gateway.gateway.caPem!,
    });
    const { code, stdout, stderr } = await runKubectl(kubectl, args, { kubeconfig, transport: 'websocket' });
    return { code, text: stdout.toString(), problem: stderr.toString() };
  }

  it('name the user, groups, UID and extras', async () => {
    const gateway = await start();
    const { text } = await kubectlAt(gateway, 'auth', 'whoami', '-o', 'json');
    const { status } = JSON.parse(text) as {
      readonly status: { readonly userInfo: Record<string, unknown> };
    };
    expect(status.userInfo).toMatchObject({
      username: 'alice@example.com',
      uid: expect.stringMatching(/^\d+$/),
      groups: ['rig:viewers', 'a,b', 'system:authenticated'],
      extra: { 'tailcast.dev/node': [expect.any(String)] },
    });
    expect(await kubectlAt(gateway, 'get', 'pods', '-o', 'name')).toMatchObject({
      code: 0,
      text: 'pod/target\n',
    });
    const last = cluster
      .audit()
      .filter(({ user }) => user.username === 'alice@example.com')
      .at(-1);
    expect(last).toMatchObject({ user: { extra: { 'tailcast.dev/node': [expect.any(String)] } } });
    expect(last?.impersonatedUser).toBeUndefined();
  });

  it('leave --as to the rights of the user', async () => {
    const gateway = await start();
    const carol = await kubectlAt(
      gateway,
      '--as=carol',
      'auth',
      'whoami',
      '-o',
      'jsonpath={.status.userInfo.username}',
    );
    expect(carol).toMatchObject({ code: 0, text: 'carol' });
    const secrets = '/clusters/a/api/v1/namespaces/kube-system/secrets';
    const as = (one: ClusterRig, user: string) => one.get(secrets, { headers: ['Impersonate-User', user] });
    const root = await as(gateway, 'root');
    expect([root.status, root.body]).toEqual([403, expect.stringContaining('cannot impersonate')]);
    const forged = await gateway.get(secrets, {
      headers: ['X-Remote-User', 'root', 'X-Remote-Group', 'system:masters', 'X-Remote-Uid', '0'],
    });
    expect([forged.status, forged.body]).toEqual([403, expect.stringContaining('alice@example.com')]);
    const reviewed = await start(undefined, { accessReview: true });
    const refused = await as(reviewed, 'carol');
    expect([refused.status, refused.body]).toEqual([403, expect.stringContaining('your own identity')]);
  });

  it('run sessions as the user', async () => {
    const gateway = await start(
      undefined,
      { claimableGroups: 'system:masters' },
      {
        ...RULE,
        impersonate: { groups: ['system:masters'] },
      },
    );
    expect(await kubectlAt(gateway, 'exec', 'target', '--', 'echo', 'hello')).toMatchObject({
      text: 'hello\n',
    });
  });

  it('carry no group of Kubernetes unless claimableGroups names it', async () => {
    const rule = { ...RULE, impersonate: { groups: ['system:masters'] } };
    const gateway = await start(undefined, {}, rule);
    expect(await gateway.get('/clusters/a/api')).toMatchObject({
      status: 403,
      body: expect.stringContaining('claimableGroups does not name'),
    });
  });

  it('are not sent with a certificate of another name, CA or login', async () => {
    const other = await createAuthority(rig.folder, 'other');
    for (const [leaf, problem] of [
      [await authority.issue({ name: 'foreign-name', commonName: 'mallory' }), 'does not trust them (401)'],
      [
        await other.issue({ name: 'foreign-ca', commonName: 'tailcast-gateway' }),
        'does not trust them (401)',
      ],
      [
        await cluster.authority.issue({ name: 'login', commonName: 'tailcast-gateway' }),
        'does not trust them (201)',
      ],
    ] as const) {
      chmodSync(leaf.keyPath, 0o600);
      const gateway = await start(kubeconfigWith(certificate(leaf)));
      expect((await gateway.get('/clusters/a/api')).status).toBeGreaterThanOrEqual(500);
      expect(gateway.log()).toContain(problem);
    }
    expect(cluster.audit().filter(({ requestURI }) => requestURI === '/api')).toEqual([]);
  });

  it('are refused with unsafe settings', async () => {
    const readable = join(rig.folder, 'readable.key');
    writeFileSync(readable, ours.key, { mode: 0o644 });
    const mine = certificate(ours);
    for (const [text, problem, settings] of [
      [kubeconfigWith({}), 'needs a client certificate'],
      [kubeconfigWith({ ...mine, token: 'x' }), 'excludes tokens'],
      [kubeconfigWith({ ...mine, 'client-key': readable }), 'run chmod o='],
      [
        kubeconfigWith(mine, { 'certificate-authority-data': '', 'insecure-skip-tls-verify': true }),
        'excludes insecure-skip-tls-verify',
      ],
      [kubeconfigWith(mine), 'needs mode=auth', { mode: 'noauth' }],
    ] as const) {
      await expect(start(text, settings)).rejects.toThrow(problem);
    }
  });
});

describe('an API server that accepts the CA of request headers for logins', () => {
  it('is refused', async () => {
    const rig = createRig();
    try {
      const authority = await createAuthority(rig.folder, 'both');
      const leaf = await authority.issue({ name: 'gateway', commonName: 'tailcast-gateway' });
      chmodSync(leaf.keyPath, 0o600);
      const cluster = await startKubernetes(rig, {
        node: false,
        controllers: false,
        // the API server uses the last value of each flag
        apiServerFlags: [
          `--client-ca-file=${authority.certificatePath}`,
          `--requestheader-client-ca-file=${authority.certificatePath}`,
          // an API server with the same CA for logins and request headers starts only with a list of allowed names
          '--requestheader-allowed-names=tailcast-gateway',
          '--requestheader-username-headers=X-Remote-User',
          '--requestheader-group-headers=X-Remote-Group',
          '--requestheader-extra-headers-prefix=X-Remote-Extra-',
        ],
      });
      const text = JSON.stringify({
        'current-context': 'c',
        clusters: [
          {
            name: 'k',
            cluster: {
              server: cluster.url,
              'certificate-authority-data': Buffer.from(cluster.ca).toString('base64'),
            },
          },
        ],
        contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
        users: [
          { name: 'u', user: { 'client-certificate': leaf.certificatePath, 'client-key': leaf.keyPath } },
        ],
      });
      const gateway = await openClusterRig({
        content: { clusters: [{ name: 'a', identity: 'requestHeader', kubeconfig: { file: 'DIR/a.yaml' } }] },
        files: { 'a.yaml': text },
        rules: [RULE],
      });
      expect((await gateway.get('/clusters/a/api')).status).toBeGreaterThanOrEqual(500);
      expect(gateway.log()).toContain('the certificate is also a login');
      await gateway.close();
    } finally {
      await rig.stop();
    }
  });
});
