import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createIngressGroupReconciler } from '../../../src/operator/ingress-group/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import { networkOf } from '../../../src/operator/networks.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { createBench, Killed, OWN, SETS, TAILSCALE, type Bench } from '../bench.ts';

const NETWORKS = ['10.99.0.0/29', 'fd99::/64'].flatMap((text) => networkOf(text) ?? []);
const SVC = 'tailscale.com/service-pg-finalizer';
const ING = 'tailscale.com/ingress-pg-finalizer';
const OF_IN = { 'tailscale.com/proxy-group': 'in' };
const LOAD_BALANCER = { type: 'LoadBalancer', loadBalancerClass: 'tailscale' };

let bench: Bench;
let reconciler: Reconciler;

beforeEach(async () => {
  bench = await createBench({ networks: NETWORKS });
  restart();
});
afterEach(() => bench.close());

function restart(networks = NETWORKS, leaving = false): void {
  const deps = bench.deps();
  reconciler = createIngressGroupReconciler({ ...deps, options: { ...deps.options, networks }, leaving });
}
const run = (name = 'in'): Promise<number | undefined> => reconciler.reconcile(name);
const servicePath = (name: string): string => `/api/v1/namespaces/prod/services/${name}`;
const ingressPath = (name: string): string => `/apis/networking.k8s.io/v1/namespaces/prod/ingresses/${name}`;
const groupPath = (name: string): string => `${TAILSCALE}/proxygroups/${name}`;

function putService(
  name: string,
  annotations: object = OF_IN,
  spec: object = {},
  metadata: object = {},
): void {
  putEndpoints(name, [true]);
  bench.put(
    KINDS.service,
    { name, namespace: 'prod', annotations, ...metadata },
    {
      clusterIP: '10.96.0.10',
      clusterIPs: ['10.96.0.10', 'fd96::10'],
      ports: [{ port: 80 }],
      ...LOAD_BALANCER,
      ...spec,
    },
  );
}
/** Stores the endpoints of a Service. `ready` contains the readiness of each endpoint; undefined: unknown. */
function putEndpoints(service: string, ready: readonly (boolean | undefined)[]): void {
  bench.api.put(`/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices/${service}-x`, {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: `${service}-x`, namespace: 'prod', labels: { 'kubernetes.io/service-name': service } },
    addressType: 'IPv4',
    endpoints: ready.map((one) => ({ addresses: ['10.0.0.1'], conditions: { ready: one } })),
  });
}
function putIngress(name: string, annotations: object = OF_IN, spec: object = {}): void {
  const defaultBackend = { service: { name: 'web', port: { number: 80 } } };
  bench.put(
    KINDS.ingress,
    { name, namespace: 'prod', creationTimestamp: '2026-01-02T00:00:00Z', annotations },
    { ingressClassName: 'tailscale', defaultBackend, tls: [{ hosts: [name] }], ...spec },
  );
}
const putGroup = (spec: object = {}, name = 'in'): string =>
  bench.put(KINDS.proxyGroup, { name, uid: `uid-${name}` }, { type: 'ingress', ...spec });

const file = <T>(ordinal: number, key: string): T => bench.file(`in-${ordinal}`, key) as T;
const rules = (ordinal = 0): Record<string, object> => file(ordinal, 'ingress-rules');
const serveConfig = (ordinal = 0): Record<string, Record<string, object>> => file(ordinal, 'serve-config');
const offer = (ordinal = 0): { AdvertiseRoutes: string[]; AdvertiseServices: string[] } =>
  file(ordinal, 'cap-107.hujson');
const grantedBy = (group: string): Record<string, { addresses: string[] }> => {
  const { data = {} } = (bench.object(`${OWN}/configmaps/${group}-ingress-config`) ?? {}) as {
    data?: Record<string, string>;
  };
  return JSON.parse(data['members.json'] ?? '{}') as ReturnType<typeof grantedBy>;
};
const granted = () => grantedBy('in');
const loadBalancer = (path: string): { ingress?: object[] } | undefined =>
  (bench.object(path)?.['status'] as { loadBalancer?: object } | undefined)?.loadBalancer;
const shown = (path: string): object[] | undefined => loadBalancer(path)?.ingress;
const condition = (path: string, type: string) => bench.condition(path, type);
const gate = (ordinal: number): string | undefined =>
  bench.condition(`${OWN}/pods/in-${ordinal}`, 'tailscale.com/ingress-services')?.status;

