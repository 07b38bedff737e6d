import { describe, expect, it } from 'vitest';
import { KINDS } from '../../../src/operator/kube-object.ts';
import { withClass } from '../../../src/operator/workload/class-specs.ts';
import { proxyStatefulSet } from '../../../src/operator/workload/proxy-specs.ts';
import { proxyNodes, type Duty, type Proxy } from '../../../src/operator/workload/workload.ts';
import { createProxyClassReconciler } from '../../../src/operator/proxy-class/reconcile.ts';
import { isReady, parseProxyClass } from '../../../src/operator/proxy-class/resource.ts';
import { problemsOf, warningsOf } from '../../../src/operator/proxy-class/validation.ts';
import { createBench, TAILSCALE } from '../bench.ts';
import { OPTIONS } from '../recorder/recorders.ts';

const INGRESS: Duty = { kind: 'ingress', target: '10.96.0.10' };
const parent = { type: 'svc', namespace: 'prod', name: 'web' } as const;

function proxy(duty: Duty): Proxy {
  const nodes = { name: 'ts-web', uid: 'uid-1', replicas: 1, tags: ['tag:k8s'] };
  return { group: proxyNodes('Service', parent, nodes), duty, hostname: () => 'web' };
}

const proxyClass = (spec: object, generation = 1) =>
  parseProxyClass({
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'ProxyClass',
    metadata: { name: 'small', uid: 'class-uid', generation },
    spec,
  });
const merged = (spec: object, duty: Duty = INGRESS) =>
  withClass(proxyStatefulSet(proxy(duty), OPTIONS), proxyClass(spec), duty);
const pod = (wish: object) => merged({ statefulSet: { pod: wish } }).spec.template;
const plain = proxyStatefulSet(proxy(INGRESS), OPTIONS);

