import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { UNPRIVILEGED } from '../../../src/operator/workload/unprivileged.ts';
import { createServiceReconciler } from '../../../src/operator/service/reconcile.ts';
import type { StoredObject } from '../api-server-double.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import { createBench, survives, OWN, SETS, settle, type Bench } from '../bench.ts';
import { OPTIONS } from '../recorder/recorders.ts';
import { EXPOSED, PATH, service } from './services.ts';

const NAME = objectNameOf({ type: 'svc', namespace: 'prod', name: 'web' });
const POD = `${NAME}-0`;
const SECRET = `${OWN}/secrets/${POD}`;
const WITHOUT_GROUPS = { ...OPTIONS.reconciled, proxyGroups: false };
const LOAD_BALANCER = { type: 'LoadBalancer', loadBalancerClass: 'tailscale' };
const LABELS = {
  'tailscale.com/managed': 'true',
  'tailscale.com/parent-resource': 'web',
  'tailscale.com/parent-resource-ns': 'prod',
  'tailscale.com/parent-resource-type': 'svc',
};
const EGRESS = { 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net' };

let bench: Bench;
let reconciler: Reconciler;

beforeEach(async () => {
  bench = await createBench({ reconciled: WITHOUT_GROUPS });
  reconciler = createServiceReconciler(bench.deps());
});
afterEach(() => bench.close());

const put = (
  spec: object = {},
  annotations: Record<string, string> = EXPOSED,
  metadata: object = {},
): void => {
  const before = bench.object(PATH);
  const next = service(spec, annotations, {
    finalizers: before?.metadata.finalizers,
    ...metadata,
  }) as StoredObject;
  bench.api.put(PATH, { ...next, ...(before?.['status'] === undefined ? {} : { status: before['status'] }) });
};
const run = (): Promise<number | undefined> => reconciler.reconcile('prod/web');
const condition = (): object | undefined => bench.condition(PATH);
const shown = (): unknown =>
  (bench.object(PATH)?.['status'] as { loadBalancer?: object } | undefined)?.loadBalancer;
const config = (version = 107): unknown => bench.file(POD, `cap-${version}.hujson`);
const variables = () => bench.variables(NAME);
/** Simulates that the pod starts and joins, and runs a pass of the operator. */
async function up(): Promise<void> {
  await run();
  bench.startPod(POD);
  bench.join(POD);
  await settle(run);
}

describe('a Service that is exposed', () => {
  it('gets everything it needs, with an account that reads its own state and nothing else', async () => {
    put();
    await run();
    expect(bench.left().toSorted()).toEqual(
      [
        `${OWN}/secrets/${NAME}-auth-0`,
        SECRET,
        `${OWN}/serviceaccounts/${NAME}`,
        `${OWN}/services/${NAME}`,
        `${SETS}/${NAME}`,
        `/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/rolebindings/${NAME}`,
        `/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles/${NAME}`,
      ].toSorted(),
    );
    const role = bench.object(`/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles/${NAME}`);
    expect((role!['rules'] as object[])[0]).toEqual({
      apiGroups: [''],
      resources: ['secrets'],
      verbs: ['get', 'patch', 'update'],
      resourceNames: [POD],
    });
    for (const path of bench.left()) {
      expect(bench.object(path)?.metadata.labels).toMatchObject(LABELS);
      expect(bench.object(path)?.metadata.ownerReferences).toEqual([]);
    }
    expect(variables()).toMatchObject({ TS_DEST_IP: '10.96.0.10', TS_USERSPACE: 'false' });
    expect(config()).toMatchObject({
      Hostname: 'prod-web',
      AuthKey: 'tskey-1',
      Locked: false,
      AdvertiseRoutes: [],
      AppConnector: { Advertise: false },
    });
    expect(config(95)).not.toHaveProperty('AppConnector');
    expect(bench.object(PATH)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
    expect(condition()).toMatchObject({
      type: 'TailscaleProxyReady',
      status: 'False',
      reason: 'ProxyPending',
    });
  });

  it('is ready when its pod is, its node has joined and its rules are in; then its key is gone', async () => {
    put();
    await run();
    bench.startPod(POD);
    await run();
    expect(condition()).toMatchObject({ reason: 'ProxyPending' });
    bench.join(POD);
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True', reason: 'ProxyCreated' });
    expect(config()).not.toHaveProperty('AuthKey');
  });

  it('is not ready by what an earlier pod said', async () => {
    put();
    await up();
    bench.api.remove(`${OWN}/pods/${POD}`);
    const set = bench.object(`${SETS}/${NAME}`)!;
    bench.api.put(`${SETS}/${NAME}`, { ...set, status: { observedGeneration: set.metadata.generation } });
    await run();
    expect(condition()).toMatchObject({ status: 'False', reason: 'ProxyPending' });
  });

  it('is left in peace when nothing changes: a pass writes nothing', async () => {
    put();
    await up();
    const before = bench.writes;
    await run();
    expect(bench.writes).toBe(before);
  });

  it('writes again what somebody changed, or took away', async () => {
    put();
    await up();
    const set = bench.object(`${SETS}/${NAME}`) as unknown as { spec: { replicas: number } };
    bench.api.put(`${SETS}/${NAME}`, { ...set, spec: { ...set.spec, replicas: 7 } });
    bench.api.remove(`${OWN}/services/${NAME}`);
    await settle(run);
    expect(bench.object(`${SETS}/${NAME}`)).toMatchObject({ spec: { replicas: 1 } });
    expect(bench.object(`${OWN}/services/${NAME}`)).toBeDefined();
  });

  it('says name and addresses of its family in the status of a load balancer, after joining', async () => {
    put(LOAD_BALANCER, {});
    await run();
    expect(shown()).toBeUndefined();
    bench.startPod(POD);
    bench.join(POD);
    await settle(run);
    expect(shown()).toEqual({ ingress: [{ hostname: `${POD}.lab.ts.net` }, { ip: '100.64.0.9' }] });
  });

  it('says the other family where the Service has it', async () => {
    put({ ...LOAD_BALANCER, clusterIP: 'fd00:10:96::a' }, {});
    await up();
    expect(shown()).toEqual({ ingress: [{ hostname: `${POD}.lab.ts.net` }, { ip: 'fd7a:115c:a1e0::9' }] });
    expect(variables()['TS_DEST_IP']).toBe('fd00:10:96::a');
  });

  it('follows another host name without touching the pod', async () => {
    put();
    await up();
    const before = bench.object(`${SETS}/${NAME}`)?.metadata.resourceVersion;
    put({}, { ...EXPOSED, 'tailscale.com/hostname': 'shop' });
    await settle(run);
    expect(config()).toMatchObject({ Hostname: 'shop' });
    expect(bench.object(`${SETS}/${NAME}`)?.metadata.resourceVersion).toBe(before);
  });

  it.each([
    ['the annotation goes', () => put({}, {})],
    ['it moves to a group', () => put({}, { ...EXPOSED, 'tailscale.com/proxy-group': 'in' })],
    ['it is a load balancer of nobody’s any more', () => put({ type: 'ClusterIP' }, {})],
    ['it is an outer name', () => put({ type: 'ExternalName', externalName: 'db.example.com' }, {})],
    ['it is deleted', () => put({}, EXPOSED, { deletionTimestamp: new Date().toISOString() })],
  ])('leaves nothing behind when %s', async (_name, change) => {
    put(LOAD_BALANCER);
    await up();
    change();
    expect(await run()).toBeGreaterThan(0);
    bench.api.remove(`${OWN}/pods/${POD}`);
    await settle(run);
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    expect(bench.control.deleted).toEqual([`node-${POD}`]);
    expect([...bench.control.keys.values()].every(({ usable }) => !usable)).toBe(true);
    const after = bench.object(PATH);
    expect(after?.metadata.finalizers ?? []).toEqual([]);
    if (after !== undefined) {
      expect(condition()).toBeUndefined();
      expect(shown()).toEqual({ ingress: [] });
    }
  });

  it.each<[string, object, Record<string, string>, Record<string, string>]>([
    [
      'an outer name',
      { type: 'ExternalName', externalName: 'db.example.com', clusterIP: '' },
      EXPOSED,
      { TS_EXPERIMENTAL_DEST_DNS_NAME: 'db.example.com' },
    ],
    ['a way to the tailnet', {}, EGRESS, { TS_TAILNET_TARGET_FQDN: 'db.lab.ts.net.' }],
  ])('keeps its node and nothing of what it was when it becomes %s', async (_what, spec, notes, wanted) => {
    put(LOAD_BALANCER);
    await up();
    put(spec, notes);
    await run();
    expect(variables()).toMatchObject(wanted);
    expect(variables()).not.toHaveProperty('TS_DEST_IP');
    bench.startPod(POD, 'pod-next');
    bench.join(POD);
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True' });
    expect(shown()).toEqual({ ingress: [] });
    expect(bench.control.keys.size).toBe(1);
    expect(bench.control.deleted).toEqual([]);
  });

  it('that is made again under its name has a node of its own, and the old one is gone', async () => {
    put();
    await up();
    put({}, EXPOSED, { deletionTimestamp: new Date().toISOString() });
    await run();
    bench.api.remove(`${OWN}/pods/${POD}`);
    await settle(run);
    expect(bench.object(PATH)).toBeUndefined();
    put({}, EXPOSED, { uid: 'uid-of-the-next' });
    await run();
    bench.startPod(POD, 'pod-next');
    bench.join(POD, { id: 'node-next' });
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True' });
    expect(bench.object(`${SETS}/${NAME}`)).toMatchObject({
      spec: { selector: { matchLabels: { app: 'uid-of-the-next' } } },
    });
    expect(bench.control.deleted).toEqual([`node-${POD}`]);
    expect([...bench.control.devices.keys()]).toEqual(['node-next']);
    expect(bench.control.keys.size).toBe(2);
  });

  it('keeps the node until the pod has ended, and waits while the control server is away', async () => {
    put();
    await up();
    put({}, {});
    await run();
    await run();
    expect(bench.control.deleted).toEqual([]);
    bench.api.remove(`${OWN}/pods/${POD}`);
    bench.control.broken = new Error('down');
    await expect(run()).rejects.toThrow('down');
    expect(bench.object(PATH)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
    expect(bench.object(SECRET)).toBeDefined();
    bench.control.broken = undefined;
    await settle(run);
    expect([bench.left(), bench.names()]).toEqual([[], []]);
  });

  it('is told by an event and its condition when it is invalid, and heals', async () => {
    put({ clusterIP: 'None' });
    await run();
    expect(condition()).toMatchObject({ status: 'False', reason: 'ProxyInvalid' });
    expect(bench.events()[0]).toMatch(/^INVALIDSERVICE: headless/);
    const [event] = [...bench.api.objects.keys()].filter((path) => path.includes('/events/'));
    expect(event).toContain('/namespaces/prod/events/');
    expect(bench.left()).toEqual([]);
    put();
    await run();
    expect(condition()).toMatchObject({ reason: 'ProxyPending' });
  });

  it('waits for its ProxyClass, and follows it', async () => {
    put({}, { ...EXPOSED, 'tailscale.com/proxy-class': 'small' });
    await run();
    expect(condition()).toMatchObject({
      reason: 'ProxyPending',
      message: 'waiting: ProxyClass "small" does not exist',
    });
    const spec = {
      statefulSet: { pod: { nodeSelector: { disk: 'none' } } },
      tailscale: { acceptRoutes: true },
    };
    bench.put(KINDS.proxyClass, { name: 'small' }, spec);
    await run();
    expect(condition()).toMatchObject({ message: 'waiting: ProxyClass "small" is not ready' });
    bench.putClass('small', spec);
    await run();
    expect(config()).toMatchObject({ acceptRoutes: true });
    expect(bench.object(`${SETS}/${NAME}`)).toMatchObject({
      spec: { template: { spec: { nodeSelector: { disk: 'none' } } } },
    });
    // An empty class removes both settings.
    bench.putClass('small', {});
    await run();
    expect(config()).toMatchObject({ acceptRoutes: false });
    const stated = bench.api.requests.findLast(
      ({ method, path }) => method === 'PATCH' && path === `${SETS}/${NAME}`,
    );
    // Server-side apply removes fields that are not in the new manifest.
    expect(stated?.contentType).toBe('application/apply-patch+yaml');
    const { template } = (stated!.body as { spec: { template: { spec: object } } }).spec;
    expect(template.spec).not.toHaveProperty('nodeSelector');
    expect(template.spec).toHaveProperty('initContainers');
  });

  it('touches no object of somebody else that has the name', async () => {
    put();
    bench.api.put(`${OWN}/services/${NAME}`, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: NAME, namespace: 'tailcast', labels: { app: 'other' } },
      spec: { clusterIP: '10.96.0.99' },
    });
    await expect(run()).rejects.toMatchObject({ code: 'OBJECT_NOT_OURS' });
    expect(bench.object(`${OWN}/services/${NAME}`)).toMatchObject({ spec: { clusterIP: '10.96.0.99' } });
    expect(condition()).toMatchObject({ status: 'False', reason: 'ProxyFailed' });
  });

  it('keeps its hands off a Service of somebody else’s group, whose finalizer has the same name', async () => {
    put(
      {},
      { 'tailscale.com/proxy-group': 'out', 'tailscale.com/tailnet-ip': '100.64.0.7' },
      { finalizers: ['tailscale.com/finalizer'], deletionTimestamp: new Date().toISOString() },
    );
    const before = bench.writes;
    await run();
    expect(bench.writes).toBe(before);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
  });

  describe('that is to be exposed through a group', () => {
    const GROUP = { 'tailscale.com/proxy-group': 'in' };
    const serve = (): void => {
      reconciler = createServiceReconciler({ ...bench.deps(), options: OPTIONS });
    };

    it('loses the proxy that it had, and keeps what the group says', async () => {
      serve();
      put();
      await up();
      put({}, { ...EXPOSED, ...GROUP });
      const said = { type: 'TailscaleIngressSvcValid', status: 'True', reason: 'x', message: 'x' };
      const { status, ...object } = bench.object(PATH)! as StoredObject & {
        status: { conditions: object[] };
      };
      const conditions = [...status.conditions, { ...said, lastTransitionTime: '2026-01-01T00:00:00Z' }];
      bench.api.put(PATH, { ...object, status: { ...status, conditions } });
      await run();
      bench.api.remove(`${OWN}/pods/${POD}`);
      await settle(run);
      expect(bench.left()).toEqual([]);
      expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
      expect(bench.object(PATH)?.['status']).toMatchObject({ conditions: [said] });
      expect(bench.events()).toEqual([]);
      put();
      await up();
      expect(condition()).toMatchObject({ status: 'True' });
    });
  });

  it('finds what is left under another name when only its state is', async () => {
    bench.api.put(`${OWN}/secrets/ts-web-x7k2p-0`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'ts-web-x7k2p-0', namespace: 'tailcast', labels: LABELS },
      data: {},
    });
    bench.join('ts-web-x7k2p-0');
    put({}, {}, { finalizers: ['tailscale.com/finalizer'] });
    await settle(run);
    expect(bench.control.deleted).toEqual(['node-ts-web-x7k2p-0']);
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
  });

  it('takes over what the reference left: the same node, under its name', async () => {
    const named = (name: string) => ({ name, namespace: 'tailcast', labels: LABELS });
    bench.api.put(`${SETS}/ts-web-x7k2p`, {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: named('ts-web-x7k2p'),
      spec: {
        podManagementPolicy: 'OrderedReady',
        selector: { matchLabels: { app: 'service-uid' } },
        template: { metadata: { labels: { ...LABELS, app: 'service-uid' } } },
      },
    });
    bench.api.put(`${OWN}/secrets/ts-web-x7k2p-0`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: named('ts-web-x7k2p-0'),
      data: {},
    });
    put({}, EXPOSED, { finalizers: ['tailscale.com/finalizer'] });
    bench.join('ts-web-x7k2p-0');
    await run();
    expect(bench.left().filter((path) => path.startsWith(SETS))).toEqual([`${SETS}/ts-web-x7k2p`]);
    expect(bench.control.keys.size).toBe(0);
    bench.startPod('ts-web-x7k2p-0');
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True' });
    // the API server rejects a change of this field
    expect(bench.object(`${SETS}/ts-web-x7k2p`)?.['spec']).toMatchObject({
      podManagementPolicy: 'OrderedReady',
    });
  });
});