/** Simulates a pod that has started and joined. */
function pod(ordinal: number, more: { going?: boolean; uid?: string } = {}): void {
  const name = `in-${ordinal}`;
  bench.startPod(name, more.uid);
  bench.join(name, { addresses: [`100.64.0.${ordinal + 1}`] });
  const object = bench.object(`${OWN}/pods/${name}`)!;
  const going =
    more.going === true ? { deletionTimestamp: new Date().toISOString(), finalizers: ['test/stay'] } : {};
  bench.api.put(`${OWN}/pods/${name}`, {
    ...object,
    metadata: { ...object.metadata, ...going },
    status: {
      podIPs: [{ ip: `10.0.0.${ordinal + 1}` }],
      conditions: [{ type: 'ContainersReady', status: 'True' }],
    },
  });
}
/** Simulates the container of a pod, which applies its configuration. */
function obey(ordinal: number, ip = `10.0.0.${ordinal + 1}`): void {
  const { AdvertiseRoutes, AdvertiseServices } = offer(ordinal);
  bench.say(`in-${ordinal}`, {
    'ingress-config.json': JSON.stringify({ configs: rules(ordinal), podIPv4: ip }),
    '_current-profile': 'profile-1',
    'profile-1': JSON.stringify({ AdvertiseRoutes, AdvertiseServices }),
  });
}
/** Runs passes of the operator until nothing changes. */
async function up(rounds = 4): Promise<void> {
  await run();
  for (const ordinal of [0, 1]) if (bench.object(`${OWN}/pods/in-${ordinal}`) === undefined) pod(ordinal);
  for (let round = 0; round < rounds; round += 1) {
    await run();
    for (const ordinal of [0, 1]) obey(ordinal);
  }
  await run();
}
function withoutServices(): void {
  delete bench.control.services;
  Object.assign(bench.control, { issuesCertificates: false });
}

