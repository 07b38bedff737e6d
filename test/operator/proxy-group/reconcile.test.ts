import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import type { OperatorMetrics } from '../../../src/operator/operator-metrics.ts';
import { createProxyGroupReconciler } from '../../../src/operator/proxy-group/reconcile.ts';
import type { ApiServerDouble, StoredObject } from '../api-server-double.ts';
import { createBench, settle, type Bench } from '../bench.ts';
import type { FakeClock } from '../fake-clock.ts';
import type { ControlDouble } from '../recorder/control-double.ts';
import { proxyGroupObject } from './proxy-groups.ts';
import { OPTIONS } from '../recorder/recorders.ts';

const GROUP = '/apis/tailscale.com/v1alpha1/proxygroups/prod';
const CORE = '/api/v1/namespaces/tailcast';
const SET = '/apis/apps/v1/namespaces/tailcast/statefulsets/prod';
const ACCOUNT = `${CORE}/serviceaccounts/kube-apiserver-auth-proxy`;
const ROLE = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles/prod';
const BINDING = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/rolebindings/prod';
const FINALIZER = 'tailscale.com/kube-apiserver-finalizer';

let bench: Bench;
let api: ApiServerDouble;
let control: ControlDouble;
let metrics: OperatorMetrics;
let reconciler: Reconciler;
let clock: FakeClock;
let start: (leaving: boolean, services?: boolean) => void;

beforeEach(async () => {
  bench = await createBench();
  ({ api, clock, control } = bench);
  const deps = bench.deps();
  ({ metrics } = deps);
  start = (leaving, services = false) => {
    const options = { ...OPTIONS, reconciled: { ...OPTIONS.reconciled, services, ingresses: false } };
    reconciler = createProxyGroupReconciler({ ...deps, options, leaving });
  };
  start(false);
  api.put(ACCOUNT, {
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { name: 'kube-apiserver-auth-proxy', namespace: 'tailcast' },
  });
});

afterEach(() => bench.close());

const run = (): Promise<number | undefined> => reconciler.reconcile('prod');
const stored = (path: string): StoredObject | undefined => api.objects.get(path);
const put = (spec: object = {}, metadata: object = {}): void =>
  void api.put(GROUP, proxyGroupObject(spec, metadata));
const conditions = () => Object.fromEntries(bench.conditions(GROUP).map((one) => [one.type, one]));
const url = () => (stored(GROUP)?.['status'] as { url?: string } | undefined)?.url;
const secrets = () =>
  [...api.objects.keys()]
    .filter((path) => path.startsWith(`${CORE}/secrets/`))
    .toSorted()
    .map((path) => path.split('/').at(-1));

/** Simulates ready pods whose nodes have joined and serve the Tailscale Service. */
function join(count: number, service = 'svc:prod'): void {
  for (let ordinal = 0; ordinal < count; ordinal += 1) {
    bench.say(`prod-${ordinal}`, {
      device_id: `node-${ordinal}`,
      device_fqdn: `prod-${ordinal}.example.ts.net.`,
      '_current-profile': 'p',
      p: JSON.stringify({ AdvertiseServices: [service] }),
    });
    control.devices.set(`node-${ordinal}`, {
      hostname: `prod-${ordinal}`,
      addresses: [`100.64.0.${ordinal}`],
    });
  }
  api.put(SET, { ...structuredClone(stored(SET)!), status: { readyReplicas: count } });
}

