import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createEgressNodesReconciler } from '../../../src/operator/egress-group/nodes.ts';
import { createEgressReconciler } from '../../../src/operator/egress-group/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import type { Reconciler, ReconcilerDeps } from '../../../src/operator/workload/reconciler.ts';
import { createServiceReconciler } from '../../../src/operator/service/reconcile.ts';
import type { StoredObject } from '../api-server-double.ts';
import { createBench, Killed, OWN, SETS, settle, TAILSCALE, type Bench } from '../bench.ts';

const SLICES = '/apis/discovery.k8s.io/v1/namespaces/tailcast/endpointslices';
const GROUP = `${TAILSCALE}/proxygroups/out`;
const CONFIG = `${OWN}/configmaps/out-egress-config`;

let bench: Bench;
let nodes: Reconciler;
let services: Reconciler;
let single: Reconciler;

function start(deps: ReconcilerDeps): void {
  nodes = createEgressNodesReconciler(deps);
  services = createEgressReconciler(deps);
  single = createServiceReconciler(deps);
}
beforeEach(async () => {
  bench = await createBench();
  start(bench.deps());
});
afterEach(() => bench.close());

const path = (name: string): string => `/api/v1/namespaces/prod/services/${name}`;

function put(name: string, options: { annotations?: object; spec?: object; metadata?: object } = {}): void {
  const annotations = {
    'tailscale.com/proxy-group': 'out',
    'tailscale.com/tailnet-fqdn': `${name}.lab.ts.net`,
    ...options.annotations,
  };
  const spec = { type: 'ExternalName', externalName: 'unused', ports: [{ port: 5432 }], ...options.spec };
  bench.put(KINDS.service, { name, namespace: 'prod', ...options.metadata, annotations }, spec);
}
const putGroup = (spec: object = {}, name = 'out'): string =>
  bench.put(KINDS.proxyGroup, { name, uid: `uid-${name}` }, { type: 'egress', ...spec });
/** Runs all pending passes. */
async function passes(): Promise<void> {
  await nodes.reconcile('out');
  for (const group of ['out', 'other']) await services.reconcile(group);
  const names = [...bench.api.objects.keys()].flatMap(
    (one) => /^\/api\/v1\/namespaces\/prod\/services\/(.+)$/.exec(one)?.[1] ?? [],
  );
  // Auth keys of nodes that have not joined yet are checked much later.
  for (const name of names) for (let pass = 0; pass < 4; pass += 1) await single.reconcile(`prod/${name}`);
  for (const group of ['out', 'other']) await services.reconcile(group);
}
const serve = (): Promise<number | undefined> => services.reconcile('out');

interface Front extends StoredObject {
  spec: { clusterIP: string; ports: { name: string; port: number; protocol: string; targetPort: number }[] };
}
function fronts(group?: string): Front[] {
  return [...bench.api.objects.values()].filter(
    ({ kind, metadata }) =>
      kind === 'Service' &&
      metadata.labels?.['tailscale.com/svc-type'] === 'egress' &&
      (group === undefined || metadata.labels['tailscale.com/proxy-group'] === group),
  ) as Front[];
}
const front = (name: string): Front => {
  const found = fronts().find(({ metadata }) => metadata.labels?.['tailscale.com/parent-resource'] === name);
  if (found === undefined) throw new Error(`nothing stands for ${name}`);
  return found;
};
interface Entry {
  healthCheckEndpoint: string;
  tailnetTarget: { ip: string; fqdn: string };
  ports: { protocol: string; matchPort: number; targetPort: number }[];
}
function config(): Record<string, Entry> {
  const data = (bench.object(CONFIG)?.['binaryData'] ?? {}) as Record<string, string>;
  return JSON.parse(Buffer.from(data['egress-services'] ?? '', 'base64').toString()) as Record<string, Entry>;
}
interface Slice {
  endpoints: { addresses: string[]; conditions: object }[];
  ports: { name: string; port: number }[];
}
const slice = (name: string): Slice =>
  bench.object(`${SLICES}/${front(name).metadata.name}-ipv4`) as unknown as Slice;
