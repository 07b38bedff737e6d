/**
 * A ProxyGroup whose gateways serve two real API servers: the operator's own, and a second one that a Secret describes.
 * kubectl reaches both through a real tailnet.
 */
import { once } from 'node:events';
import { readdirSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { ANNOTATIONS } from '../../../src/operator/proxy-group/resource.ts';
import { NAMESPACE, type WorkloadSite } from '../operator/workload-site.ts';
import { conditionOf, describeSite } from '../operator/workload-suite.ts';
import { findKubectls, runKubectl, startKubectl, type KubectlResult } from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { NODE_ADDRESS } from '../rig/network.ts';

const GROUP = '/apis/tailscale.com/v1alpha1/proxygroups/prod';
const CORE = `/api/v1/namespaces/${NAMESPACE}`;
const ACCOUNT = `system:serviceaccount:${NAMESPACE}:kube-apiserver-auth-proxy`;
const LABELS = { 'cluster.x-k8s.io/cluster-name': 'older', env: 'prod' };
const CLUSTERS = 'KubeAPIServerProxyClusters';
const SERVED_BOTH = { status: 'True', message: 'serves prod and older' };

const newest = (await findKubectls()).at(-1)!;

describeSite('proxy-group-clusters', 'a ProxyGroup of two clusters', ({ start, api, read, until }) => {
  let site: WorkloadSite;
  let older: Kubernetes;
  let kubeconfig: string;
  const forward = createServer();
  const annotate = (clusters: string | null): Promise<unknown> =>
    api('PATCH', GROUP, { metadata: { annotations: { [ANNOTATIONS.clusters]: clusters } } });
  const condition = async (type: string): Promise<object | undefined> => conditionOf(await read(GROUP), type);
  const reports = (type: string, expected: object | undefined): Promise<true> =>
    until<true>(`the condition ${type}`, async () => {
      const found = await condition(type);
      if (expected === undefined ? found === undefined : matches(found, expected)) return true;
      throw new Error(JSON.stringify(found));
    });
  const secret = (name: string, data: Readonly<Record<string, string>>, labels: object = LABELS): object => ({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, labels },
    stringData: data,
  });
  const olderSecret = (): object => secret('older-kubeconfig', { value: kubeconfigOf(older) });

  /** Runs kubectl through the gateway, as alice. */
  async function run(cluster: string, ...args: readonly string[]): Promise<KubectlResult> {
    return runKubectl(newest, ['--context', cluster, ...args], { kubeconfig, transport: 'websocket' });
  }
  /**
   * Opens a watch in the group's own cluster, and sends requests one after another. Calling `stop` ends both and
   * returns the failures.
   */
  function startLoad() {
    let [finished, isOver] = [0, false];
    const failures: string[] = [];
    const watch = startKubectl(newest, ['--context', 'prod', 'get', 'configmaps', '--watch'], { kubeconfig });
    onTestFinished(() => void watch.kill('SIGKILL'));
    watch.once('exit', (code) => failures.push(`the watch exited with ${code}`));
    const requests = (async () => {
      while (!isOver) {
        const { code, stderr } = await run('prod', 'get', 'namespaces');
        if (code !== 0) failures.push(stderr.toString());
        finished += 1;
      }
    })();
    return {
      finished: () => finished,
      async stop(): Promise<readonly string[]> {
        isOver = true;
        await requests;
        return [...failures];
      },
    };
  }
  /** Returns true if the account of the gateways has this right. */
  async function may(verb: string, name: string, namespace = NAMESPACE): Promise<boolean> {
    const review = (await api('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SubjectAccessReview',
      spec: { user: ACCOUNT, resourceAttributes: { verb, resource: 'secrets', namespace, name } },
    })) as { readonly status: { readonly allowed: boolean } };
    return review.status.allowed;
  }

  beforeAll(async () => {
    site = await start([], {
      grants: [
        {
          src: ['alice@example.com'],
          dst: ['tag:k8s'],
          app: {
            'tailscale.com/cap/kubernetes': [
              { clusters: ['*'], impersonate: { groups: ['system:masters'] } },
            ],
          },
        },
      ],
    });
    older = await startKubernetes(site.rig, { version: '1.34', node: false, address: NODE_ADDRESS });
    await api('POST', `${CORE}/secrets`, olderSecret());
    await api(
      'POST',
      `${CORE}/secrets`,
      secret('unlabelled', { value: kubeconfigOf(older) }, { env: 'prod' }),
    );
    await api(
      'POST',
      '/api/v1/namespaces/default/secrets',
      secret(
        'foreign',
        { value: kubeconfigOf(older) },
        { ...LABELS, 'cluster.x-k8s.io/cluster-name': 'foreign' },
      ),
    );
    await api('POST', GROUP.replace(/\/prod$/, ''), {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'ProxyGroup',
      metadata: {
        name: 'prod',
        annotations: {
          [ANNOTATIONS.clusters]: 'env=prod',
          [ANNOTATIONS.env]: 'TAILCAST_DRAIN_SECONDS=1',
        },
      },
      spec: { type: 'kube-apiserver', replicas: 1, tags: ['tag:k8s'] },
    });
    await reports('ProxyGroupReady', { status: 'True' });
    const { status } = await read(GROUP);
    const address = status?.devices?.[0]?.tailnetIPs?.[0] ?? '';
    forward.on('connection', (client) => {
      client.on('error', () => client.destroy());
      site.tailnet
        .node('db')
        .connect(address, 443)
        .then(
          (socket) => {
            socket.on('error', () => client.destroy());
            client.once('close', () => socket.destroy());
            socket.once('close', () => client.destroy());
            client.pipe(socket).pipe(client);
          },
          () => client.destroy(),
        );
    });
    forward.listen(0, '127.0.0.1');
    await once(forward, 'listening');
    kubeconfig = join(site.rig.folder, 'alice.kubeconfig');
    const { port } = forward.address() as AddressInfo;
    const clusters = ['prod', 'older', 'foreign', 'unlabelled'].map((name) => ({
      name,
      cluster: {
        server: `https://127.0.0.1:${port}/clusters/${name}`,
        'tls-server-name': 'prod-0',
        'certificate-authority': authorityOf(site, 'prod-0'),
      },
    }));
    const contexts = clusters.map(({ name }) => ({ name, context: { cluster: name, user: 'alice' } }));
    const users = [{ name: 'alice', user: { token: 'unused' } }];
    writeFileSync(kubeconfig, JSON.stringify({ clusters, contexts, users }));
  });

  afterAll(() => void forward.close());

  it('reaches each cluster with the identity of the caller, as the audit logs prove', async () => {
    await reports(CLUSTERS, SERVED_BOTH);
    for (const [name, cluster] of [
      ['prod', site.cluster],
      ['older', older],
    ] as const) {
      await until(`${name} to be served`, async () => {
        const { code, stderr } = await run(name, 'create', 'configmap', `only-in-${name}`);
        if (code === 0 || stderr.toString().includes('already exists')) return true;
        throw new Error(stderr.toString());
      });
      const created = cluster
        .audit()
        .filter(({ verb, objectRef }) => verb === 'create' && objectRef?.name === `only-in-${name}`);
      expect(created.at(-1)?.impersonatedUser?.username).toBe('alice@example.com');
      const version = JSON.parse((await run(name, 'version', '-o', 'json')).stdout.toString()) as {
        readonly serverVersion: { readonly gitVersion: string };
      };
      expect(version.serverVersion.gitVersion).toContain(cluster.version);
    }
  });

  it('reads only the selected Secrets of its own namespace', async () => {
    expect(await may('get', 'older-kubeconfig')).toBe(true);
    expect(await may('patch', 'older-kubeconfig')).toBe(false);
    expect(await may('get', 'unlabelled')).toBe(false);
    expect(await may('list', '')).toBe(false);
    expect(await may('get', 'foreign', 'default')).toBe(false);
    for (const name of ['foreign', 'unlabelled'])
      expect((await run(name, 'get', 'namespaces')).code).not.toBe(0);
  });

  it('changes nothing while its selector is invalid', async () => {
    await annotate('env in');
    await reports('KubeAPIServerProxyValid', { status: 'False' });
    expect((await run('older', 'get', 'namespaces')).code).toBe(0);
    expect(await may('get', 'older-kubeconfig')).toBe(true);
    await annotate('env=prod');
    await reports('KubeAPIServerProxyValid', { status: 'True' });
  });

  it('keeps requests and streams of its own cluster while the Secret changes', async () => {
    const load = startLoad();
    await api('PATCH', `${CORE}/secrets/older-kubeconfig`, { stringData: { value: 'no kubeconfig' } });
    await reports(CLUSTERS, { status: 'False' });
    // the gateway reads Secrets every 15 s, so it has read the changed Secret after 20 s
    const changedMs = performance.now();
    await until('the next reading', async () => (performance.now() - changedMs > 20_000 ? true : undefined));
    expect(load.finished()).toBeGreaterThan(20);
    expect((await run('older', 'get', 'namespaces')).code).toBe(0);
    await api('PATCH', `${CORE}/secrets/older-kubeconfig`, { stringData: { value: kubeconfigOf(older) } });
    await reports(CLUSTERS, SERVED_BOTH);
    expect((await run('older', 'get', 'namespaces')).code).toBe(0);
    expect(await load.stop()).toEqual([]);
  });

  it('loses the cluster of a deleted Secret, serves its own cluster, and gets the cluster back', async () => {
    const load = startLoad();
    const { metadata } = (await api('GET', `${CORE}/pods/prod-0`)) as { metadata: { uid: string } };
    await api('DELETE', `${CORE}/secrets/older-kubeconfig`);
    await reports(CLUSTERS, { status: 'False', message: 'serves prod and no cluster of a Secret' });
    expect(await may('get', 'older-kubeconfig')).toBe(false);
    await until('the cluster to be gone', async () =>
      (await run('older', 'get', 'namespaces')).code === 0 ? undefined : true,
    );
    expect((await run('prod', 'get', 'namespaces')).code).toBe(0);
    await api('POST', `${CORE}/secrets`, olderSecret());
    await reports(CLUSTERS, SERVED_BOTH);
    await until('the cluster to be back', async () =>
      (await run('older', 'get', 'namespaces')).code === 0 ? true : undefined,
    );
    const after = (await api('GET', `${CORE}/pods/prod-0`)) as { metadata: { uid: string } };
    expect(after.metadata.uid).toBe(metadata.uid);
    expect(await load.stop()).toEqual([]);
  });

  it('loses the rights with the annotation, and every object when it is deleted', async () => {
    await annotate(null);
    await reports(CLUSTERS, undefined);
    expect(await may('get', 'older-kubeconfig')).toBe(false);
    await expect(api('GET', `${CORE}/configmaps/prod-clusters`)).rejects.toThrow('404');
    await annotate('env=prod');
    await reports(CLUSTERS, SERVED_BOTH);
    expect(await may('get', 'older-kubeconfig')).toBe(true);
    await api('DELETE', GROUP);
    await until('nothing of the group', async () => {
      const left = await Promise.all([
        api('GET', GROUP).catch(() => undefined),
        api('GET', `${CORE}/configmaps/prod-clusters`).catch(() => undefined),
      ]);
      return left.every((one) => one === undefined) && !(await may('get', 'older-kubeconfig'))
        ? true
        : undefined;
    });
    expect(await api('GET', `${CORE}/secrets/older-kubeconfig`)).toBeDefined();
  });
});

function matches(found: object | undefined, expected: object): boolean {
  return Object.entries(expected).every(([key, value]) => Reflect.get(found ?? {}, key) === value);
}

/** Returns a kubeconfig for the account that may impersonate. */
function kubeconfigOf({ url, ca, tokens }: Kubernetes): string {
  return JSON.stringify({
    clusters: [
      {
        name: 'k',
        cluster: { server: url, 'certificate-authority-data': Buffer.from(ca).toString('base64') },
      },
    ],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user: { token: tokens.impersonator } }],
  });
}

/** Returns the path of the CA that a replica created, in the folder that replaces its volume. */
function authorityOf({ rig }: WorkloadSite, pod: string): string {
  const files = readdirSync(rig.folder, { recursive: true, encoding: 'utf8' }) as readonly string[];
  const found = files.find(
    (path) => path.includes(`claims/${NAMESPACE}/state-${pod}/`) && path.endsWith('/ca.crt'),
  );
  if (found === undefined) throw new Error(`${pod} has no CA`);
  return join(rig.folder, found);
}
