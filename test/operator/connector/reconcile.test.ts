import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createConnectorReconciler } from '../../../src/operator/connector/reconcile.ts';
import { parseConnector, problemOf, routesOf } from '../../../src/operator/connector/resource.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { createBench, survives, OWN, SETS, settle, TAILSCALE, type Bench } from '../bench.ts';

const PATH = `${TAILSCALE}/connectors/lab`;
const NAME = objectNameOf({ type: 'connector', namespace: 'tailcast', name: 'lab' });
const SUBNETS = { subnetRouter: { advertiseRoutes: ['10.40.0.0/14', '192.0.2.0/24'] } };

describe('the routes of a Connector', () => {
  const read = (spec: object) => parseConnector({ metadata: { name: 'lab', uid: 'connector-uid' }, spec });

  it('are those of all its roles, in one order', () => {
    expect(routesOf(read({ ...SUBNETS, exitNode: true }))).toEqual([
      '0.0.0.0/0',
      '10.40.0.0/14',
      '192.0.2.0/24',
      '::/0',
    ]);
    expect(routesOf(read({ appConnector: { routes: ['2001:db8::/32'] } }))).toEqual(['2001:db8::/32']);
    expect(routesOf(read({ appConnector: {} }))).toEqual([]);
  });

  it.each<[string, object]>([
    ['no role', {}],
    ['a false role', { exitNode: false }],
    ['two that exclude each other', { exitNode: true, appConnector: {} }],
    ['one name for two nodes', { exitNode: true, hostname: 'out', replicas: 2 }],
    ['a name and a prefix', { exitNode: true, hostname: 'out', hostnamePrefix: 'out' }],
    ['no route', { subnetRouter: { advertiseRoutes: [] } }],
    ['host bits', { subnetRouter: { advertiseRoutes: ['10.40.0.1/14'] } }],
    ['host bits in IPv6', { subnetRouter: { advertiseRoutes: ['2001:db8::1/64'] } }],
    ['a prefix that is too long', { subnetRouter: { advertiseRoutes: ['10.0.0.0/33'] } }],
    ['what is no network', { subnetRouter: { advertiseRoutes: ['10.0.0.0'] } }],
    ['host bits of an application', { appConnector: { routes: ['10.0.0.1/8'] } }],
  ])('are refused with %s', (_name, spec) => {
    expect(problemOf(read(spec))).toEqual(expect.any(String));
  });

  it.each<[string, object]>([
    ['networks', SUBNETS],
    ['single addresses', { subnetRouter: { advertiseRoutes: ['10.0.0.1/32', '2001:db8::1/128'] } }],
    ['everything', { subnetRouter: { advertiseRoutes: ['0.0.0.0/0', '::/0'] } }],
    ['mixed notation', { subnetRouter: { advertiseRoutes: ['::ffff:10.0.0.0/104', '2001:DB8::/32'] } }],
    ['an exit node', { exitNode: true, replicas: 2, hostnamePrefix: 'out' }],
    ['applications', { appConnector: {} }],
  ])('are taken with %s', (_name, spec) => {
    expect(problemOf(read(spec))).toBeUndefined();
  });
});