describe('a group where the control server has no Tailscale Services', () => {
  beforeEach(() => {
    withoutServices();
    putGroup();
    putService('web');
  });

  it('gives a Service addresses of its own, and each node the way to it', async () => {
    await up();
    const [four = '', six = ''] = granted()['svc/prod/web']?.addresses ?? [];
    expect([four, six]).toEqual(['10.99.0.1', 'fd99::']);
    expect(rules()).toEqual({
      'svc:prod-web': {
        IPv4Mapping: { TailscaleServiceIP: four, ClusterIP: '10.96.0.10' },
        IPv6Mapping: { TailscaleServiceIP: six, ClusterIP: 'fd96::10' },
      },
    });
    expect(rules(1)).toEqual(rules(0));
    expect(offer().AdvertiseRoutes).toEqual([`${four}/32`, `${six}/128`]);
    expect([...bench.control.routes.values()]).toEqual([offer().AdvertiseRoutes, offer().AdvertiseRoutes]);
    expect(loadBalancer(servicePath('web'))).toEqual({ ingress: [{ ip: four }, { ip: six }] });
    expect(condition(servicePath('web'), 'TailscaleIngressSvcValid')).toMatchObject({ status: 'True' });
    expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')).toMatchObject({
      status: 'True',
      reason: 'IngressSvcConfigured',
      message: '2/2 proxy backends ready and advertising',
    });
    expect(condition(groupPath('in'), 'ProxyGroupReady')).toMatchObject({ status: 'True' });
    expect(bench.object(servicePath('web'))?.metadata.finalizers).toEqual([SVC]);
  });

  it('offers an address when the pod that runs now forwards it, and not before', async () => {
    await run();
    pod(0);
    await run();
    expect(offer().AdvertiseRoutes).toEqual([]);
    obey(0, '10.0.0.77');
    await run();
    expect(offer().AdvertiseRoutes).toEqual([]);
    obey(0);
    await run();
    expect(offer().AdvertiseRoutes).not.toEqual([]);
    expect(offer(1).AdvertiseRoutes).toEqual([]);
    expect(shown(servicePath('web')) ?? []).toEqual([]);
    expect(condition(groupPath('in'), 'ProxyGroupReady')?.status).toBe('False');
  });

  it('goes on offering it while a pod takes the place of another, whose turn ends with its work', async () => {
    await up();
    expect([gate(0), gate(1)]).toEqual(['True', 'True']);
    const before = offer(1).AdvertiseRoutes;
    // After a restart, the container removes its earlier report before it is ready.
    const path = `${OWN}/secrets/in-1`;
    const secret = structuredClone(bench.object(path))!;
    delete (secret['data'] as Record<string, string>)['ingress-config.json'];
    bench.api.put(path, secret);
    pod(1, { uid: 'pod-new' });
    await run();
    expect(offer(1).AdvertiseRoutes).toEqual(before);
    expect(gate(1)).toBeUndefined();
    expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')?.message).toContain('1/2');
    obey(1);
    await run();
    expect(gate(1)).toBe('True');
  });

  it('tells an Ingress that names a Secret what a group does with it, and asks for no right', async () => {
    putIngress('shop', OF_IN, { tls: [{ hosts: ['shop'], secretName: 'own' }] });
    await up();
    const said = bench.events().filter((event) => event.includes('TLSSecretIgnored'));
    expect(said).not.toEqual([]);
    expect(said.join()).toContain('spec.tls[0].secretName: a ProxyGroup serves no certificates of Secrets');
    expect(said.join()).toContain('remove tailscale.com/proxy-group');
    expect(said.join()).not.toMatch(/grant|rbac/);
  });

  it('leads an Ingress to the node itself, which serves it under the address', async () => {
    putIngress('shop');
    await up();
    const [four = ''] = granted()['ingress/prod/shop']?.addresses ?? [];
    expect(rules()['svc:shop']).toEqual({
      IPv4Mapping: { TailscaleServiceIP: four, ClusterIP: '100.64.0.1' },
    });
    expect(rules(1)['svc:shop']).toEqual({
      IPv4Mapping: { TailscaleServiceIP: four, ClusterIP: '100.64.0.2' },
    });
    expect(serveConfig()).toMatchObject({
      TCP: { '80': { HTTP: true } },
      Web: {
        'shop.lab.ts.net:80': { Handlers: { '/': { Proxy: 'http://10.96.0.10:80/' } } },
        [`${four}.lab.ts.net:80`]: {},
      },
    });
    expect(shown(ingressPath('shop'))).toEqual([{ ip: four, ports: [{ port: 80, protocol: 'TCP' }] }]);
    expect(bench.object(ingressPath('shop'))?.metadata.finalizers).toEqual([ING]);
    expect(bench.events().join('\n')).toContain(
      `HTTPSNotEnabled: spec.tls: the control server issues no certificates, so http://${four} is served`,
    );
  });

  it('is not made without networks to take addresses from, and says so to all', async () => {
    restart([]);
    putIngress('shop');
    await run();
    expect(condition(groupPath('in'), 'ProxyGroupReady')).toMatchObject({
      status: 'False',
      reason: 'ProxyGroupNotServed',
      message: expect.stringContaining('name networks in ingressAddresses'),
    });
    expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')?.message).toContain(
      'ingressAddresses',
    );
    expect(bench.events().join('\n')).toContain(
      'IngressNotServed: the control server has no Tailscale Services',
    );
    expect(bench.object(`${SETS}/in`)).toBeUndefined();
    expect(bench.object(servicePath('web'))?.metadata.finalizers).toBeUndefined();
  });

  it('says when there is no address left, and has one again when a member goes', async () => {
    for (const name of ['a', 'b', 'c', 'd', 'e', 'f'])
      putService(name, OF_IN, {}, { creationTimestamp: '2026-03-01T00:00:00Z' });
    await run();
    expect(condition(servicePath('f'), 'TailscaleIngressSvcValid')).toMatchObject({
      status: 'False',
      message: expect.stringContaining('have no address left'),
    });
    putService('a', {});
    await run();
    await run();
    expect(granted()['svc/prod/f']?.addresses[0]).toMatch(/^10\.99\.0\./);
    expect(bench.object(servicePath('a'))?.metadata.finalizers).toEqual([]);
  });

  it('shares no address with another group', async () => {
    putGroup({}, 'other');
    putService('two', { 'tailscale.com/proxy-group': 'other' });
    await Promise.all([run('in'), run('other')]);
    const all = ['in', 'other'].flatMap((group) =>
      Object.values(grantedBy(group)).flatMap((one) => one.addresses),
    );
    expect(new Set(all).size).toBe(4);
  });

  it.each<[string, () => void, string]>([
    [
      'headless',
      () => putService('web', OF_IN, { type: 'ClusterIP', clusterIP: 'None', clusterIPs: ['None'] }),
      'headless',
    ],
    [
      'ExternalName',
      () => putService('web', OF_IN, { type: 'ExternalName', clusterIP: '', clusterIPs: [] }),
      'ExternalName',
    ],
    [
      'a bad name',
      () => putService('web', { ...OF_IN, 'tailscale.com/hostname': 'a_b' }),
      'tailscale.com/hostname',
    ],
    [
      'a name that is taken',
      () => {
        putService(
          'web',
          { ...OF_IN, 'tailscale.com/hostname': 'shop' },
          {},
          { creationTimestamp: '2026-04-01T00:00:00Z' },
        );
        putIngress('shop');
      },
      'the tailnet name shop belongs to Ingress prod/shop',
    ],
  ])('refuses a Service that is %s, and takes it when that is put right', async (_what, given, message) => {
    given();
    const object = bench.object(servicePath('web'))!;
    if (!JSON.stringify(object['spec']).includes('LoadBalancer')) {
      const annotations = { ...object.metadata.annotations, 'tailscale.com/expose': 'true' };
      bench.api.put(servicePath('web'), { ...object, metadata: { ...object.metadata, annotations } });
    }
    await run();
    expect(condition(servicePath('web'), 'TailscaleIngressSvcValid')).toMatchObject({
      status: 'False',
      reason: 'IngressSvcInvalid',
      message: expect.stringContaining(message),
    });
    expect(bench.events().join('\n')).toContain('IngressSvcInvalid: ');
    putService('web');
    await run();
    expect(condition(servicePath('web'), 'TailscaleIngressSvcValid')).toMatchObject({ status: 'True' });
  });

  it('lets go of a member that leaves it, when its nodes have been told', async () => {
    await up();
    const before = granted()['svc/prod/web'];
    bench.api.interfere = ({ method, path }) =>
      method === 'PATCH' && path.endsWith('/secrets/in-0') ? { status: 500, body: {} } : undefined;
    putService('web', {});
    await run().catch(() => undefined);
    expect(granted()['svc/prod/web']).toEqual(before);
    expect(bench.object(servicePath('web'))?.metadata.finalizers).toEqual([SVC]);
    bench.api.interfere = undefined;
    await run();
    expect(rules()).toEqual({});
    expect(offer().AdvertiseRoutes).toEqual([]);
    expect(granted()).toEqual({});
    expect(bench.object(servicePath('web'))?.metadata.finalizers).toEqual([]);
    expect(bench.object(servicePath('web'))?.['status']).toMatchObject({
      conditions: [],
      loadBalancer: { ingress: [] },
    });
  });

  it('goes with its nodes and everything that it gave', async () => {
    putIngress('shop');
    await up();
    bench.markDeleted(groupPath('in'));
    for (const ordinal of [0, 1]) bench.api.remove(`${OWN}/pods/in-${ordinal}`);
    await run();
    await run();
    expect(bench.object(groupPath('in'))).toBeUndefined();
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    expect(bench.control.deleted.toSorted()).toEqual(['node-in-0', 'node-in-1']);
    for (const path of [servicePath('web'), ingressPath('shop')]) {
      expect(bench.object(path)?.metadata.finalizers, path).toEqual([]);
      expect(shown(path) ?? [], path).toEqual([]);
    }
  });

  it('is left without a word by an operator that goes for good', async () => {
    putIngress('shop');
    await up();
    restart(NETWORKS, true);
    await run();
    for (const ordinal of [0, 1]) bench.api.remove(`${OWN}/pods/in-${ordinal}`);
    for (let pass = 0; pass < 3; pass += 1) await run();
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    for (const path of [groupPath('in'), servicePath('web'), ingressPath('shop')]) {
      expect(bench.object(path)?.metadata.finalizers ?? [], path).toEqual([]);
      expect(bench.conditions(path), path).toEqual([]);
    }
    expect(bench.object(groupPath('in'))?.['status']).toMatchObject({ devices: [] });
  });
});

