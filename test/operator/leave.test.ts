import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import type { ControllerSpec } from '../../src/operator/controller.ts';
import { createEgressNodesReconciler } from '../../src/operator/egress-group/nodes.ts';
import { createEgressReconciler } from '../../src/operator/egress-group/reconcile.ts';
import { leave } from '../../src/operator/leave.ts';
import type { ReconcilerDeps } from '../../src/operator/workload/reconciler.ts';
import { createProxyGroupReconciler } from '../../src/operator/proxy-group/reconcile.ts';
import { createRecorderReconciler } from '../../src/operator/recorder/reconcile.ts';
import { createServiceReconciler } from '../../src/operator/service/reconcile.ts';
import {
  connectorController,
  egressNodesController,
  egressServicesController,
  ownerController,
  serviceController,
} from '../../src/operator/controllers.ts';
import { createBench, Killed, OWN, TAILSCALE, type Bench } from './bench.ts';
import { OPTIONS } from './recorder/recorders.ts';

const RESOURCES: Readonly<Record<string, object>> = {
  [`${TAILSCALE}/recorders/keep`]: { kind: 'Recorder', spec: { enableUI: true } },
  [`${TAILSCALE}/proxygroups/gate`]: {
    kind: 'ProxyGroup',
    spec: { type: 'kube-apiserver', replicas: 1, kubeAPIServer: { mode: 'noauth' } },
  },
  [`${TAILSCALE}/proxygroups/out`]: { kind: 'ProxyGroup', spec: { type: 'egress', replicas: 1 } },
  [`${TAILSCALE}/connectors/lab`]: { kind: 'Connector', spec: { exitNode: true } },
};

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

function controllersWith(deps: ReconcilerDeps): ReadonlyMap<string, ControllerSpec> {
  return new Map([
    ['Recorder', ownerController('Recorder', createRecorderReconciler(deps), OPTIONS)],
    ['ProxyGroup', ownerController('ProxyGroup', createProxyGroupReconciler(deps), OPTIONS)],
    ['EgressNodes', egressNodesController(createEgressNodesReconciler(deps), OPTIONS)],
    ['EgressServices', egressServicesController(createEgressReconciler(deps), OPTIONS)],
    ['Connector', connectorController(createConnectorReconciler(deps), OPTIONS)],
    ['Service', serviceController(createServiceReconciler(deps), OPTIONS)],
  ]);
}

const service = (name: string, annotations: object, spec: object): void =>
  void bench.api.put(`/api/v1/namespaces/prod/services/${name}`, {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name, namespace: 'prod', annotations },
    spec: { ports: [{ port: 80 }], ...spec },
  });

/** Creates all objects, and simulates pods whose nodes have joined. */
async function everything(): Promise<void> {
  for (const [path, object] of Object.entries(RESOURCES)) {
    const name = path.split('/').at(-1) ?? '';
    bench.api.put(path, {
      apiVersion: 'tailscale.com/v1alpha1',
      metadata: { name, uid: `uid-${name}` },
      ...object,
    });
  }
  service('web', { 'tailscale.com/expose': 'true' }, {});
  service(
    'db',
    { 'tailscale.com/proxy-group': 'out', 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net' },
    { type: 'ExternalName' },
  );
  const specs = controllersWith(bench.deps());
  const keys: readonly [string, string][] = [
    ['Recorder', 'keep'],
    ['ProxyGroup', 'gate'],
    ['EgressNodes', 'out'],
    ['EgressServices', 'out'],
    ['Connector', 'lab'],
    ['Service', 'prod/web'],
    ['Service', 'prod/db'],
  ];
  for (const [name, key] of keys) await specs.get(name)?.reconciler.reconcile(key);
  for (const path of bench.left()) {
    const pod = /\/secrets\/(.+-0)$/.exec(path)?.[1];
    if (pod === undefined || pod.endsWith('-auth-0')) continue;
    bench.startPod(pod);
    // One pod exits before it reports its device.
    if (pod === 'keep-0') bench.joinAndDie(pod);
    else bench.join(pod);
  }
  for (const [name, key] of keys) await specs.get(name)?.reconciler.reconcile(key);
}

/** Runs an operator process that removes everything. Simulates that pods stop after their StatefulSets are removed. */
async function goes(limit?: number): Promise<void> {
  const deps = { ...bench.deps(limit), leaving: true };
  const running = leave({
    client: deps.client,
    specs: controllersWith(deps),
    clock: bench.clock,
    log: createSilentLogger(),
    limitMs: limit === undefined ? 60_000 : 5000,
    signal: deps.signal,
  });
  let over = false;
  void running.catch(() => undefined).finally(() => (over = true));
  while (!over) {
    for (const path of bench.left().filter((one) => one.startsWith(`${OWN}/pods/`))) {
      const set = path.slice(`${OWN}/pods/`.length).replace(/-\d+$/, '');
      if (bench.object(`/apis/apps/v1/namespaces/tailcast/statefulsets/${set}`) === undefined)
        bench.api.remove(path);
    }
    await bench.clock.advance(1000);
    await new Promise((done) => setTimeout(done, 5));
  }
  await running;
}

function expectNothing(): void {
  expect([bench.left(), bench.names()]).toEqual([[], []]);
  expect(bench.control.devices.size).toBe(0);
  const resources = [...bench.api.objects.entries()].filter(([path]) => !path.includes('/events/'));
  expect(resources.map(([path]) => path).toSorted()).toEqual(
    [
      ...Object.keys(RESOURCES),
      '/api/v1/namespaces/prod/services/db',
      '/api/v1/namespaces/prod/services/web',
    ].toSorted(),
  );
  for (const [path, { metadata }] of resources) expect(metadata.finalizers ?? [], path).toEqual([]);
}

describe('an operator that goes for good', () => {
  it('leaves the resources, and nothing of its own in cluster or tailnet', async () => {
    await everything();
    expect(bench.control.devices.size).toBe(5);
    await goes();
    expectNothing();
  });

  it('says what it could not take back', async () => {
    await everything();
    bench.api.interfere = ({ method, path }) =>
      method === 'DELETE' && path.endsWith('/statefulsets/out')
        ? { status: 403, body: { kind: 'Status', reason: 'Forbidden', message: 'not allowed', code: 403 } }
        : undefined;
    await expect(goes()).rejects.toMatchObject({
      code: 'CLEANUP_INCOMPLETE',
      message: expect.stringMatching(/EgressNodes\/out \(.*not allowed/) as unknown,
    });
    bench.api.interfere = undefined;
    await goes();
    expectNothing();
  });

  it('goes on where it was killed, whatever it had done', { timeout: 240_000 }, async () => {
    for (let life = 0; ; life += 5) {
      await bench.close();
      bench = await createBench();
      await everything();
      const killed = await goes(life).then(
        () => false,
        (error: unknown) => error instanceof Killed || String(error).includes('killed'),
      );
      await goes();
      expectNothing();
      if (!killed) return expect(life).toBeGreaterThan(20);
    }
  });
});