const addresses = (name: string): string[] =>
  slice(name).endpoints.flatMap(({ addresses: [one] }) => one ?? []);
const condition = (name: string, type: string) => bench.condition(path(name), type);
const gate = (pod: string): string | undefined =>
  bench.condition(`${OWN}/pods/${pod}`, 'tailscale.com/egress-services')?.status;

/** Simulates a pod that has started and joined. */
function pod(
  ordinal: number,
  options: { up?: boolean; ip?: string; uid?: string; deleted?: boolean } = {},
): void {
  const name = `out-${ordinal}`;
  bench.startPod(name, options.uid);
  bench.join(name);
  const object = bench.object(`${OWN}/pods/${name}`)!;
  bench.api.put(`${OWN}/pods/${name}`, {
    ...object,
    metadata: {
      ...object.metadata,
      ...(options.deleted === true
        ? { deletionTimestamp: new Date().toISOString(), finalizers: ['test/stay'] }
        : {}),
    },
    status: {
      podIPs: [{ ip: options.ip ?? `10.0.0.${ordinal + 1}` }],
      conditions: [
        {
          type: 'ContainersReady',
          status: options.up === false ? 'False' : 'True',
        },
      ],
    },
  });
}
/** Simulates a container that has read its configuration and installed its rules. */
function report(
  ordinal: number,
  options: { ip?: string; unknown?: readonly string[]; entries?: Record<string, Entry> } = {},
): void {
  const said = {
    podIPv4: options.ip ?? `10.0.0.${ordinal + 1}`,
    podIPv6: '',
    services: Object.fromEntries(
      Object.entries(options.entries ?? config()).map(([key, { ports, tailnetTarget }]) => [
        key,
        {
          ports,
          tailnetTarget,
          tailnetTargetIPs: options.unknown?.includes(key) === true ? null : ['100.64.0.7'],
        },
      ]),
    ),
  };
  bench.say(`out-${ordinal}`, { 'egress-services': JSON.stringify(said) });
}
async function up(...names: readonly string[]): Promise<void> {
  putGroup();
  for (const name of names) put(name);
  await passes();
  for (const ordinal of [0, 1]) pod(ordinal);
  for (const ordinal of [0, 1]) report(ordinal);
  await passes();
}

describe('the nodes of a group', () => {
  it('have a configuration, a shared ConfigMap, a gate and time to hand over', async () => {
    putGroup({ hostnamePrefix: 'way', tags: ['tag:out'] });
    await passes();
    const set = bench.object(`${SETS}/out`) as unknown as {
      metadata: { ownerReferences: { uid: string }[] };
      spec: {
        replicas: number;
        template: {
          spec: {
            terminationGracePeriodSeconds: number;
            readinessGates: object[];
            volumes: { configMap?: object }[];
            containers: object[];
          };
        };
      };
    };
    const { spec } = set.spec.template;
    expect(set.spec.replicas).toBe(2);
    expect(set.metadata.ownerReferences).toMatchObject([{ uid: 'uid-out' }]);
    expect(spec.readinessGates).toEqual([{ conditionType: 'tailscale.com/egress-services' }]);
    expect(spec.terminationGracePeriodSeconds).toBeGreaterThan(30);
    expect(spec.volumes).toContainEqual({
      name: 'egress-services',
      configMap: { name: 'out-egress-config' },
    });
    expect(spec.containers[0]).toMatchObject({
      lifecycle: { preStop: { httpGet: { path: '/internal-egress-services-preshutdown', port: 9002 } } },
    });
    expect(bench.variables('out')).toMatchObject({
      TS_EGRESS_PROXIES_CONFIG_PATH: '/etc/proxies',
      TS_ENABLE_HEALTH_CHECK: 'true',
      TS_INTERNAL_APP: 'k8s-operator-proxygroup-egress',
    });
    expect(bench.file('out-1', 'cap-107.hujson')).toMatchObject({ Hostname: 'way-1' });
    expect(config()).toEqual({});
  });

  it('are available with the first that has joined, and ready with all', async () => {
    const said = (type: string): unknown => bench.condition(GROUP, type)?.status;
    putGroup();
    await passes();
    expect([said('ProxyGroupAvailable'), said('ProxyGroupReady')]).toEqual(['False', 'False']);
    pod(0);
    await passes();
    expect([said('ProxyGroupAvailable'), said('ProxyGroupReady')]).toEqual(['True', 'False']);
    pod(1);
    await passes();
    expect([said('ProxyGroupAvailable'), said('ProxyGroupReady')]).toEqual(['True', 'True']);
    expect(bench.object(GROUP)?.['status']).toMatchObject({
      devices: [{ hostname: 'out-0' }, { hostname: 'out-1' }],
    });
  });

  it('open the gate when nothing is to be forwarded', async () => {
    putGroup();
    await passes();
    pod(0);
    await passes();
    expect(gate('out-0')).toBe('True');
  });

  it('leave the tailnet when the group is deleted, with all that stood for Services', async () => {
    await up('db');
    bench.markDeleted(GROUP);
    await nodes.reconcile('out');
    for (const ordinal of [0, 1]) bench.api.remove(`${OWN}/pods/out-${ordinal}`);
    await settle(() => nodes.reconcile('out'));
    await passes();
    expect(bench.control.devices.size).toBe(0);
    expect(fronts()).toEqual([]);
    expect(bench.left().filter((one) => one.startsWith(SLICES))).toEqual([]);
    expect(condition('db', 'TailscaleEgressSvcValid')).toMatchObject({
      status: 'Unknown',
      reason: 'ProxyGroupNotReady',
    });
    expect(condition('db', 'TailscaleEgressSvcReady')).toMatchObject({ status: 'False' });
  });
});