describe('a group where the control server has Tailscale Services', () => {
  beforeEach(() => {
    putGroup();
    putService('web', { ...OF_IN, 'tailscale.com/tags': 'tag:web' });
  });

  it('has one for each Service, and offers it when the rules are in', async () => {
    await run();
    expect(bench.control.known.get('svc:prod-web')).toMatchObject({
      tags: ['tag:web'],
      ports: ['do-not-validate'],
      annotations: { 'tailscale.com/owner-references': expect.stringContaining('"name":"prod/web"') },
    });
    expect(offer().AdvertiseServices).toEqual([]);
    await up();
    const [ip = ''] = bench.control.known.get('svc:prod-web')?.addrs ?? [];
    expect(rules()).toEqual({
      'svc:prod-web': { IPv4Mapping: { TailscaleServiceIP: ip, ClusterIP: '10.96.0.10' } },
    });
    expect(offer()).toMatchObject({ AdvertiseServices: ['svc:prod-web'], AdvertiseRoutes: [] });
    expect(serveConfig()).toEqual({ Services: { 'svc:prod-web': { Tun: true } } });
    expect(loadBalancer(servicePath('web'))).toEqual({
      ingress: [{ hostname: 'prod-web.lab.ts.net' }, { ip }],
    });
    expect(bench.control.routes.size).toBe(0);
  });

  it('leaves a Service to others while none of its endpoints is ready', async () => {
    await up();
    const [ip = ''] = bench.control.known.get('svc:prod-web')?.addrs ?? [];
    const entries = { ingress: [{ hostname: 'prod-web.lab.ts.net' }, { ip }] };
    for (const nobody of [[false], []]) {
      putEndpoints('web', nobody);
      await up();
      expect(offer().AdvertiseServices).toEqual([]);
      expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')).toMatchObject({
        status: 'False',
        reason: 'IngressSvcNoBackendsConfigured',
        message: '0/2 proxy backends ready and advertising; no endpoint of the Service is ready',
      });
      // The operator keeps the route, because other nodes may serve it. The group is ready.
      expect([rules(), loadBalancer(servicePath('web'))]).toEqual([
        { 'svc:prod-web': { IPv4Mapping: { TailscaleServiceIP: ip, ClusterIP: '10.96.0.10' } } },
        entries,
      ]);
      expect(condition(groupPath('in'), 'ProxyGroupReady')).toMatchObject({ status: 'True' });
      // Endpoints without a reported state count as ready.
      putEndpoints('web', [false, undefined]);
      await up();
      expect(offer().AdvertiseServices).toEqual(['svc:prod-web']);
      expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')?.status).toBe('True');
    }
  });

  it('serves an Ingress under its name when there is a certificate', async () => {
    putIngress('shop', { ...OF_IN });
    await up();
    expect(bench.control.known.get('svc:shop')).toMatchObject({ ports: ['tcp:443'] });
    expect(serveConfig()['Services']?.['svc:shop']).toEqual({
      TCP: { '443': { HTTPS: true } },
      Web: { 'shop.lab.ts.net:443': { Handlers: { '/': { Proxy: 'http://10.96.0.10:80/' } } } },
    });
    const secret = `${OWN}/secrets/shop.lab.ts.net`;
    expect(bench.object(secret)).toMatchObject({
      type: 'kubernetes.io/tls',
      metadata: { labels: { 'tailscale.com/secret-type': 'certs' } },
    });
    const role = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles/shop.lab.ts.net';
    expect(bench.object(role)).toMatchObject({ rules: [{ resourceNames: ['shop.lab.ts.net'] }] });
    expect(offer().AdvertiseServices).toEqual(['svc:prod-web']);
    expect(shown(ingressPath('shop')) ?? []).toEqual([]);
    const data = { 'tls.crt': btoa('certificate'), 'tls.key': btoa('key') };
    bench.api.put(secret, { ...bench.object(secret)!, data });
    await up();
    expect(bench.object(secret)?.['data']).toEqual(data);
    expect(offer().AdvertiseServices).toEqual(['svc:prod-web', 'svc:shop']);
    expect(shown(ingressPath('shop'))).toEqual([
      { hostname: 'shop.lab.ts.net', ports: [{ port: 443, protocol: 'TCP' }] },
    ]);
    expect(JSON.stringify(bench.object(`${SETS}/in`))).toContain('TS_EXPERIMENTAL_CERT_SHARE');
    putIngress('shop', {});
    await run();
    expect([bench.object(secret), bench.object(role), bench.control.known.get('svc:shop')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });

  it('serves HTTP beside it, or leads from there', async () => {
    putIngress('both', { ...OF_IN, 'tailscale.com/http-endpoint': 'enabled' });
    putIngress('moved', { ...OF_IN, 'tailscale.com/http-redirect': 'true' });
    await up();
    expect(bench.control.known.get('svc:both')?.ports).toEqual(['tcp:443', 'tcp:80']);
    const { 'svc:both': both, 'svc:moved': moved } = serveConfig()['Services'] as Record<
      string,
      { Web: object }
    >;
    expect(both?.Web).toMatchObject({
      'both.lab.ts.net:80': { Handlers: { '/': { Proxy: 'http://10.96.0.10:80/' } } },
    });
    expect(moved?.Web).toMatchObject({
      'moved.lab.ts.net:80': { Handlers: { '/': { Redirect: '301:https://${HOST}${REQUEST_URI}' } } },
    });
    // Port 80 is listed before a certificate exists, because HTTP needs none.
    expect(shown(ingressPath('both'))).toEqual([
      { hostname: 'both.lab.ts.net', ports: [{ port: 80, protocol: 'TCP' }] },
    ]);
  });

  it('removes it when its Service leaves', async () => {
    await up();
    putService('web', {});
    await run();
    expect(bench.control.known.size).toBe(0);
  });

  it('keeps what it serves while the control server does not answer', async () => {
    await up();
    const before = [rules(), offer(), granted()];
    const { services } = bench.control;
    bench.control.services = { ...services!, get: () => Promise.reject(new Error('down')) };
    putService('late');
    await expect(run()).rejects.toThrow('down');
    expect([rules(), offer(), granted()]).toEqual(before);
    bench.control.services = services!;
    await run();
    expect(Object.keys(granted())).toEqual(['svc/prod/late', 'svc/prod/web']);
  });
});

