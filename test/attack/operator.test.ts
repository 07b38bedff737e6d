/** Attacks on the operator by authors of resources in one namespace, and by compromised pods of proxies. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { createIngressReconciler } from '../../src/operator/ingress/reconcile.ts';
import { KINDS, pathOf } from '../../src/operator/kube-object.ts';
import { networkOf } from '../../src/operator/networks.ts';
import { createProxyGroupReconciler } from '../../src/operator/proxy-group/reconcile.ts';
import { createServiceReconciler } from '../../src/operator/service/reconcile.ts';
import { objectNameOf } from '../../src/operator/workload/workload.ts';
import { createBench, MACHINE, OWN, settle, type Bench } from '../operator/bench.ts';
import { OPTIONS } from '../operator/recorder/recorders.ts';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

const EXPOSED = { 'tailscale.com/expose': 'true' };
const SERVICE = {
  type: 'ClusterIP',
  clusterIP: '10.96.0.10',
  clusterIPs: ['10.96.0.10'],
  ports: [{ port: 80 }],
};
const putService = (namespace: string, name: string, annotations: object = EXPOSED, spec = {}): string =>
  bench.put(KINDS.service, { name, namespace, annotations }, { ...SERVICE, ...spec });
const putIngress = (spec: object, annotations: object = {}, namespace = 'dev', name = 'a'): string =>
  bench.put(KINDS.ingress, { name, namespace, annotations }, { ingressClassName: 'tailscale', ...spec });
const service = (defaultClass = '') =>
  createServiceReconciler({ ...bench.deps(), options: { ...OPTIONS, defaultClass } });
const requests = (part: string): number =>
  bench.api.requests.filter(({ path }) => path.includes(part)).length;
const manyPaths = (prefix = ''): object => ({
  rules: [
    {
      http: {
        paths: Array.from({ length: 500 }, (_, at) => ({
          path: `/${prefix}${at}`,
          pathType: 'Prefix',
          backend: { service: { name: `s${at}`, port: { number: 80 } } },
        })),
      },
    },
  ],
});

describe('an author of Ingresses', () => {
  it('does not make the operator send a request for each of thousands of Secrets', async () => {
    putService('dev', 'web');
    const tls = Array.from({ length: 500 }, (_, at) => ({
      hosts: [`h${at}.example.org`],
      secretName: `s${at}`,
    }));
    putIngress({ tls, defaultBackend: { service: { name: 'web', port: { number: 80 } } } });
    await createIngressReconciler(bench.deps()).reconcile('dev/a');
    expect(requests('/namespaces/dev/secrets/')).toBe(100);
    expect(requests('/events')).toBeLessThan(30);
    expect(bench.events().join()).toContain('more problems');
  });

  it('does not make the operator send a request for each backend or each problem', async () => {
    putIngress(manyPaths());
    const reconciler = createIngressReconciler(bench.deps());
    for (let pass = 0; pass < 3; pass += 1) await reconciler.reconcile('dev/a');
    expect(requests('/namespaces/dev/services/')).toBe(0);
    expect(requests('/events')).toBeLessThan(30);
  });

  it('does not delay the other members of a group with problems', async () => {
    bench.put(KINDS.proxyGroup, { name: 'in' }, { type: 'ingress' });
    putService('dev', 'web', {});
    const defaultBackend = { service: { name: 'web', port: { number: 80 } } };
    putIngress({ ...manyPaths(), defaultBackend }, { 'tailscale.com/proxy-group': 'in' });
    const reconciler = createIngressGroupReconciler(bench.deps());
    await reconciler.reconcile('in');
    for (const ordinal of [0, 1]) {
      bench.startPod(`in-${ordinal}`);
      bench.join(`in-${ordinal}`);
    }
    for (let pass = 0; pass < 3; pass += 1) await reconciler.reconcile('in');
    expect(bench.events().join()).toContain('more problems');
    expect(requests('/events')).toBeLessThan(30);
  });

  it('does not take the space of a group from other namespaces', async () => {
    bench.put(KINDS.proxyGroup, { name: 'in' }, { type: 'ingress' });
    const group = { 'tailscale.com/proxy-group': 'in' };
    const paths = Array.from({ length: 150 }, (_, at) => ({
      path: `/${'x'.repeat(100)}${at}`,
      pathType: 'Prefix',
      backend: { service: { name: 'web', port: { number: 80 } } },
    }));
    putService('dev', 'web', {});
    putService('prod', 'web', {});
    const reconciler = createIngressGroupReconciler(bench.deps());
    await reconciler.reconcile('in');
    for (const ordinal of [0, 1]) {
      bench.startPod(`in-${ordinal}`);
      bench.join(`in-${ordinal}`);
    }
    for (let at = 0; at < 8; at += 1)
      putIngress({ rules: [{ http: { paths } }] }, group, 'dev', `many-${at}`);
    const last = bench.put(
      KINDS.ingress,
      { name: 'shop', namespace: 'prod', annotations: group, creationTimestamp: '2026-02-01T00:00:00Z' },
      { ingressClassName: 'tailscale', rules: [{ http: { paths } }] },
    );
    await reconciler.reconcile('in');
    expect(bench.names()).toContain('prod-shop-ingress: Ingress prod/shop');
    expect(bench.events().join()).toContain('has no space left for namespace dev');
    expect(bench.events().join()).not.toContain('namespace prod');
    expect(bench.object(last)?.metadata.finalizers).toHaveLength(1);
  });
});

describe('an author of an old Ingress in a group without Tailscale Services', () => {
  it('does not take over a host that a newer Ingress of another namespace has', async () => {
    delete bench.control.services;
    Object.assign(bench.control, { issuesCertificates: false });
    bench.put(KINDS.proxyGroup, { name: 'in' }, { type: 'ingress' });
    putService('dev', 'web', {}, { clusterIP: '10.96.0.66', clusterIPs: ['10.96.0.66'] });
    putService('prod', 'web', {});
    const networks = ['10.99.0.0/24'].flatMap((text) => networkOf(text) ?? []);
    const reconciler = createIngressGroupReconciler({ ...bench.deps(), options: { ...OPTIONS, networks } });
    const run = (): Promise<number | undefined> => reconciler.reconcile('in');
    const put = (namespace: string, creationTimestamp: string, host: string): void => {
      const annotations = { 'tailscale.com/proxy-group': 'in' };
      const paths = [
        { path: '/', pathType: 'Prefix', backend: { service: { name: 'web', port: { number: 80 } } } },
      ];
      bench.put(
        KINDS.ingress,
        { name: 'a', namespace, annotations, creationTimestamp },
        { ingressClassName: 'tailscale', rules: [{ host, http: { paths } }] },
      );
    };
    await run();
    for (const ordinal of [0, 1]) {
      bench.startPod(`in-${ordinal}`);
      bench.join(`in-${ordinal}`);
    }
    put('dev', '2020-01-01T00:00:00Z', 'dev.example.org');
    put('prod', '2026-01-01T00:00:00Z', 'shop.example.org');
    await run();
    const target = (): string =>
      JSON.stringify(
        (bench.file('in-0', 'serve-config') as { Web: Record<string, object> }).Web[
          'shop.example.org.lab.ts.net:80'
        ],
      );
    expect(target()).toContain('http://10.96.0.10:80');
    put('dev', '2020-01-01T00:00:00Z', 'shop.example.org');
    for (let pass = 0; pass < 3; pass += 1) await run();
    expect(target()).toContain('http://10.96.0.10:80');
    expect(bench.events().join()).toContain('another Ingress of the group has shop.example.org');
    bench.api.remove('/apis/networking.k8s.io/v1/namespaces/prod/ingresses/a');
    for (let pass = 0; pass < 3; pass += 1) await run();
    expect(target()).toContain('http://10.96.0.66:80');
  });
});

describe('an author of Services', () => {
  it.each(['169.254.169.254', '127.0.0.1', '127.0.0.1.', 'localhost', '0.0.0.0'])(
    'does not expose %s of the proxy',
    async (externalName) => {
      putService('dev', 'meta', EXPOSED, { type: 'ExternalName', externalName, clusterIP: '' });
      await service().reconcile('dev/meta');
      expect(bench.left()).toEqual([]);
      expect(bench.events().join()).toContain("of the proxy's own machine or link");
    },
  );

  it.each(['annotations', 'labels'])(
    'does not avoid the default class with an empty name in %s',
    async (field) => {
      bench.putClass('safe', {}, { 'tailcast.dev/unprivileged': 'true' });
      const metadata = {
        [field]: { ...(field === 'annotations' ? EXPOSED : {}), 'tailscale.com/proxy-class': '' },
      };
      bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations: EXPOSED, ...metadata }, SERVICE);
      await service('safe').reconcile('dev/a');
      const sets = [...bench.api.objects.values()].filter(({ kind }) => kind === 'StatefulSet');
      expect(sets).toHaveLength(1);
      expect(JSON.stringify(sets)).not.toContain('"privileged":true');
    },
  );

  it('does not remove the node of a Service whose objects have the same name', async () => {
    // The names of objects contain 32 bits of a hash, so an author can search for a name with the same hash.
    const own = objectNameOf({ type: 'svc', namespace: 'prod', name: 'web' });
    const foreign = objectNameOf({ type: 'svc', namespace: 'dev', name: 'evil' });
    putService('prod', 'web');
    await service().reconcile('prod/web');
    bench.startPod(`${own}-0`);
    bench.join(`${own}-0`);
    for (const [path, object] of bench.api.objects) {
      if (!path.includes(own)) continue;
      const metadata = { ...object.metadata, name: object.metadata.name.replace(own, foreign) };
      bench.api.put(path.replace(own, foreign), { ...object, metadata });
    }
    const evil = putService('dev', 'evil');
    const reconciler = service();
    await expect(reconciler.reconcile('dev/evil')).rejects.toThrow('does not belong to Service');
    bench.markDeleted(evil);
    await bench.clock.advance(10 * 60_000);
    await settle(() => reconciler.reconcile('dev/evil'));
    expect(bench.object(evil)).toBeUndefined();
    expect(bench.control.deleted).toEqual([]);
    expect(bench.control.keys.get('key-1')?.usable).toBe(true);
    expect(bench.object(`${OWN}/secrets/${foreign}-0`)).toBeDefined();
  });
});

describe('a compromised pod of a proxy', () => {
  it('does not make the operator change or remove a node of another machine', async () => {
    const path = bench.put(
      KINDS.connector,
      { name: 'lab' },
      { tags: ['tag:a'], subnetRouter: { advertiseRoutes: ['10.0.0.0/8'] } },
    );
    const pod = `${objectNameOf({ type: 'connector', namespace: 'tailcast', name: 'lab' })}-0`;
    const reconciler = createConnectorReconciler(bench.deps());
    const run = (): Promise<number | undefined> => reconciler.reconcile('lab');
    await run();
    bench.startPod(pod);
    bench.join(pod, { id: 'gateway' });
    bench.control.machineKeys.set('gateway', `mkey:${'1'.repeat(64)}`);
    for (const key of ['', MACHINE.privateKey]) {
      bench.say(pod, { _machinekey: key });
      await run();
      expect(bench.control.routes.get('gateway')).toBeUndefined();
      bench.say(pod, { reissue_authkey: bench.data(`${OWN}/secrets/${pod}`, 'authkey') ?? 'no-authkey' });
      await run().catch(() => undefined);
    }
    bench.put(
      KINDS.connector,
      { ...bench.object(path)!.metadata, name: 'lab' },
      { tags: ['tag:b'], subnetRouter: { advertiseRoutes: ['10.0.0.0/8'] } },
    );
    await run().catch(() => undefined);
    expect(bench.control.tags.get('gateway')).toBeUndefined();
    bench.markDeleted(pathOf(KINDS.connector, { name: 'lab' }));
    bench.api.remove(`${OWN}/pods/${pod}`);
    await settle(run);
    expect(bench.object(path)).toBeUndefined();
    expect(bench.control.deleted).toEqual([]);
  });

  it('does not become a cluster of a gateway', async () => {
    bench.api.put(`${OWN}/serviceaccounts/kube-apiserver-auth-proxy`, {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: 'kube-apiserver-auth-proxy', namespace: 'tailcast' },
    });
    putService('dev', 'web');
    await service().reconcile('dev/web');
    const path = `${OWN}/secrets/${objectNameOf({ type: 'svc', namespace: 'dev', name: 'web' })}-0`;
    const kubeconfig = JSON.stringify({
      clusters: [{ name: 'k', cluster: { server: 'https://evil.example.org' } }],
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      users: [{ name: 'u', user: { token: 't' } }],
    });
    const state = bench.object(path)!;
    const labels = { ...state.metadata.labels, 'cluster.x-k8s.io/cluster-name': 'prod', env: 'prod' };
    const data = { value: Buffer.from(kubeconfig).toString('base64') };
    bench.api.put(path, { ...state, metadata: { ...state.metadata, labels }, data });
    const annotations = { 'tailcast.dev/clusters': 'env=prod' };
    const group = bench.put(KINDS.proxyGroup, { name: 'gw', annotations }, { type: 'kube-apiserver' });
    await createProxyGroupReconciler(bench.deps()).reconcile('gw');
    const message = bench.condition(group, 'KubeAPIServerProxyClusters')?.message ?? '';
    expect(message).toContain('serves gw and no cluster of a Secret');
    expect(message).toContain('a pod of the operator can change it');
    expect(JSON.stringify(bench.object(`${OWN}/configmaps/gw-clusters`))).not.toContain('ts-web');
  });
});