describe('a Service of a group', () => {
  it('has a Service that stands for it, with ports of the nodes, and its name leads there', async () => {
    await up('db', 'web');
    for (const name of ['db', 'web']) {
      const { spec, metadata } = front(name);
      expect(spec.ports).toMatchObject([
        { name: 'tailscale-unnamed', port: 5432, protocol: 'TCP' },
        { name: 'tailscale-health-check', port: 9002, targetPort: 9002 },
      ]);
      expect(spec.ports[0]!.targetPort).toBeGreaterThanOrEqual(10_000);
      expect(spec.ports[0]!.targetPort).toBeLessThan(11_000);
      expect(bench.object(path(name))?.['spec']).toMatchObject({
        type: 'ExternalName',
        externalName: `${metadata.name}.tailcast.svc.cluster.local`,
      });
      expect(config()[`prod.${name}`]).toEqual({
        healthCheckEndpoint: `http://${spec.clusterIP}:9002/healthz`,
        tailnetTarget: { ip: '', fqdn: `${name}.lab.ts.net` },
        ports: [{ protocol: 'tcp', matchPort: spec.ports[0]!.targetPort, targetPort: 5432 }],
      });
    }
    expect(front('db').spec.ports[0]!.targetPort).not.toBe(front('web').spec.ports[0]!.targetPort);
    // The operator must not expose its own Services in its namespace.
    for (const { metadata } of fronts()) await single.reconcile(`tailcast/${metadata.name}`);
    expect([...bench.api.objects.keys()].filter((one) => one.startsWith(SETS))).toEqual([`${SETS}/out`]);
  });

  it('says how many pods forward, and is ready from one on', async () => {
    putGroup();
    put('db');
    await passes();
    expect(condition('db', 'TailscaleEgressSvcValid')).toMatchObject({ status: 'True' });
    expect(condition('db', 'TailscaleEgressSvcConfigured')).toMatchObject({
      status: 'True',
      reason: 'EgressSvcConfigured',
    });
    expect(condition('db', 'TailscaleEgressSvcReady')).toMatchObject({
      status: 'False',
      reason: 'NotReadyToRouteTraffic',
    });
    for (const ordinal of [0, 1]) pod(ordinal);
    report(0);
    await passes();
    expect(condition('db', 'TailscaleEgressSvcReady')).toMatchObject({
      status: 'True',
      reason: 'PartiallyReadyToRouteTraffic',
    });
    report(1);
    await passes();
    expect(condition('db', 'TailscaleEgressSvcReady')).toMatchObject({
      status: 'True',
      reason: 'ReadyToRouteTraffic',
    });
  });

  it('gets a pod after its rules are in, and loses it before it ends', async () => {
    putGroup();
    put('db');
    await passes();
    for (const ordinal of [0, 1]) pod(ordinal);
    await passes();
    expect(addresses('db')).toEqual([]);
    expect(gate('out-0')).toBeUndefined();
    report(0);
    await passes();
    expect(addresses('db')).toEqual(['10.0.0.1']);
    expect([gate('out-0'), gate('out-1')]).toEqual(['True', undefined]);
    report(1);
    pod(0, { deleted: true });
    await passes();
    expect(slice('db').endpoints.map(({ addresses: [ip], conditions }) => [ip, conditions])).toEqual([
      ['10.0.0.1', { ready: false, serving: true, terminating: true }],
      ['10.0.0.2', { ready: true, serving: true, terminating: false }],
    ]);
  });

  it('does not go by what an earlier pod said, nor by one whose container is down', async () => {
    await up('db');
    pod(0, { uid: 'next', ip: '10.0.0.77' });
    pod(1, { up: false });
    await passes();
    expect(addresses('db')).toEqual([]);
    expect(gate('out-0')).toBeUndefined();
    report(0, { ip: '10.0.0.77' });
    await passes();
    expect(addresses('db')).toEqual(['10.0.0.77']);
  });

  it('is led to the pods that run when the operator was away while they were replaced', async () => {
    await up('db');
    const { port, targetPort } = front('db').spec.ports[0]!;
    pod(0, { uid: 'next-0', ip: '10.0.0.77' });
    report(0, { ip: '10.0.0.77' });
    pod(1, { uid: 'next-1', ip: '10.0.0.78' });
    start(bench.deps());
    await passes();
    // The report of the second replica is still that of its old pod.
    expect(addresses('db')).toEqual(['10.0.0.77']);
    expect([gate('out-0'), gate('out-1')]).toEqual(['True', undefined]);
    report(1, { ip: '10.0.0.78' });
    await passes();
    expect(addresses('db')).toEqual(['10.0.0.77', '10.0.0.78']);
    expect(gate('out-1')).toBe('True');
    expect(front('db').spec.ports[0]).toMatchObject({ port, targetPort });
    expect(fronts()).toHaveLength(1);
  });

  it('keeps its ports while another is added, which comes when every pod has it', async () => {
    await up('db');
    const { targetPort } = front('db').spec.ports[0]!;
    const before = config();
    put('db', {
      spec: {
        ports: [
          { name: 'sql', port: 5432 },
          { name: 'udp', port: 5432, protocol: 'UDP' },
        ],
      },
    });
    await passes();
    expect(front('db').spec.ports.map(({ name }) => name)).toEqual(['sql', 'udp', 'tailscale-health-check']);
    expect(front('db').spec.ports[0]!.targetPort).toBe(targetPort);
    expect(addresses('db')).toEqual(['10.0.0.1', '10.0.0.2']);
    expect(slice('db').ports.map(({ name }) => name)).toEqual(['sql', 'tailscale-health-check']);
    report(0);
    report(1, { entries: before });
    await passes();
    expect(slice('db').ports.map(({ name }) => name)).toEqual(['sql', 'tailscale-health-check']);
    expect(condition('db', 'TailscaleEgressSvcReady')).toMatchObject({
      reason: 'PartiallyReadyToRouteTraffic',
    });
    report(1);
    await passes();
    expect(slice('db').ports.map(({ name }) => name)).toEqual(['sql', 'udp', 'tailscale-health-check']);
  });

  it('sends nothing to the old target when it has another', async () => {
    await up('db');
    put('db', { annotations: { 'tailscale.com/tailnet-fqdn': 'new.lab.ts.net' } });
    await passes();
    expect(addresses('db')).toEqual([]);
    report(0);
    await passes();
    expect(addresses('db')).toEqual(['10.0.0.1']);
  });

  it('whose target nobody knows says so, is looked up again, and holds no other up', async () => {
    putGroup();
    for (const name of ['db', 'lost']) put(name);
    await passes();
    for (const ordinal of [0, 1]) pod(ordinal);
    for (const ordinal of [0, 1]) report(ordinal, { unknown: ['prod.lost'] });
    const again = await serve();
    expect(again).toBeGreaterThan(0);
    expect(addresses('db')).toEqual(['10.0.0.1', '10.0.0.2']);
    expect(addresses('lost')).toEqual([]);
    expect(condition('lost', 'TailscaleEgressSvcReady')?.message).toContain(
      'lost.lab.ts.net is not known in the tailnet',
    );
    expect([gate('out-0'), gate('out-1')]).toEqual(['True', 'True']);
    const before = JSON.stringify(bench.object(CONFIG)?.['binaryData']);
    await bench.clock.advance(again ?? 0);
    await serve();
    expect(JSON.stringify(bench.object(CONFIG)?.['binaryData'])).not.toBe(before);
  });

  it.each<[string, { annotations?: object; spec?: object }, string]>([
    ['no port', { spec: { ports: [] } }, 'spec.ports'],
    ['SCTP', { spec: { ports: [{ port: 1, protocol: 'SCTP' }] } }, 'spec.ports'],
    ['two targets', { annotations: { 'tailscale.com/tailnet-ip': '100.64.0.1' } }, 'tailnet-ip'],
    ['a short name', { annotations: { 'tailscale.com/tailnet-fqdn': 'db' } }, 'tailscale.com/tailnet-fqdn'],
    ['both ways', { annotations: { 'tailscale.com/expose': 'true' } }, 'tailscale.com/expose'],
  ])('with %s is told what is wrong, others work', async (_name, options, field) => {
    putGroup();
    put('db', options);
    put('web');
    await passes();
    expect(condition('db', 'TailscaleEgressSvcValid')).toMatchObject({
      status: 'False',
      reason: 'EgressSvcInvalid',
    });
    expect(condition('db', 'TailscaleEgressSvcValid')?.message).toContain(field);
    expect(
      bench.events().some((event) => event.startsWith('EgressSvcInvalid') && event.includes(field)),
    ).toBe(true);
    expect(Object.keys(config())).toEqual(['prod.web']);
  });

  it('that comes before its group waits for it, and for one of the right type', async () => {
    put('db');
    await passes();
    expect(condition('db', 'TailscaleEgressSvcValid')).toMatchObject({
      status: 'Unknown',
      reason: 'ProxyGroupNotReady',
    });
    expect(condition('db', 'TailscaleEgressSvcValid')?.message).toContain('"out" does not exist');
    putGroup({ type: 'ingress' });
    await passes();
    expect(condition('db', 'TailscaleEgressSvcValid')?.message).toContain('is of type ingress');
    putGroup();
    await passes();
    expect(condition('db', 'TailscaleEgressSvcValid')).toMatchObject({ status: 'True' });
  });

  it('is told when the group has no port left', async () => {
    putGroup();
    const ports = (length: number): object => ({
      spec: { ports: Array.from({ length }, (_, index) => ({ name: `p${index}`, port: index + 1 })) },
    });
    put('all', ports(500));
    await passes();
    put('late');
    await passes();
    expect(condition('late', 'TailscaleEgressSvcValid')?.message).toContain(
      '500 of 1000 ports of ProxyGroup "out" are taken, and namespace prod may use 500',
    );
    expect(new Set(front('all').spec.ports.map(({ targetPort }) => targetPort)).size).toBe(501);
    expect(front('all').spec.ports.at(-1)?.port).toBe(9002);
    put('other', { ...ports(250), metadata: { namespace: 'dev' } });
    await passes();
    expect(bench.events().join()).not.toContain('namespace dev');
    put('other', { ...ports(251), metadata: { namespace: 'dev' } });
    await passes();
    expect(bench.events().join()).toContain('namespace dev may use 250');
    bench.api.remove(path('all'));
    await passes();
    expect(condition('late', 'TailscaleEgressSvcValid')).toMatchObject({ status: 'True' });
  });

  it('gets back what somebody took away, and leads there again', async () => {
    await up('db');
    const before = structuredClone({ front: front('db'), config: config() });
    bench.api.remove(`${SLICES}/${front('db').metadata.name}-ipv4`);
    bench.api.remove(CONFIG);
    put('db', { spec: { externalName: 'elsewhere.example.com' } });
    await passes();
    expect(config()).toEqual(before.config);
    expect(addresses('db')).toEqual(['10.0.0.1', '10.0.0.2']);
    expect((bench.object(path('db'))!['spec'] as { externalName: string }).externalName).toContain(
      front('db').metadata.name,
    );
    bench.api.remove(`${OWN}/services/${front('db').metadata.name}`);
    await passes();
    expect(front('db').spec.ports).toEqual(before.front.spec.ports);
  });

  it.each<[string, () => void]>([
    [
      'its annotation goes',
      () =>
        put('db', {
          annotations: { 'tailscale.com/proxy-group': undefined, 'tailscale.com/tailnet-fqdn': undefined },
        }),
    ],
    ['it is deleted', () => put('db', { metadata: { deletionTimestamp: new Date().toISOString() } })],
  ])('leaves nothing behind when %s', async (_name, change) => {
    await up('db', 'web');
    change();
    await passes();
    await passes();
    expect(Object.keys(config())).toEqual(['prod.web']);
    expect(fronts().map(({ metadata }) => metadata.labels?.['tailscale.com/parent-resource'])).toEqual([
      'web',
    ]);
    const left = bench.object(path('db'));
    expect(left?.metadata.finalizers ?? []).toEqual([]);
    expect(bench.conditions(path('db'))).toEqual([]);
  });

  it('moves to another group, and to a proxy of its own, and back', async () => {
    await up('db');
    putGroup({}, 'other');
    put('db', { annotations: { 'tailscale.com/proxy-group': 'other' } });
    await passes();
    expect(fronts('out')).toEqual([]);
    expect(config()).toEqual({});
    expect(fronts('other')).toHaveLength(1);
    put('db', { annotations: { 'tailscale.com/proxy-group': undefined } });
    await passes();
    expect(fronts()).toEqual([]);
    expect(condition('db', 'TailscaleEgressSvcValid')).toBeUndefined();
    expect(condition('db', 'TailscaleProxyReady')).toMatchObject({ reason: 'ProxyPending' });
    put('db');
    await passes();
    expect(fronts('out')).toHaveLength(1);
    expect(condition('db', 'TailscaleProxyReady')).toBeUndefined();
    expect([...bench.api.objects.keys()].filter((one) => one.startsWith(SETS))).toEqual([`${SETS}/out`]);
  });

  it('is left in peace when nothing changes', async () => {
    await up('db', 'web');
    const before = bench.writes;
    await serve();
    for (const name of ['db', 'web']) await single.reconcile(`prod/${name}`);
    expect(bench.writes).toBe(before);
  });
});

describe('an operator that is killed before any of its writes', () => {
  it('comes up whole, with everything once', async () => {
    for (let life = 0; ; life += 1) {
      await bench.close();
      bench = await createBench();
      start(bench.deps(life));
      putGroup();
      for (const name of ['db', 'web']) put(name);
      const killed = await passes().then(
        () => false,
        (error: unknown) => {
          if (error instanceof Killed || String(error).includes('killed')) return true;
          throw error;
        },
      );
      start(bench.deps());
      await passes();
      for (const ordinal of [0, 1]) pod(ordinal);
      for (const ordinal of [0, 1]) report(ordinal);
      await passes();
      expect(fronts(), `life of ${life} writes`).toHaveLength(2);
      expect(Object.keys(config())).toEqual(['prod.db', 'prod.web']);
      expect(addresses('db')).toEqual(['10.0.0.1', '10.0.0.2']);
      expect(condition('web', 'TailscaleEgressSvcReady')).toMatchObject({ reason: 'ReadyToRouteTraffic' });
      if (!killed) {
        expect(life).toBeGreaterThan(20);
        return;
      }
    }
  }, 240_000);
});
