import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import { createEgressNodesReconciler } from '../../src/operator/egress-group/nodes.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { createIngressReconciler } from '../../src/operator/ingress/reconcile.ts';
import { isLabelValue, labelValue, parseObject } from '../../src/operator/kube-object.ts';
import type { Reconciler } from '../../src/operator/workload/reconciler.ts';
import { dnsLabel } from '../../src/operator/workload/workload.ts';
import { createProxyGroupReconciler } from '../../src/operator/proxy-group/reconcile.ts';
import { createRecorderReconciler } from '../../src/operator/recorder/reconcile.ts';
import { viewOf } from '../../src/operator/object-cache.ts';
import { ingressController } from '../../src/operator/controllers.ts';
import { createBench, OWN, SETS, TAILSCALE, type Bench } from './bench.ts';

const RECORDER = 'audit-recorder-of-the-payments-platform-eu-central-1b';
const GROUP = 'egress-nodes-of-the-payments-platform-in-eu-central-1';
const INGRESS = 'web-front-end-of-the-payments-platform-for-internal-users-in-eu-central';
const API = 'tailscale.com/v1alpha1';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

function put(plural: string, kind: string, name: string, spec: object): void {
  const path = `${TAILSCALE}/${plural}/${name}`;
  bench.api.put(path, { apiVersion: API, kind, metadata: { name, uid: `uid-${name}` }, spec });
}

const conditions = (path: string): readonly { type: string; status: string; message: string }[] =>
  (bench.object(path)?.['status'] as { conditions?: [] } | undefined)?.conditions ?? [];

function groupReconcilers(): Readonly<Record<string, Reconciler>> {
  const deps = bench.deps();
  const choices = { servesUnclassed: false, defaultClass: '', clusterDomain: 'cluster.local' };
  return {
    'kube-apiserver': createProxyGroupReconciler(deps, { served: ['egress', 'ingress'] }),
    egress: createEgressNodesReconciler(deps, choices),
    ingress: createIngressGroupReconciler(deps, {
      ...choices,
      services: true,
      ingresses: true,
      networks: [],
    }),
  };
}

describe('a name of more than 52 characters', () => {
  it('of a Recorder is refused: its pods could not have the label with the revision', async () => {
    put('recorders', 'Recorder', RECORDER, { enableUI: true });
    await createRecorderReconciler(bench.deps()).reconcile(RECORDER, bench.signal);
    expect(conditions(`${TAILSCALE}/recorders/${RECORDER}`)).toMatchObject([
      { type: 'RecorderReady', status: 'False', message: expect.stringMatching(/53 characters.* 52 /) },
    ]);
    expect(bench.events().join()).toContain('52');
    expect(bench.left()).toEqual([]);
  });

  it.each(['kube-apiserver', 'egress', 'ingress'])('of a ProxyGroup of type %s is refused', async (type) => {
    put('proxygroups', 'ProxyGroup', GROUP, { type, kubeAPIServer: { mode: 'noauth' } });
    await groupReconcilers()[type]!.reconcile(GROUP, bench.signal);
    const ready = conditions(`${TAILSCALE}/proxygroups/${GROUP}`);
    expect(ready).toContainEqual(
      expect.objectContaining({ status: 'False', message: expect.stringMatching(/53 characters.* 52 /) }),
    );
    expect(bench.object(`${SETS}/${GROUP}`)).toBeUndefined();
  });

  it('of 52 characters is good for a Recorder', async () => {
    const name = RECORDER.slice(0, 52);
    put('recorders', 'Recorder', name, { enableUI: true });
    await createRecorderReconciler(bench.deps()).reconcile(name, bench.signal);
    expect(bench.object(`${SETS}/${name}`)).toBeDefined();
  });
});