describe('a Connector', () => {
  let bench: Bench;
  let reconciler: Reconciler;
  beforeEach(async () => {
    bench = await createBench();
    reconciler = createConnectorReconciler(bench.deps());
  });
  afterEach(() => bench.close());

  const run = (): Promise<number | undefined> => reconciler.reconcile('lab');
  function put(spec: object, metadata: object = {}): void {
    bench.put(KINDS.connector, { name: 'lab', ...metadata }, spec);
  }
  const status = (): Record<string, unknown> =>
    (bench.object(PATH)?.['status'] ?? {}) as Record<string, unknown>;
  const condition = () => bench.condition(PATH);
  const config = (ordinal: number) =>
    bench.file(`${NAME}-${ordinal}`, 'cap-107.hujson') as Record<string, unknown>;
  async function up(replicas = 1): Promise<void> {
    await run();
    for (let ordinal = 0; ordinal < replicas; ordinal += 1) {
      bench.startPod(`${NAME}-${ordinal}`);
      bench.join(`${NAME}-${ordinal}`, { addresses: [`100.64.0.${ordinal + 1}`] });
    }
    await settle(run);
  }

  it('routes networks, has its routes approved, and says so when its node has joined', async () => {
    put(SUBNETS);
    await run();
    expect(config(0)).toMatchObject({
      Hostname: 'lab-connector',
      AdvertiseRoutes: ['10.40.0.0/14', '192.0.2.0/24'],
      AppConnector: { Advertise: false },
    });
    expect(condition()).toMatchObject({ status: 'False', reason: 'ConnectorCreating' });
    await up();
    expect(bench.control.routes.get(`node-${NAME}-0`)).toEqual(['10.40.0.0/14', '192.0.2.0/24']);
    expect(condition()).toMatchObject({ status: 'True', reason: 'ConnectorCreated' });
    expect(status()).toMatchObject({
      subnetRoutes: '10.40.0.0/14,192.0.2.0/24',
      isExitNode: false,
      isAppConnector: false,
      hostname: `${NAME}-0`,
      tailnetIPs: ['100.64.0.1'],
      devices: [{ hostname: `${NAME}-0`, tailnetIPs: ['100.64.0.1'] }],
    });
    const before = bench.writes;
    await run();
    expect(bench.writes).toBe(before);
  });

  it('withdraws routes and roles that it has no longer, without touching the pod', async () => {
    put({ ...SUBNETS, exitNode: true });
    await up();
    expect(status()).toMatchObject({ isExitNode: true });
    const before = bench.object(`${SETS}/${NAME}`)?.metadata.resourceVersion;
    put({ subnetRouter: { advertiseRoutes: ['192.0.2.0/24'] } });
    await settle(run);
    expect(config(0)).toMatchObject({ AdvertiseRoutes: ['192.0.2.0/24'] });
    expect(bench.control.routes.get(`node-${NAME}-0`)).toEqual(['192.0.2.0/24']);
    expect(status()).toMatchObject({ isExitNode: false, subnetRoutes: '192.0.2.0/24' });
    put({ appConnector: {} });
    await settle(run);
    expect(config(0)).toMatchObject({ AdvertiseRoutes: [], AppConnector: { Advertise: true } });
    expect(bench.control.routes.get(`node-${NAME}-0`)).toEqual([]);
    expect(status()).toMatchObject({ isAppConnector: true, subnetRoutes: '' });
    expect(bench.object(`${SETS}/${NAME}`)?.metadata.resourceVersion).toBe(before);
  });

  it('says what people have to do when its routes cannot be approved', async () => {
    bench.control.approveRoutes = () => Promise.reject(new Error('403 forbidden'));
    put(SUBNETS);
    await up();
    expect(condition()).toMatchObject({
      status: 'True',
      message: expect.stringMatching(/403 forbidden.*autoApprovers/),
    });
  });

  it('has a node for each replica, and lets those go that are too many, after their pods', async () => {
    put({ exitNode: true, replicas: 2, hostnamePrefix: 'out' });
    await up(2);
    expect([config(0)['Hostname'], config(1)['Hostname']]).toEqual(['out-0', 'out-1']);
    const template = JSON.stringify(
      (bench.object(`${SETS}/${NAME}`)!['spec'] as { template: object }).template,
    );
    put({ exitNode: true, replicas: 1, hostnamePrefix: 'out' });
    expect(await run()).toBe(1000);
    expect(bench.control.deleted).toEqual([]);
    bench.api.remove(`${OWN}/pods/${NAME}-1`);
    await settle(run);
    expect(bench.control.deleted).toEqual([`node-${NAME}-1`]);
    expect(bench.object(`${OWN}/secrets/${NAME}-1`)).toBeUndefined();
    // Checks that a larger number of replicas does not change the pod template, so no pod restarts.
    put({ exitNode: true, replicas: 3, hostnamePrefix: 'out' });
    await run();
    expect(JSON.stringify((bench.object(`${SETS}/${NAME}`)!['spec'] as { template: object }).template)).toBe(
      template,
    );
  });

  it('keeps the node of a replica whose pod is lost, says so, and leaves the other alone', async () => {
    put({ exitNode: true, replicas: 2, hostnamePrefix: 'out' });
    await up(2);
    const other = config(0);
    const set = bench.object(`${SETS}/${NAME}`)!;
    const { generation } = set.metadata;
    bench.api.remove(`${OWN}/pods/${NAME}-1`);
    bench.api.put(`${SETS}/${NAME}`, {
      ...set,
      status: { observedGeneration: generation, readyReplicas: 1, updatedReplicas: 2 },
    });
    await run();
    expect(condition()).toMatchObject({ status: 'False', reason: 'ConnectorCreating' });
    expect([config(0), bench.control.deleted]).toEqual([other, []]);
    bench.startPod(`${NAME}-1`, 'pod-next');
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True' });
    expect(bench.control.deleted).toEqual([]);
    // The replica's state still exists, so the replica needs no new key.
    expect(bench.control.keys.size).toBe(2);
    expect(bench.control.routes.get(`node-${NAME}-1`)).toEqual(['0.0.0.0/0', '::/0']);
  });

  it('is invalid with an event and its condition, and keeps what is deployed', async () => {
    put(SUBNETS);
    await up();
    put({ subnetRouter: { advertiseRoutes: ['10.40.0.1/14'] } });
    await run();
    expect(condition()).toMatchObject({ status: 'False', reason: 'ConnectorInvalid' });
    expect(bench.events().at(-1)).toContain('"10.40.0.1/14" has bits behind its prefix');
    expect(config(0)).toMatchObject({ AdvertiseRoutes: ['10.40.0.0/14', '192.0.2.0/24'] });
    expect(status()).toMatchObject({ subnetRoutes: '10.40.0.0/14,192.0.2.0/24' });
  });

  it('leaves nothing behind when it is deleted', async () => {
    put({ exitNode: true, replicas: 2, hostnamePrefix: 'out' });
    await up(2);
    put({ exitNode: true }, { deletionTimestamp: new Date().toISOString() });
    await run();
    for (const ordinal of [0, 1]) bench.api.remove(`${OWN}/pods/${NAME}-${ordinal}`);
    await settle(run);
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    expect(bench.object(PATH)).toBeUndefined();
    expect(bench.control.devices.size).toBe(0);
  });

  it.each([[0], [1]])(
    'loses replica %i that never said which node it is, and no other one’s',
    async (dead) => {
      put({ exitNode: true, replicas: 2 });
      await up(2);
      const secret = bench.object(`${OWN}/secrets/${NAME}-${dead}`)!;
      bench.api.put(`${OWN}/secrets/${NAME}-${dead}`, { ...secret, data: {} });
      bench.control.devices.delete(`node-${NAME}-${dead}`);
      bench.joinAndDie(`${NAME}-${dead}`);
      put({ exitNode: true, replicas: 0 });
      for (const ordinal of [0, 1]) bench.api.remove(`${OWN}/pods/${NAME}-${ordinal}`);
      await settle(run);
      expect(bench.control.devices.size).toBe(0);
      expect(bench.control.listed).toBe(1);
    },
  );

  it(
    'comes up whole and goes without a trace when the operator is killed between any two writes',
    { timeout: 120_000 },
    async () => {
      let survived = false;
      let limit = 0;
      for (; !survived; limit += 1) {
        await bench.close();
        bench = await createBench();
        reconciler = createConnectorReconciler(bench.deps());
        const mortal = createConnectorReconciler(bench.deps(limit));
        survived = true;
        const first = async (): Promise<void> => {
          if (survived) survived = await survives(() => mortal.reconcile('lab'));
        };
        put(SUBNETS);
        await first();
        await run();
        bench.startPod(`${NAME}-0`);
        bench.join(`${NAME}-0`, { addresses: ['100.64.0.1'] });
        await first();
        await settle(run);
        expect(condition()).toMatchObject({ status: 'True' });
        expect(bench.control.routes.get(`node-${NAME}-0`)).toEqual(['10.40.0.0/14', '192.0.2.0/24']);
        put(SUBNETS, { deletionTimestamp: new Date().toISOString() });
        bench.api.remove(`${OWN}/pods/${NAME}-0`);
        await first();
        await settle(run);
        expect([bench.left(), bench.names()]).toEqual([[], []]);
        expect(bench.object(PATH)).toBeUndefined();
        expect(bench.control.devices.size).toBe(0);
        const usable = [...bench.control.keys.values()].filter((key) => key.usable);
        expect(usable.length).toBeLessThanOrEqual(survived ? 0 : 1);
      }
      expect(limit).toBeGreaterThan(15);
    },
  );
});