describe('a Service that leads to the tailnet', () => {
  it('becomes a name for the proxy’s pods, and is written back when somebody changes it', async () => {
    put({}, EGRESS);
    await run();
    const wanted = { type: 'ExternalName', externalName: `${NAME}.tailcast.svc.cluster.local` };
    expect(bench.object(PATH)?.['spec']).toMatchObject(wanted);
    expect(bench.object(PATH)?.['spec']).not.toHaveProperty('selector');
    expect(variables()).toMatchObject({ TS_TAILNET_TARGET_FQDN: 'db.lab.ts.net.' });
    expect(condition()).toMatchObject({ message: expect.stringContaining('db.lab.ts.net. to be known') });
    put({ type: 'ExternalName', externalName: 'elsewhere.example.com', clusterIP: '' }, EGRESS);
    await run();
    expect(bench.object(PATH)?.['spec']).toMatchObject(wanted);
  });

  it('leads to an address behind a router of the tailnet when its class takes routes', async () => {
    bench.putClass('routes', { tailscale: { acceptRoutes: true } });
    put({}, { 'tailscale.com/tailnet-ip': '10.40.0.7', 'tailscale.com/proxy-class': 'routes' });
    await run();
    expect(variables()).toMatchObject({ TS_TAILNET_TARGET_IP: '10.40.0.7' });
    for (const version of [95, 107]) expect(config(version)).toMatchObject({ acceptRoutes: true });
  });

  it('has no probe: everything that reaches its pod goes on', async () => {
    put({}, EGRESS);
    await run();
    const set = JSON.stringify(bench.object(`${SETS}/${NAME}`));
    expect(set).not.toContain('readinessProbe');
    expect(variables()).not.toHaveProperty('TS_LOCAL_ADDR_PORT');
  });
});