describe('a name of more than 63 characters', () => {
  it('of an Ingress ends with a hash in labels, by which its objects are found again', async () => {
    const path = `/apis/networking.k8s.io/v1/namespaces/prod/ingresses/${INGRESS}`;
    const ingress = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'Ingress',
      metadata: { name: INGRESS, namespace: 'prod', uid: 'uid-ingress' },
      spec: {
        ingressClassName: 'tailscale',
        tls: [{ hosts: ['pay'] }],
        defaultBackend: { service: { name: 'web', port: { number: 80 } } },
      },
    };
    bench.api.put(path, ingress);
    const reconciler = createIngressReconciler(bench.deps(), { defaultClass: '' });
    await reconciler.reconcile(`prod/${INGRESS}`, bench.signal);
    const made = bench.left().map((one) => parseObject(bench.object(one)));
    expect(made.length).toBeGreaterThan(5);
    for (const { metadata } of made) {
      for (const value of Object.values(metadata.labels ?? {})) expect(isLabelValue(value), value).toBe(true);
    }
    const set = made.find(({ kind }) => kind === 'StatefulSet')!;
    const { others, resources } = ingressController(reconciler, { namespace: 'tailcast', defaultClass: '' });
    const watched = others.find(({ kind }) => kind.kind === 'StatefulSet')!;
    expect(watched.names(set, viewOf([[resources, [parseObject(ingress)]]]))).toEqual([`prod/${INGRESS}`]);
    const count = bench.left().length;
    await reconciler.reconcile(`prod/${INGRESS}`, bench.signal);
    expect(bench.left().length).toBe(count);
  });

  it('is the only reason to read all parents when an object of one of them changes', () => {
    const reconciler: Reconciler = { reconcile: () => Promise.resolve(undefined) };
    const { others } = ingressController(reconciler, { namespace: 'tailcast', defaultClass: '' });
    const watched = others.find(({ kind }) => kind.kind === 'Secret')!;
    const labels = { 'tailscale.com/parent-resource': 'shop', 'tailscale.com/parent-resource-ns': 'prod' };
    const secret = parseObject({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'shop-0', labels } });
    const all = vi.fn(() => []);
    expect(watched.names(secret, { all, by: () => [] })).toEqual(['prod/shop']);
    expect(all).not.toHaveBeenCalled();
  });

  it('of a Connector is good', async () => {
    put('connectors', 'Connector', INGRESS, { exitNode: true });
    await createConnectorReconciler(bench.deps()).reconcile(INGRESS, bench.signal);
    const sets = bench.left().filter((path) => path.startsWith(SETS));
    expect(sets).toHaveLength(1);
    for (const value of Object.values(bench.object(sets[0]!)?.metadata.labels ?? {}))
      expect(isLabelValue(value), value).toBe(true);
  });

  it('is cut so that names which begin alike stay different', () => {
    const other = `${INGRESS}-2`;
    expect(labelValue(INGRESS)).not.toBe(labelValue(other));
    expect(dnsLabel(INGRESS)).not.toBe(dnsLabel(other));
    expect(labelValue(`${'a'.repeat(53)}.${'b'.repeat(40)}`)).toMatch(/^a{53}-[0-9a-f]{8}$/);
    expect(labelValue('a'.repeat(63))).toBe('a'.repeat(63));
  });

  it('of a prefix and its ordinal is cut for the names of the nodes', async () => {
    const prefix = 'a'.repeat(62);
    put('proxygroups', 'ProxyGroup', 'out', { type: 'egress', hostnamePrefix: prefix });
    await groupReconcilers()['egress']!.reconcile('out', bench.signal);
    const hostnames = [0, 1].map(
      (ordinal) =>
        (JSON.parse(bench.data(`${OWN}/secrets/out-${ordinal}`, 'cap-107.hujson')!) as { Hostname: string })
          .Hostname,
    );
    expect(new Set(hostnames).size).toBe(2);
    for (const hostname of hostnames) expect(hostname.length).toBeLessThanOrEqual(63);
  });
});

describe('a Recorder without pods', () => {
  it('is not ready until each of its pods is', async () => {
    put('recorders', 'Recorder', 'audit', { enableUI: true });
    const reconciler = createRecorderReconciler(bench.deps());
    const path = `${TAILSCALE}/recorders/audit`;
    await reconciler.reconcile('audit', bench.signal);
    expect(conditions(path)).toMatchObject([
      { status: 'False', reason: 'RecorderCreating', message: '0/1 pods are ready' },
    ]);
    bench.startPod('audit-0');
    await reconciler.reconcile('audit', bench.signal);
    expect(conditions(path)).toMatchObject([{ status: 'True', reason: 'RecorderCreated' }]);
  });
});
