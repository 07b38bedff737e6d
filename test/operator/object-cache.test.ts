import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { systemClock } from '../../src/operator/clock.ts';
import { connectCluster, type ClusterConnection } from '../../src/operator/cluster-connection.ts';
import { createController } from '../../src/operator/controller.ts';
import { ingressGroupController } from '../../src/operator/controllers.ts';
import { INGRESSES, PROXY_GROUPS, SERVICES, SERVICES_BY_GROUP } from '../../src/operator/indexes.ts';
import { createKubeClient } from '../../src/operator/kube-client.ts';
import { parseObject, type KubeObject } from '../../src/operator/kube-object.ts';
import { createWatchedObjects, viewOf, type WatchedObjects } from '../../src/operator/object-cache.ts';
import { createOperatorMetrics } from '../../src/operator/operator-metrics.ts';
import { startApiServerDouble, type ApiServerDouble } from './api-server-double.ts';
import { until } from '../support/until.ts';
import { OPTIONS } from './recorder/recorders.ts';

const SERVICE = '/api/v1/namespaces/prod/services/web';
const FINALIZER = 'tailscale.com/service-pg-finalizer';

let api: ApiServerDouble;
let connection: ClusterConnection;
let watches: WatchedObjects;
let stop: AbortController;
let shared: Omit<Parameters<typeof createWatchedObjects>[0], 'client'>;

beforeEach(async () => {
  api = await startApiServerDouble();
  connection = connectCluster({ kubeconfig: api.kubeconfig, context: undefined }, new Map());
  stop = new AbortController();
  const { signal } = stop;
  shared = { clock: systemClock, random: () => 0, log: createSilentLogger(), signal };
  watches = createWatchedObjects({ client: createKubeClient(connection, signal), ...shared });
});
afterEach(async () => {
  connection.close();
  await api.close();
});

function putService(group: string | undefined, metadata: object = {}): void {
  const annotations = group === undefined ? {} : { 'tailscale.com/proxy-group': group };
  const own = { name: 'web', namespace: 'prod', annotations, ...metadata };
  api.put(SERVICE, { apiVersion: 'v1', kind: 'Service', metadata: own, spec: {} });
}
function putGroup(name: string): void {
  const metadata = { name, uid: `uid-${name}` };
  api.put(`/apis/tailscale.com/v1alpha1/proxygroups/${name}`, {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'ProxyGroup',
    metadata,
    spec: { type: 'ingress' },
  });
}
const lists = (): readonly string[] =>
  api.requests.filter(({ query }) => !query.has('watch')).map(({ path }) => path);
/** Runs the cache until the action has finished. */
async function running(run: () => Promise<void>, action: () => Promise<void>): Promise<void> {
  const ended = run();
  await action();
  stop.abort();
  await ended;
}

describe('the cache', () => {
  it('waits for the first list, follows changes in its indexes, and sends one list', async () => {
    putService('a');
    watches.watch(SERVICES, () => {});
    await running(
      () => watches.run(),
      async () => {
        const cached = await watches.read([SERVICES]);
        const groups = (): readonly number[] =>
          ['a', 'b'].map((group) => cached.by(SERVICES_BY_GROUP, group).length);
        expect(groups()).toEqual([1, 0]);
        await until(() => api.watches === 1);
        putService('b');
        await until(() => groups()[1] === 1);
        expect(groups()).toEqual([0, 1]);
        api.remove(SERVICE);
        await until(() => cached.all(SERVICES).length === 0);
        expect(groups()).toEqual([0, 0]);
        expect(lists()).toHaveLength(1);
      },
    );
  });

  it('is empty for a kind that the cluster does not know', async () => {
    api.interfere = ({ path }) => (path.endsWith('/ingresses') ? { status: 404, body: {} } : undefined);
    watches.watch(INGRESSES, () => {});
    await running(
      () => watches.run(),
      async () => expect((await watches.read([INGRESSES])).all(INGRESSES)).toEqual([]),
    );
  });

  it('lists what it does not watch', async () => {
    putGroup('in');
    putService('a');
    watches.watch(SERVICES, () => {});
    await running(
      () => watches.run(),
      async () => {
        const cached = await watches.read([SERVICES, PROXY_GROUPS]);
        expect(cached.all(PROXY_GROUPS).map(({ metadata }) => metadata.name)).toEqual(['in']);
        expect(cached.by(SERVICES_BY_GROUP, 'a')).toHaveLength(1);
      },
    );
  });
});

describe('the controller of ingress groups', () => {
  it('reconciles the group that a Service names, the group that it named before, and releases the rest', async () => {
    const seen: string[] = [];
    const reconciler = {
      reconcile: (name: string) => {
        seen.push(name);
        return Promise.resolve(undefined);
      },
    };
    const controller = createController({
      ...shared,
      watches,
      specs: new Map([['IngressGroup', ingressGroupController(reconciler, OPTIONS)]]),
      workers: 1,
      resyncMs: 1e6,
      metrics: createOperatorMetrics(),
    });
    const next = async (expected: readonly string[]): Promise<void> => {
      await until(() => expected.every((name) => seen.includes(name)));
      expect([...new Set(seen)].toSorted()).toEqual(expected);
      seen.length = 0;
    };
    for (const name of ['a', 'b', 'c']) putGroup(name);
    await running(
      () => controller.run(),
      async () => {
        await next(['a', 'b', 'c']);
        await until(() => api.watches >= 12);
        putService('a', { finalizers: [FINALIZER] });
        await next(['a']);
        putService('b', { finalizers: [FINALIZER] });
        await next(['a', 'b']);
        putService(undefined, { finalizers: [FINALIZER] });
        await next(['', 'b']);
      },
    );
  });

  const object = (kind: string, name: string, metadata: object): KubeObject =>
    parseObject({ apiVersion: 'v1', kind, metadata: { name, ...metadata } });
  const sliceWatch = (hasTailnetServices: boolean) =>
    ingressGroupController(
      { reconcile: () => Promise.resolve(undefined) },
      { ...OPTIONS, hasTailnetServices },
    ).others.find(({ kind }) => kind.kind === 'EndpointSlice');

  it('watches endpoints only if there are Tailscale Services', () => {
    const web = object('Service', 'web', {
      namespace: 'prod',
      annotations: { 'tailscale.com/proxy-group': 'in' },
    });
    const cached = viewOf([[SERVICES, [web, object('Service', 'plain', { namespace: 'prod' })]]]);
    const slice = (namespace: string, name: string): KubeObject =>
      object('EndpointSlice', `${name}-x`, { namespace, labels: { 'kubernetes.io/service-name': name } });
    const names = (one: KubeObject): readonly string[] | undefined => sliceWatch(true)?.names(one, cached);
    expect(names(slice('prod', 'web'))).toEqual(['in']);
    expect(names(slice('prod', 'plain'))).toEqual([]);
    expect(names(slice('test', 'web'))).toEqual([]);
    expect(sliceWatch(false)).toBeUndefined();
  });

  it.each([
    [undefined, false],
    [[], false],
    [[{ conditions: { ready: false } }], false],
    [[{ conditions: { ready: false } }, {}], true],
    [[{ conditions: { ready: true } }], true],
  ])('keeps of endpoints only whether one is ready: %j', (endpoints, ready) => {
    const slice = parseObject({ ...object('EndpointSlice', 'x', { labels: { a: 'b' } }), endpoints });
    expect(sliceWatch(true)?.keep?.(slice)).toEqual({
      ...object('EndpointSlice', 'x', { labels: { a: 'b' } }),
      ready,
    });
  });
});