describe('members whose group is not there', () => {
  it.each<[string, () => void, string]>([
    ['does not exist', () => undefined, 'ProxyGroup "in" does not exist: create it with spec.type: ingress'],
    [
      'is for something else',
      () => putGroup({ type: 'egress' }),
      'ProxyGroup "in" is of type egress: name one of type ingress',
    ],
  ])('are told when it %s', async (_what, given, message) => {
    given();
    putService('web');
    putIngress('shop');
    await run();
    expect(condition(servicePath('web'), 'TailscaleIngressSvcValid')).toMatchObject({
      status: 'Unknown',
      reason: 'ProxyGroupNotReady',
      message: expect.stringContaining(message),
    });
    expect(bench.events()).toEqual([
      expect.stringContaining(`IngressNotServed: tailscale.com/proxy-group: ${message}`),
    ]);
    expect(bench.object(servicePath('web'))?.metadata.finalizers).toBeUndefined();
  });

  it('are let go when somebody else has marked them, also where they name none', async () => {
    putService('web', {}, {}, { finalizers: [SVC], deletionTimestamp: new Date().toISOString() });
    await run('');
    expect(bench.object(servicePath('web'))).toBeUndefined();
  });

  it('are left alone when they are not to be exposed', async () => {
    putService('web', OF_IN, { type: 'ClusterIP', loadBalancerClass: undefined });
    putIngress('shop', OF_IN, { ingressClassName: 'nginx' });
    await run();
    expect(bench.writes).toBe(0);
  });
});

