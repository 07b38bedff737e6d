import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import { createEgressNodesReconciler } from '../../src/operator/egress-group/nodes.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { createIngressReconciler } from '../../src/operator/ingress/reconcile.ts';
import { isLabelValue, KINDS, labelValue, parseObject } from '../../src/operator/kube-object.ts';
import type { Reconciler } from '../../src/operator/workload/reconciler.ts';
import { dnsLabel } from '../../src/operator/workload/workload.ts';
import { createProxyGroupReconciler } from '../../src/operator/proxy-group/reconcile.ts';
import { createRecorderReconciler } from '../../src/operator/recorder/reconcile.ts';
import { viewOf } from '../../src/operator/object-cache.ts';
import { ingressController } from '../../src/operator/controllers.ts';
import { createBench, SETS, TAILSCALE, type Bench } from './bench.ts';
import { OPTIONS } from './recorder/recorders.ts';

const RECORDER = 'audit-recorder-of-the-payments-platform-eu-central-1b';
const GROUP = 'egress-nodes-of-the-payments-platform-in-eu-central-1';
const INGRESS = 'web-front-end-of-the-payments-platform-for-internal-users-in-eu-central';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

function groupReconcilers(): Readonly<Record<string, Reconciler>> {
  const deps = bench.deps();
  return {
    'kube-apiserver': createProxyGroupReconciler(deps),
    egress: createEgressNodesReconciler(deps),
    ingress: createIngressGroupReconciler(deps),
  };
}

describe('a name of more than 52 characters', () => {
  it('of a Recorder is refused: its pods could not have the label with the revision', async () => {
    bench.put(KINDS.recorder, { name: RECORDER }, { enableUI: true });
    await createRecorderReconciler(bench.deps()).reconcile(RECORDER);
    expect(bench.conditions(`${TAILSCALE}/recorders/${RECORDER}`)).toMatchObject([
      { type: 'RecorderReady', status: 'False', message: expect.stringMatching(/53 characters.* 52 /) },
    ]);
    expect(bench.events().join()).toContain('52');
    expect(bench.left()).toEqual([]);
  });

  it.each(['kube-apiserver', 'egress', 'ingress'])('of a ProxyGroup of type %s is refused', async (type) => {
    bench.put(KINDS.proxyGroup, { name: GROUP }, { type, kubeAPIServer: { mode: 'noauth' } });
    await groupReconcilers()[type]!.reconcile(GROUP);
    const ready = bench.conditions(`${TAILSCALE}/proxygroups/${GROUP}`);
    expect(ready).toContainEqual(
      expect.objectContaining({ status: 'False', message: expect.stringMatching(/53 characters.* 52 /) }),
    );
    expect(bench.object(`${SETS}/${GROUP}`)).toBeUndefined();
  });

  it('of 52 characters is good for a Recorder', async () => {
    const name = RECORDER.slice(0, 52);
    bench.put(KINDS.recorder, { name: name }, { enableUI: true });
    await createRecorderReconciler(bench.deps()).reconcile(name);
    expect(bench.object(`${SETS}/${name}`)).toBeDefined();
  });
});

describe('a name of more than 63 characters', () => {
  it('of an Ingress ends with a hash in labels, by which its objects are found again', async () => {
    const path = bench.put(
      KINDS.ingress,
      { name: INGRESS, namespace: 'prod' },
      {
        ingressClassName: 'tailscale',
        tls: [{ hosts: ['pay'] }],
        defaultBackend: { service: { name: 'web', port: { number: 80 } } },
      },
    );
    const ingress = parseObject(bench.object(path));
    const reconciler = createIngressReconciler(bench.deps());
    await reconciler.reconcile(`prod/${INGRESS}`);
    const made = bench.left().map((one) => parseObject(bench.object(one)));
    expect(made.length).toBeGreaterThan(5);
    for (const { metadata } of made) {
      for (const value of Object.values(metadata.labels ?? {})) expect(isLabelValue(value), value).toBe(true);
    }
    const set = made.find(({ kind }) => kind === 'StatefulSet')!;
    const { others, resources } = ingressController(reconciler, OPTIONS);
    const watched = others.find(({ kind }) => kind.kind === 'StatefulSet')!;
    expect(watched.names(set, viewOf([[resources, [ingress]]]))).toEqual([`prod/${INGRESS}`]);
    const count = bench.left().length;
    await reconciler.reconcile(`prod/${INGRESS}`);
    expect(bench.left().length).toBe(count);
  });

  it('is the only reason to read all parents when an object of one of them changes', () => {
    const reconciler: Reconciler = { reconcile: () => Promise.resolve(undefined) };
    const { others } = ingressController(reconciler, OPTIONS);
    const watched = others.find(({ kind }) => kind.kind === 'Secret')!;
    const labels = { 'tailscale.com/parent-resource': 'shop', 'tailscale.com/parent-resource-ns': 'prod' };
    const secret = parseObject({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'shop-0', labels } });
    const all = vi.fn(() => []);
    expect(watched.names(secret, { all, by: () => [] })).toEqual(['prod/shop']);
    expect(all).not.toHaveBeenCalled();
  });

  it('of a Connector is good', async () => {
    bench.put(KINDS.connector, { name: INGRESS }, { exitNode: true });
    await createConnectorReconciler(bench.deps()).reconcile(INGRESS);
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
    bench.put(KINDS.proxyGroup, { name: 'out' }, { type: 'egress', hostnamePrefix: prefix });
    await groupReconcilers()['egress']!.reconcile('out');
    const hostnames = [0, 1].map(
      (ordinal) => (bench.file(`out-${ordinal}`, 'cap-107.hujson') as { Hostname: string }).Hostname,
    );
    expect(new Set(hostnames).size).toBe(2);
    for (const hostname of hostnames) expect(hostname.length).toBeLessThanOrEqual(63);
  });
});

describe('a Recorder without pods', () => {
  it('is not ready until each of its pods is', async () => {
    bench.put(KINDS.recorder, { name: 'audit' }, { enableUI: true });
    const reconciler = createRecorderReconciler(bench.deps());
    const path = `${TAILSCALE}/recorders/audit`;
    await reconciler.reconcile('audit');
    expect(bench.conditions(path)).toMatchObject([
      { status: 'False', reason: 'RecorderCreating', message: '0/1 pods are ready' },
    ]);
    bench.startPod('audit-0');
    await reconciler.reconcile('audit');
    expect(bench.conditions(path)).toMatchObject([{ status: 'True', reason: 'RecorderCreated' }]);
  });
});