describe('a ProxyClass', () => {
  it('changes nothing when it says nothing', () => {
    expect(merged({})).toEqual(plain);
  });

  const TERM = { topologyKey: 'kubernetes.io/hostname', labelSelector: { matchLabels: { a: 'b' } } };
  it.each<[string, unknown]>([
    ['affinity', { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [TERM] } }],
    ['securityContext', { sysctls: [{ name: 'net.ipv4.ip_forward', value: '1' }] }],
    ['securityContext', {}],
    ['imagePullSecrets', [{ name: 'registry' }]],
    ['nodeName', 'machine-1'],
    ['nodeSelector', { disk: 'none' }],
    ['tolerations', [{ key: 'edge', operator: 'Exists' }]],
    ['topologySpreadConstraints', [{ maxSkew: 1, topologyKey: 'zone', whenUnsatisfiable: 'DoNotSchedule' }]],
    ['priorityClassName', 'high'],
    ['dnsPolicy', 'None'],
    ['dnsConfig', { nameservers: ['192.0.2.53'] }],
  ])('brings %s into the pod', (field, value) => {
    const expected: object = Object.assign({}, plain.spec.template.spec, { [field]: value });
    expect(pod({ [field]: value }).spec).toEqual(expected);
  });

  it('adds labels and annotations, and overwrites none of those the operator goes by', () => {
    const mine = { team: 'edge', app: 'stolen', 'tailscale.com/managed': 'false' };
    const notes = { team: 'edge', 'tailscale.com/operator-last-set-cluster-ip': 'stolen' };
    const both = { labels: mine, annotations: notes };
    const { metadata, spec } = merged({ statefulSet: { ...both, pod: both } });
    expect(metadata.labels).toEqual({ team: 'edge', app: 'stolen', ...plain.metadata.labels });
    expect(metadata.annotations).toMatchObject({ team: 'edge' });
    expect(spec.template.metadata?.labels).toEqual({ team: 'edge', ...plain.spec.template.metadata?.labels });
    expect(spec.template.metadata?.labels).toMatchObject({ app: 'uid-1', 'tailscale.com/managed': 'true' });
    expect(spec.template.metadata?.annotations).toEqual({
      team: 'edge',
      ...plain.spec.template.metadata?.annotations,
    });
    expect(spec.selector).toEqual(plain.spec.selector);
  });

  it.each(['tailscaleContainer', 'tailscaleInitContainer'])('changes the %s alone', (field) => {
    const wish = {
      image: 'example.com/tailscale:v1.102.5',
      imagePullPolicy: 'Always',
      resources: { limits: { memory: '64Mi' } },
      securityContext: { capabilities: { add: ['NET_ADMIN'] } },
    };
    const { containers, initContainers } = pod({ [field]: wish }).spec!;
    const [changed, other] =
      field === 'tailscaleContainer'
        ? [containers[0], initContainers?.[0]]
        : [initContainers?.[0], containers[0]];
    expect(changed).toMatchObject(wish);
    // The user's security context replaces the default completely, so the container is not privileged.
    expect(changed?.securityContext).toEqual(wish.securityContext);
    expect(other?.image).toBe(OPTIONS.tailscaleImage);
    expect(other?.securityContext).toEqual({ privileged: true });
  });

  it('lets the user’s variables win, each once', () => {
    const env = [
      { name: 'TS_USERSPACE', value: 'first' },
      { name: 'TS_USERSPACE', value: 'last' },
      { name: 'MINE', value: 'x' },
    ];
    const all = pod({ tailscaleContainer: { env } }).spec?.containers[0]?.env ?? [];
    expect(all.filter(({ name }) => name === 'TS_USERSPACE')).toEqual([
      { name: 'TS_USERSPACE', value: 'last' },
    ]);
    expect(all).toContainEqual({ name: 'MINE', value: 'x' });
    expect(new Set(all.map(({ name }) => name)).size).toBe(all.length);
  });

  it('turns metrics and the debug server on, and not for egress', () => {
    const spec = {
      metrics: { enable: true },
      statefulSet: { pod: { tailscaleContainer: { debug: { enable: true } } } },
    };
    const [container] = merged(spec).spec.template.spec!.containers;
    expect(container?.ports?.map(({ name, containerPort }) => [name, containerPort])).toEqual([
      ['metrics', 9002],
      ['debug', 9001],
    ]);
    expect(container?.env).toContainEqual({ name: 'TS_ENABLE_METRICS', value: 'true' });
    const egress: Duty = { kind: 'egress-address', target: '100.64.0.1' };
    expect(merged(spec, egress)).toEqual(proxyStatefulSet(proxy(egress), OPTIONS));
  });

  it('names every problem by its field', () => {
    const bad = proxyClass({
      statefulSet: {
        labels: { ok: 'bad value' },
        pod: { annotations: { 'bad key': 'x' }, tailscaleContainer: { image: 'Bad Image!' } },
      },
      metrics: { enable: false, serviceMonitor: { enable: true } },
    });
    expect(problemsOf(bad)).toEqual([
      expect.stringContaining('spec.statefulSet.labels[ok]: Invalid value: "bad value"'),
      expect.stringContaining('spec.statefulSet.pod.annotations: Invalid value: "bad key"'),
      expect.stringContaining('spec.statefulSet.pod.tailscaleContainer.image: Invalid value: "Bad Image!"'),
      expect.stringContaining('spec.metrics.serviceMonitor.enable'),
    ]);
    expect(problemsOf(proxyClass({ statefulSet: { labels: { a: '', b: 'x_y.z' } } }))).toEqual([]);
    const env = [{ name: 'TS_EXTRA', value: 'x' }];
    expect(warningsOf(proxyClass({ statefulSet: { pod: { tailscaleContainer: { env } } } }))).toEqual([
      expect.stringContaining('TS_EXTRA'),
    ]);
  });

  it('says whether it may be followed: for what it says now', async () => {
    const bench = await createBench();
    try {
      const path = `${TAILSCALE}/proxyclasses/small`;
      const reconciler = createProxyClassReconciler(bench.deps());
      const look = async (spec: object) => {
        bench.put(KINDS.proxyClass, { name: 'small' }, spec);
        const stale = isReady(parseProxyClass(bench.object(path)));
        await reconciler.reconcile('small');
        return { stale, ready: isReady(parseProxyClass(bench.object(path))) };
      };
      expect(await look({})).toEqual({ stale: false, ready: true });
      expect(await look({ tailscale: { acceptRoutes: true } })).toEqual({ stale: false, ready: true });
      expect(await look({ statefulSet: { labels: { a: '!' } } })).toEqual({ stale: false, ready: false });
      expect(bench.events()[0]).toMatch(
        /^ProxyClassInvalid: ProxyClass is not valid: spec.statefulSet.labels/,
      );
      const before = bench.writes;
      await reconciler.reconcile('small');
      expect(bench.writes).toBe(before);
    } finally {
      await bench.close();
    }
  });
});
