import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createDnsReconciler } from '../../../src/operator/dns/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { createServiceReconciler } from '../../../src/operator/service/reconcile.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import type { StoredObject } from '../api-server-double.ts';
import { createBench, OWN, settle, TAILSCALE, untilSurvived, type Bench } from '../bench.ts';

const PATH = `${TAILSCALE}/dnsconfigs/dns`;
const DEPLOYMENT = '/apis/apps/v1/namespaces/tailcast/deployments/nameserver';
const SERVICE = `${OWN}/services/nameserver`;
const RECORDS = `${OWN}/configmaps/dnsrecords`;
const COREDNS = '/api/v1/namespaces/kube-system/configmaps/coredns';
const COREFILE =
  '.:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa {\n        pods insecure\n    }\n}\n';

let bench: Bench;
let dns: Reconciler;
let services: Reconciler;

beforeEach(async () => {
  bench = await createBench();
  dns = createDnsReconciler(bench.deps());
  services = createServiceReconciler(bench.deps());
});
afterEach(() => bench.close());

function put(
  spec: object = { nameserver: {} },
  annotations: object = {},
  name = 'dns',
  creationTimestamp = '2026-01-01T00:00:00Z',
): void {
  const before = bench.object(`${TAILSCALE}/dnsconfigs/${name}`)?.metadata.annotations;
  bench.put(KINDS.dnsConfig, { name, creationTimestamp, annotations: { ...before, ...annotations } }, spec);
}
function putService(name: string, annotations: Record<string, string>, spec: object): void {
  bench.put(KINDS.service, { name, namespace: 'prod', annotations }, spec);
}
/** Creates an egress Service (the front) that leads to `db.lab.ts.net`. */
function putFront(
  name: string,
  namespace: string,
  spec: object,
  creationTimestamp = '2026-02-01T00:00:00Z',
): void {
  bench.put(
    KINDS.service,
    {
      name: `ts-${name}-${namespace}`,
      namespace: 'tailcast',
      creationTimestamp,
      labels: {
        'tailscale.com/managed': 'true',
        'tailscale.com/parent-resource': name,
        'tailscale.com/parent-resource-ns': namespace,
        'tailscale.com/parent-resource-type': 'svc',
        'tailscale.com/svc-type': 'egress',
        'tailscale.com/proxy-group': 'out',
      },
      annotations: { 'tailcast.dev/target-fqdn': 'db.lab.ts.net.' },
    },
    { ports: [], ...spec },
  );
}
/** Simulates the EndpointSlice of a proxy's headless Service. */
function putSlice(service: string, family: 4 | 6, endpoints: readonly [string, boolean][]): void {
  const labels = {
    ...bench.object(`${OWN}/services/${service}`)?.metadata.labels,
    'kubernetes.io/service-name': service,
  };
  bench.api.put(`/apis/discovery.k8s.io/v1/namespaces/tailcast/endpointslices/${service}-${family}`, {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${service}-${family}`, namespace: 'tailcast', labels },
    addressType: `IPv${family}`,
    endpoints: endpoints.map(([address, ready]) => ({ addresses: [address], conditions: { ready } })),
  });
}
const nameOf = (name: string): string => objectNameOf({ type: 'svc', namespace: 'prod', name });
const run = (name = 'dns'): Promise<number | undefined> => dns.reconcile(name);
const records = (): unknown =>
  JSON.parse((bench.object(RECORDS)!['data'] as Record<string, string>)['records.json'] ?? '');
const status = (path = PATH): { conditions: object[]; nameserver?: object } =>
  bench.object(path)?.['status'] as ReturnType<typeof status>;
const corefile = (): string => (bench.object(COREDNS)!['data'] as { Corefile: string }).Corefile;
function putCoreDns(text = COREFILE): void {
  bench.api.put(COREDNS, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: 'coredns', namespace: 'kube-system' },
    data: { Corefile: text },
  });
}

describe('a DNSConfig', () => {
  it('gets a nameserver, and says where it is and whether it answers', async () => {
    put();
    await run();
    expect(bench.left().toSorted()).toEqual(
      [DEPLOYMENT, RECORDS, `${OWN}/serviceaccounts/nameserver`, SERVICE].toSorted(),
    );
    const service = bench.object(SERVICE) as StoredObject & { spec: { clusterIP: string } };
    expect(service.spec).toMatchObject({
      ports: [
        { port: 53, targetPort: 1053, protocol: 'UDP' },
        { port: 53, targetPort: 1053, protocol: 'TCP' },
      ],
    });
    expect(status()).toMatchObject({
      nameserver: { ip: service.spec.clusterIP },
      conditions: [{ type: 'NameserverReady', status: 'False', reason: 'NameserverCreating' }],
    });
    const deployment = bench.object(DEPLOYMENT)!;
    bench.api.put(DEPLOYMENT, { ...deployment, status: { observedGeneration: 1, readyReplicas: 1 } });
    await run();
    expect(status().conditions).toMatchObject([{ status: 'True', reason: 'NameserverCreated' }]);
    for (const path of bench.left()) {
      expect(bench.object(path)?.metadata.ownerReferences).toMatchObject([
        { kind: 'DNSConfig', name: 'dns', controller: true },
      ]);
    }
    expect(deployment).toMatchObject({
      spec: {
        replicas: 1,
        template: {
          spec: {
            automountServiceAccountToken: false,
            containers: [
              { args: ['nameserver'], securityContext: { runAsNonRoot: true, readOnlyRootFilesystem: true } },
            ],
          },
        },
      },
    });
  });

  it('writes nothing when nothing has changed', async () => {
    put();
    await run();
    await run();
    const { writes } = bench;
    await run();
    expect(bench.writes).toBe(writes);
  });

  it('says everything that the resource can, in the pods', async () => {
    const toleration = { key: 'dns', operator: 'Exists' };
    put({
      nameserver: {
        image: { repo: 'registry.example.com/names', tag: 'v2' },
        replicas: 3,
        service: { clusterIP: '10.96.0.53' },
        pod: { tolerations: [toleration], nodeSelector: { dns: 'true' }, affinity: { nodeAffinity: {} } },
      },
    });
    await run();
    expect(bench.object(DEPLOYMENT)).toMatchObject({
      spec: {
        replicas: 3,
        template: {
          spec: {
            tolerations: [toleration],
            nodeSelector: { dns: 'true' },
            affinity: { nodeAffinity: {} },
            containers: [{ image: 'registry.example.com/names:v2' }],
          },
        },
      },
    });
    expect(status().nameserver).toEqual({ ip: '10.96.0.53' });
    put({
      nameserver: {
        service: { clusterIP: '10.96.0.54' },
        image: { repo: 'tailscale/k8s-nameserver', tag: 'unstable' },
      },
    });
    await run();
    expect(status().nameserver).toEqual({ ip: '10.96.0.54' });
    expect(JSON.stringify(bench.object(DEPLOYMENT)?.['spec'])).not.toContain('k8s-nameserver');
    expect(bench.events().join()).toContain('DNSConfigFieldIgnored: spec.nameserver.image');
  });

  it('is one: a second one is refused, and takes over when the first goes', async () => {
    put();
    put({ nameserver: {} }, {}, 'aaa', '2026-02-01T00:00:00Z');
    await run('aaa');
    await run();
    expect(status(`${TAILSCALE}/dnsconfigs/aaa`).conditions).toMatchObject([
      {
        status: 'False',
        reason: 'MultipleDNSConfigsPresent',
        message: expect.stringContaining('"dns"') as string,
      },
    ]);
    expect(status().conditions).toMatchObject([{ reason: 'NameserverCreating' }]);
    bench.api.remove(PATH);
    await run('aaa');
    expect(status(`${TAILSCALE}/dnsconfigs/aaa`).conditions).toMatchObject([
      { reason: 'NameserverCreating' },
    ]);
    expect(bench.object(SERVICE)?.metadata.ownerReferences).toMatchObject([{ name: 'aaa' }]);
  });

  it('never touches what belongs to somebody else, and says so', async () => {
    bench.api.put(SERVICE, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'nameserver', namespace: 'tailcast' },
      spec: { clusterIP: '10.96.9.9' },
    });
    put({ nameserver: { service: { clusterIP: '10.96.0.53' } } });
    await expect(run()).rejects.toThrow('does not belong to DNSConfig "dns"');
    expect(bench.object(SERVICE)?.['spec']).toEqual({ clusterIP: '10.96.9.9', clusterIPs: ['10.96.9.9'] });
    expect(status().conditions).toMatchObject([{ reason: 'NameserverCreationFailed' }]);
  });

  it('comes up whole when it is killed between any two writes', async () => {
    putCoreDns();
    put({ nameserver: {} }, { 'tailcast.dev/coredns': 'kube-system/coredns' });
    await untilSurvived((limit) => createDnsReconciler(bench.deps(limit)).reconcile('dns'));
    expect(bench.left()).toHaveLength(4);
    expect(corefile()).toContain('forward . ');
  });
});

describe('the names', () => {
  const FQDN = { 'tailscale.com/tailnet-fqdn': 'DB.lab.ts.net' };
  const EXTERNAL = { type: 'ExternalName', externalName: 'unused' };
  async function look(name: string): Promise<void> {
    await services.reconcile(`prod/${name}`);
  }

  it('lead to the ready pods behind a Service that leads to a node', async () => {
    put();
    putService('db', FQDN, EXTERNAL);
    await look('db');
    await run();
    expect(records()).toEqual({ version: 'v1alpha1', ip4: {}, ip6: {}, domains: ['example.ts.net'] });
    putSlice(nameOf('db'), 4, [
      ['10.1.0.2', true],
      ['10.1.0.3', false],
    ]);
    putSlice(nameOf('db'), 6, [['fd01::2', true]]);
    await run();
    expect(records()).toMatchObject({
      ip4: { 'db.lab.ts.net': ['10.1.0.2'] },
      ip6: { 'db.lab.ts.net': ['fd01::2'] },
    });
  });

  it('leave nothing behind when they change, when a family goes, and when the Service does', async () => {
    put();
    putService('db', FQDN, EXTERNAL);
    await look('db');
    putSlice(nameOf('db'), 4, [['10.1.0.2', true]]);
    putSlice(nameOf('db'), 6, [['fd01::2', true]]);
    await run();
    putSlice(nameOf('db'), 6, []);
    putService('db', { 'tailscale.com/tailnet-fqdn': 'other.lab.ts.net' }, EXTERNAL);
    await look('db');
    await run();
    expect(records()).toMatchObject({ ip4: { 'other.lab.ts.net': ['10.1.0.2'] }, ip6: {} });
    expect(JSON.stringify(records())).not.toContain('db.lab');
    bench.markDeleted('/api/v1/namespaces/prod/services/db');
    await settle(() => services.reconcile('prod/db'));
    await run();
    expect(records()).toMatchObject({ ip4: {}, ip6: {} });
  });

  it('contain exposed Services, with their own addresses in the cluster', async () => {
    put();
    putService('web', { 'tailscale.com/expose': 'true' }, { type: 'ClusterIP', clusterIP: '10.96.0.10' });
    await look('web');
    bench.startPod(`${nameOf('web')}-0`);
    await run();
    expect(records()).toMatchObject({ ip4: {} });
    bench.join(`${nameOf('web')}-0`, { fqdn: 'prod-web.lab.ts.net' });
    await run();
    expect(records()).toMatchObject({ ip4: { 'prod-web.lab.ts.net': ['10.96.0.10'] } });
  });

  it('do not contain names that a compromised pod takes for its Service', async () => {
    put();
    putService('web', { 'tailscale.com/expose': 'true' }, { type: 'ClusterIP', clusterIP: '10.96.0.10' });
    await look('web');
    for (const fqdn of ['db.lab.ts.net', 'prod.web.lab.ts.net', 'ts.net', 'prod-web-x.lab.ts.net']) {
      bench.join(`${nameOf('web')}-0`, { fqdn });
      await run();
      expect((records() as { ip4: object }).ip4).toEqual({});
    }
    // The control server adds a number to a name that another node already has.
    bench.join(`${nameOf('web')}-0`, { fqdn: 'prod-web-2.lab.ts.net' });
    await run();
    expect(records()).toMatchObject({ ip4: { 'prod-web-2.lab.ts.net': ['10.96.0.10'] } });
  });

  it('of groups have the addresses of what stands for the Service', async () => {
    put();
    putFront('db', 'prod', { clusterIPs: ['10.96.5.5', 'fd96::5'] });
    await run();
    expect(records()).toMatchObject({
      ip4: { 'db.lab.ts.net': ['10.96.5.5'] },
      ip6: { 'db.lab.ts.net': ['fd96::5'] },
    });
  });

  it('belong to the oldest Service, also while its proxy has no addresses', async () => {
    put();
    putFront('db', 'prod', { clusterIPs: ['10.96.5.5'] });
    putFront('x', 'evil', { clusterIPs: ['10.96.66.66'] }, '2026-03-01T00:00:00Z');
    await run();
    expect(records()).toMatchObject({ ip4: { 'db.lab.ts.net': ['10.96.5.5'] } });
    putFront('db', 'prod', { clusterIPs: [] });
    await run();
    expect(records()).toMatchObject({ ip4: {} });
    bench.api.remove(`${OWN}/services/ts-db-prod`);
    await run();
    expect(records()).toMatchObject({ ip4: { 'db.lab.ts.net': ['10.96.66.66'] } });
  });

  it('have all addresses of a Service that has two proxies', async () => {
    put();
    putService('db', FQDN, EXTERNAL);
    await look('db');
    putSlice(nameOf('db'), 4, [['10.1.0.2', true]]);
    putFront('db', 'prod', { clusterIPs: ['10.96.5.5'] });
    await run();
    expect(records()).toMatchObject({ ip4: { 'db.lab.ts.net': ['10.1.0.2', '10.96.5.5'] } });
  });
});

describe('CoreDNS', () => {
  const ASKED = { 'tailcast.dev/coredns': 'kube-system/coredns' };

  it('gets a block for the nameserver on request, follows its address, and loses the block with the request', async () => {
    putCoreDns();
    put();
    await run();
    expect(corefile()).toBe(COREFILE);
    put({ nameserver: { service: { clusterIP: '10.96.0.53' } } }, ASKED);
    await run();
    expect(corefile()).toBe(
      `${COREFILE}# tailcast nameserver: begin. Written by the operator.\nexample.ts.net:53 {\n    errors\n    ` +
        'forward . 10.96.0.53\n}\n# tailcast nameserver: end\n',
    );
    expect(bench.object(PATH)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
    put({ nameserver: { service: { clusterIP: '10.96.0.54' } } }, ASKED);
    await run();
    expect(corefile()).toContain('forward . 10.96.0.54');
    expect(corefile()).not.toContain('10.96.0.53');
    const object = bench.object(PATH)!;
    const { 'tailcast.dev/coredns': _asked, ...annotations } = object.metadata.annotations ?? {};
    bench.api.put(PATH, { ...object, metadata: { ...object.metadata, annotations } });
    await run();
    expect(corefile()).toBe(COREFILE);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
  });

  it('forgets it when the DNSConfig goes', async () => {
    putCoreDns();
    put({ nameserver: {} }, ASKED);
    await run();
    bench.markDeleted(PATH);
    await run();
    expect(corefile()).toBe(COREFILE);
    expect(bench.object(PATH)).toBeUndefined();
  });

  it.each<[string, string | undefined, Record<string, string>, string]>([
    [
      'a block of somebody else',
      `${COREFILE}example.com, example.ts.net:53 {\n  forward . 1.2.3.4\n}\n`,
      ASKED,
      'has a block for example.ts.net already',
    ],
    ['no such ConfigMap', undefined, ASKED, 'does not exist or has no Corefile'],
    ['what is no place', COREFILE, { 'tailcast.dev/coredns': 'coredns' }, 'is not <namespace>/<name>'],
  ])('stays as it is with %s, and the condition says why', async (_what, text, annotations, message) => {
    if (text !== undefined) putCoreDns(text);
    put({ nameserver: {} }, annotations);
    await run();
    expect(status().conditions).toMatchObject([
      { status: 'False', message: expect.stringContaining(message) as string },
    ]);
    if (text !== undefined) expect(corefile()).toBe(text);
  });

  it('keeps what others write around our part', async () => {
    putCoreDns();
    put({ nameserver: {} }, ASKED);
    await run();
    putCoreDns(`${corefile()}corp.example:53 {\n    forward . 10.0.0.1\n}\n`);
    bench.markDeleted(PATH);
    await run();
    expect(corefile()).toBe(`${COREFILE}corp.example:53 {\n    forward . 10.0.0.1\n}\n`);
  });
});

describe('an operator that goes for good', () => {
  it('takes the nameserver along, and what it wrote', async () => {
    putCoreDns();
    put({ nameserver: {} }, { 'tailcast.dev/coredns': 'kube-system/coredns' });
    await run();
    await createDnsReconciler({ ...bench.deps(), leaving: true }).reconcile('dns');
    expect(bench.left()).toEqual([]);
    expect(corefile()).toBe(COREFILE);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
    expect(status()).toEqual({ conditions: [] });
  });
});