describe('an operator that is killed between any two writes', () => {
  it.each(['route', 'service'])(
    'comes up whole, and leaves nothing, by %s',
    { timeout: 120_000 },
    async (mode) => {
      let limit = 0;
      for (let survived = false; !survived; limit += 1) {
        await bench.close();
        bench = await createBench({ networks: NETWORKS });
        if (mode === 'route') withoutServices();
        let dead = false;
        const passes = async (): Promise<void> => {
          const mortal = createIngressGroupReconciler(bench.deps(limit));
          try {
            for (let pass = 0; !dead && pass < 2; pass += 1) {
              await mortal.reconcile('in');
              for (const ordinal of [0, 1])
                if (bench.object(`${OWN}/pods/in-${ordinal}`) !== undefined) obey(ordinal);
            }
          } catch (error) {
            if (!(error instanceof Killed)) throw error;
            dead = true;
          }
        };
        putGroup();
        putService('web');
        putIngress('shop');
        await passes();
        restart();
        await up(2);
        await passes();
        await up(2);
        expect(Object.keys(granted())).toEqual(['ingress/prod/shop', 'svc/prod/web']);
        expect(condition(servicePath('web'), 'TailscaleIngressSvcConfigured')?.message).toContain('2/2');
        putService('web', {});
        putIngress('shop', {});
        await passes();
        restart();
        await up(2);
        expect([granted(), rules()]).toEqual([{}, {}]);
        expect([...bench.control.known.keys()]).toEqual([]);
        for (const path of [servicePath('web'), ingressPath('shop')])
          expect(bench.object(path)?.metadata.finalizers, path).toEqual([]);
        survived = !dead;
      }
      expect(limit).toBeGreaterThan(15);
    },
  );
});