describe('a ProxyGroup of gateways', () => {
  it('becomes gateways under the account that may impersonate, and one name', async () => {
    put();
    await run();
    expect(secrets()).toEqual(['prod-0', 'prod-1', 'prod-auth-0', 'prod-auth-1']);
    expect(stored(GROUP)?.metadata.finalizers).toEqual([FINALIZER]);
    expect(stored(BINDING)).toMatchObject({
      subjects: [{ kind: 'ServiceAccount', name: 'kube-apiserver-auth-proxy', namespace: 'tailcast' }],
    });
    expect(stored(ROLE)).toMatchObject({ rules: [{ resourceNames: ['prod-0', 'prod-1'] }, {}] });
    expect(stored(ACCOUNT)?.metadata.ownerReferences).toBeUndefined();
    expect([...control.known.keys()]).toEqual(['svc:prod']);
    expect(conditions()).toMatchObject({
      KubeAPIServerProxyValid: { status: 'True' },
      KubeAPIServerProxyConfigured: { status: 'False', reason: 'KubeAPIServerProxyNoBackends' },
      ProxyGroupAvailable: { status: 'False' },
      ProxyGroupReady: { status: 'False', reason: 'ProxyGroupCreating' },
    });
    expect(url()).toBeUndefined();
    join(2);
    await run();
    expect(conditions()).toMatchObject({
      KubeAPIServerProxyConfigured: { status: 'True', message: '2/2 proxy backends ready and advertising' },
      ProxyGroupAvailable: { status: 'True' },
      ProxyGroupReady: { status: 'True', reason: 'ProxyGroupReady' },
    });
    expect(url()).toBe('https://prod.example.ts.net');
    expect(metrics.proxyGroups.size).toBe(1);
  });

  it('is not written again when nothing changes', async () => {
    put();
    await run();
    join(2);
    await run();
    const before = stored(GROUP)?.metadata.resourceVersion;
    const [set, addrs] = [stored(SET)?.metadata.generation, control.known.get('svc:prod')?.addrs];
    await run();
    expect(stored(GROUP)?.metadata.resourceVersion).toBe(before);
    expect(stored(SET)?.metadata.generation).toBe(set);
    expect(control.known.get('svc:prod')?.addrs).toEqual(addrs);
  });

  it('moves to another name, and takes the old one away', async () => {
    put();
    await run();
    const { metadata } = stored(GROUP)!;
    api.put(GROUP, { ...proxyGroupObject({ kubeAPIServer: { hostname: 'cluster' } }), metadata });
    await run();
    expect([...control.known.keys()]).toEqual(['svc:cluster']);
    expect(JSON.stringify(stored(SET))).toContain('svc:cluster');
  });

  it('has nodes with names of their own where the control server has no Services', async () => {
    delete control.services;
    put();
    await run();
    join(2);
    await run();
    expect(conditions()['ProxyGroupReady']).toMatchObject({ status: 'True' });
    expect(conditions()['KubeAPIServerProxyConfigured']?.message).toContain(
      'the control server has no Services',
    );
    expect(url()).toBe('https://prod-0.example.ts.net');
    expect(JSON.stringify(stored(SET))).not.toContain('svc:');
  });

  it('leaves a Service alone that is somebody else’s, and starts nothing', async () => {
    control.known.set('svc:prod', {
      name: 'svc:prod',
      tags: [],
      ports: ['tcp:443'],
      comment: '',
      annotations: {},
      addrs: ['100.100.0.9'],
    });
    put();
    await run();
    expect(conditions()).toMatchObject({
      KubeAPIServerProxyValid: { status: 'False', reason: 'KubeAPIServerProxyInvalid' },
      ProxyGroupReady: { status: 'False', reason: 'ProxyGroupInvalid' },
    });
    expect(stored(SET)).toBeUndefined();
    expect(control.known.get('svc:prod')?.annotations).toEqual({});
    const events = [...api.objects.values()].filter(({ kind }) => kind === 'Event');
    expect(events[0]).toMatchObject({
      type: 'Warning',
      reason: 'KubeAPIServerProxyInvalid',
      involvedObject: { kind: 'ProxyGroup', name: 'prod' },
    });
  });

  it('says what is missing when nobody has installed the account', async () => {
    api.remove(ACCOUNT);
    put();
    await run();
    expect(conditions()['KubeAPIServerProxyValid']?.message).toContain('kube-apiserver-auth-proxy');
    expect(stored(SET)).toBeUndefined();
  });

  it('has an account of its own in noauth mode, which goes when the mode changes', async () => {
    put({ kubeAPIServer: { mode: 'noauth' } });
    await run();
    expect(stored(`${CORE}/serviceaccounts/prod`)?.metadata.ownerReferences).toMatchObject([
      { name: 'prod' },
    ]);
    const { metadata } = stored(GROUP)!;
    api.put(GROUP, { ...proxyGroupObject(), metadata });
    await run();
    expect(stored(`${CORE}/serviceaccounts/prod`)).toBeUndefined();
    expect(stored(ACCOUNT)).toBeDefined();
  });

  it('shrinks with its nodes, and leaves nothing when it is deleted', async () => {
    put();
    await run();
    join(2);
    const { metadata } = stored(GROUP)!;
    api.put(GROUP, { ...proxyGroupObject({ replicas: 1 }), metadata });
    await run();
    expect(control.deleted).toEqual(['node-1']);
    expect(secrets()).toEqual(['prod-0', 'prod-auth-0']);
    bench.markDeleted(GROUP);
    await settle(run);
    expect(control.deleted).toEqual(['node-1', 'node-0']);
    expect([...control.known.keys()]).toEqual([]);
    expect(stored(GROUP)?.metadata.finalizers ?? []).toEqual([]);
    expect(metrics.proxyGroups.size).toBe(0);
  });

  it('is told to people when the control server does not answer, and tried again', async () => {
    control.broken = new Error('no answer');
    put();
    await expect(run()).rejects.toThrow('no answer');
    expect(conditions()['ProxyGroupReady']).toMatchObject({
      status: 'False',
      reason: 'ProxyGroupCreationFailed',
    });
    control.broken = undefined;
    await run();
    expect(conditions()['KubeAPIServerProxyValid']).toMatchObject({ status: 'True' });
  });

  it('of type egress is left to the reconciler of such groups', async () => {
    start(false, true);
    put({ type: 'egress' });
    await run();
    expect(stored(GROUP)?.metadata.finalizers).toBeUndefined();
    expect(stored(GROUP)?.['status']).toBeUndefined();
    expect(stored(SET)).toBeUndefined();
  });

  describe('of a type that nobody sees to', () => {
    const events = () => [...api.objects.values()].filter(({ kind }) => kind === 'Event');

    it('says that it is not served and what to do instead, once, and nothing is made', async () => {
      put({ type: 'ingress' });
      const before = new Set(api.objects.keys());
      await run();
      const said = {
        reason: 'ProxyGroupNotServed',
        message:
          'spec.type: ProxyGroups of type ingress are not served by this operator: add services or ingresses to ' +
          '--controllers, and apply deploy/rbac/operator.yaml',
      };
      expect(Object.values(conditions())).toMatchObject([
        { type: 'ProxyGroupReady', status: 'False', observedGeneration: 1, ...said },
      ]);
      expect(events()).toMatchObject([
        { type: 'Warning', involvedObject: { kind: 'ProxyGroup', name: 'prod' }, ...said },
      ]);
      expect(stored(GROUP)?.metadata.finalizers).toBeUndefined();
      expect([...api.objects.entries()].filter(([path]) => !before.has(path))).toMatchObject([
        [expect.stringContaining('/events/'), {}],
      ]);
      expect([control.keys.size, control.known.size, metrics.proxyGroups.size]).toEqual([0, 0, 0]);
      const { resourceVersion } = stored(GROUP)!.metadata;
      // Advances the clock by more than the time in which the operator suppresses repeated events.
      await clock.advance(3_600_000);
      await run();
      expect(stored(GROUP)?.metadata.resourceVersion).toBe(resourceVersion);
      expect(events()).toMatchObject([{ count: 1 }]);
    });

    it('keeps what another operator has said of its devices', async () => {
      const devices = [
        { hostname: 'prod-0', tailnetIPs: ['100.64.0.1'], staticEndpoints: ['192.0.2.1:30001'] },
      ];
      const at = { lastTransitionTime: '2026-01-01T00:00:00Z', observedGeneration: 1 };
      const ready = {
        type: 'ProxyGroupReady',
        status: 'True',
        reason: 'ProxyGroupReady',
        message: '',
        ...at,
      };
      const available = { ...ready, type: 'ProxyGroupAvailable', reason: 'ProxyGroupAvailable' };
      api.put(GROUP, {
        ...proxyGroupObject({ type: 'ingress' }),
        status: { conditions: [ready, available], devices },
      });
      await run();
      expect(stored(GROUP)?.['status']).toMatchObject({ devices });
      expect(conditions()).toMatchObject({
        ProxyGroupReady: { status: 'False', reason: 'ProxyGroupNotServed' },
        ProxyGroupAvailable: available,
      });
    });

    it('is told of egress as well', async () => {
      put({ type: 'egress' });
      await run();
      expect(conditions()).toMatchObject({
        ProxyGroupReady: {
          status: 'False',
          message: expect.stringContaining('add services to --controllers,'),
        },
      });
    });

    it('is told nothing any more when the operator goes for good', async () => {
      put({ type: 'ingress' });
      await run();
      start(true);
      await run();
      expect(conditions()).toEqual({});
    });

    it.each(['deleted', 'left'])('is told nothing when it is being %s', async (what) => {
      const metadata = { finalizers: ['example.com/other'], deletionTimestamp: '2026-02-01T00:00:00Z' };
      put({ type: 'ingress' }, what === 'deleted' ? metadata : {});
      start(what === 'left');
      await run();
      expect(stored(GROUP)?.['status']).toBeUndefined();
      expect(events()).toEqual([]);
    });
  });
});