describe('an operator that is killed between any two writes', () => {
  type Kind = 'exposed' | 'exposed without privileges' | 'leading out' | 'leading out without privileges';
  const EGRESS = {
    type: 'ExternalName',
    clusterIP: undefined,
    externalName: 'unused',
    ports: [{ port: 80 }],
  };

  function putService({ api, putClass }: Bench, kind: Kind): void {
    const annotations: Record<string, string> = kind.endsWith('privileges')
      ? { 'tailscale.com/proxy-class': 'safe' }
      : {};
    api.put(
      PATH,
      kind.startsWith('exposed')
        ? service({ ...LOAD_BALANCER, ports: [{ port: 80 }] }, { ...EXPOSED, ...annotations })
        : service(EGRESS, { 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net', ...annotations }),
    );
    putClass('safe', {}, { [UNPRIVILEGED]: 'true' });
  }

  /**
   * Creates a proxy, waits until it works, and removes it. The first operator process is killed after `limit` writes.
   * @param pod.dies true if the pod exits after it has registered its node. The proxy then never works.
   */
  async function life(
    kind: Kind,
    limit: number,
    pod = { dies: false },
  ): Promise<{ readonly survived: boolean }> {
    const fresh = await createBench();
    const passes = (writes?: number): (() => Promise<number | undefined>) => {
      const one = createServiceReconciler(fresh.deps(writes));
      return () => one.reconcile('prod/web');
    };
    const mortal = passes(limit);
    const healthy = passes();
    let survived = true;
    async function first(): Promise<void> {
      if (survived) survived = await survives(mortal);
    }
    try {
      putService(fresh, kind);
      await first();
      await healthy();
      fresh.startPod(POD);
      if (pod.dies) fresh.joinAndDie(POD);
      else fresh.join(POD);
      await first();
      if (!pod.dies) {
        await settle(healthy);
        expect(fresh.object(PATH)?.['status']).toMatchObject({ conditions: [{ status: 'True' }] });
      }
      fresh.markDeleted(PATH);
      fresh.api.remove(`${OWN}/pods/${POD}`);
      await first();
      await settle(healthy);
      expect([fresh.left(), fresh.names()]).toEqual([[], []]);
      expect(fresh.object(PATH)).toBeUndefined();
      expect(fresh.control.devices.size).toBe(0);
      // A crash between creating and storing a key leaves only that key, which expires after an hour.
      const usable = [...fresh.control.keys.values()].filter((key) => key.usable);
      expect(usable.length).toBeLessThanOrEqual(survived ? 0 : 1);
      return { survived };
    } finally {
      await fresh.close();
    }
  }

  it.each<Kind>(['exposed', 'exposed without privileges', 'leading out', 'leading out without privileges'])(
    'converges with a Service %s, and leaves neither objects nor nodes behind',
    { timeout: 120_000 },
    async (kind) => {
      let limit = 0;
      while (!(await life(kind, limit)).survived) limit += 1;
      expect(limit).toBeGreaterThan(15);
      expect(limit).toBeLessThan(60);
    },
  );

  it('leaves no node of a pod that died before it said which one it is', { timeout: 120_000 }, async () => {
    let limit = 0;
    while (!(await life('exposed', limit, { dies: true })).survived) limit += 1;
    expect(limit).toBeGreaterThan(15);
    expect(limit).toBeLessThan(60);
  });
});
