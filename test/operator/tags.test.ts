import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import { createEgressNodesReconciler } from '../../src/operator/egress-group/nodes.ts';
import { createEgressReconciler } from '../../src/operator/egress-group/reconcile.ts';
import { createGatewayReconciler } from '../../src/operator/gateway/reconcile.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { createIngressReconciler } from '../../src/operator/ingress/reconcile.ts';
import { KINDS, pathOf } from '../../src/operator/kube-object.ts';
import type { AllowedTag } from '../../src/operator/workload/workload.ts';
import { createTagPolicy } from '../../src/operator/workload/tags.ts';
import type { ReconcilerDeps } from '../../src/operator/workload/reconciler.ts';
import { createServiceReconciler } from '../../src/operator/service/reconcile.ts';
import { createBench, type Bench } from './bench.ts';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
  bench.put(KINDS.gatewayClass, { name: 'tailscale' }, { controllerName: 'tailcast.dev/gateway' });
});
afterEach(() => bench.close());

function depsWith(
  allowedTags: readonly AllowedTag[] = [],
  recorderUploaders: readonly string[] = [],
): ReconcilerDeps {
  const deps = bench.deps();
  const options = { ...deps.options, allowedTags, recorderUploaders };
  return { ...deps, options, tags: createTagPolicy({ client: deps.client, options, clock: deps.clock }) };
}

const SERVICE = { type: 'ClusterIP', clusterIP: '10.96.0.10', ports: [{ port: 80 }] };
const BACKEND = { service: { name: 'web', port: { number: 80 } } };

/** Kinds that users of a namespace can create, each with a function that reconciles an object with these tags. */
const NAMESPACED: readonly [string, (deps: ReconcilerDeps, tags: string) => Promise<unknown>][] = [
  [
    'Service',
    (deps, tags) => {
      const annotations = { 'tailscale.com/expose': 'true', 'tailscale.com/tags': tags };
      bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations }, SERVICE);
      return createServiceReconciler(deps).reconcile('dev/a');
    },
  ],
  [
    'egress Service',
    (deps, tags) => {
      const annotations = { 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net', 'tailscale.com/tags': tags };
      bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations }, { type: 'ExternalName' });
      return createServiceReconciler(deps).reconcile('dev/a');
    },
  ],
  [
    'Ingress',
    (deps, tags) => {
      const annotations = { 'tailscale.com/tags': tags };
      bench.put(
        KINDS.ingress,
        { name: 'a', namespace: 'dev', annotations },
        { ingressClassName: 'tailscale', defaultBackend: BACKEND },
      );
      return createIngressReconciler(deps).reconcile('dev/a');
    },
  ],
  [
    'Gateway',
    (deps, tags) => {
      const annotations = { 'tailscale.com/tags': tags };
      bench.put(
        KINDS.gateway,
        { name: 'a', namespace: 'dev', annotations },
        { gatewayClassName: 'tailscale', listeners: [{ name: 'web', port: 80, protocol: 'HTTP' }] },
      );
      return createGatewayReconciler(deps).reconcile('dev/a');
    },
  ],
];

const keysWith = (tag: string): number =>
  [...bench.control.keys.values()].filter(({ tags }) => tags.includes(tag)).length;
const everything = (): string => JSON.stringify([...bench.api.objects.values()]);

describe('tags of a resource in a namespace', () => {
  it.each(NAMESPACED)('are refused to a %s unless somebody allows them', async (kind, pass) => {
    await pass(depsWith(), 'tag:db');
    expect(bench.control.keys.size).toBe(0);
    expect(bench.left()).toEqual([]);
    expect(bench.events().join()).toContain(
      'TagsNotAllowed: tag:db is not allowed in namespace dev: choose another tag, or add dev=tag:db to --allowed-tags',
    );
    // An Ingress has no conditions.
    const { status } = bench.object(
      pathOf(kind === 'Ingress' ? KINDS.ingress : kind === 'Gateway' ? KINDS.gateway : KINDS.service, {
        namespace: 'dev',
        name: 'a',
      }),
    )!;
    if (kind !== 'Ingress') expect(JSON.stringify(status)).toContain('tag:db is not allowed');
  });

  it.each(NAMESPACED)('are given to a %s where they are allowed', async (_kind, pass) => {
    await pass(depsWith([{ namespace: 'dev', tag: 'tag:db' }]), 'tag:db');
    expect(keysWith('tag:db')).toBe(1);
  });

  it.each<[string, AllowedTag[], number]>([
    ['of every namespace', [{ namespace: undefined, tag: 'tag:db' }], 1],
    ['of another namespace', [{ namespace: 'prod', tag: 'tag:db' }], 0],
  ])('that are allowed to authors %s', async (_whose, allowed, keys) => {
    const [[, service]] = NAMESPACED as [(typeof NAMESPACED)[0]];
    await service(depsWith(allowed), 'tag:db');
    expect(keysWith('tag:db')).toBe(keys);
  });

  it('are the default ones without any setting', async () => {
    const [[, service]] = NAMESPACED as [(typeof NAMESPACED)[0]];
    await service(depsWith(), 'tag:k8s');
    expect(keysWith('tag:k8s')).toBe(1);
  });
});

describe('tags of gateways and recorders', () => {
  const ALLOWED = [{ namespace: undefined, tag: 'tag:trusted' }];
  const TRUSTED: readonly [string, () => readonly string[], string][] = [
    [
      'gateways',
      () => {
        bench.put(KINDS.proxyGroup, { name: 'prod' }, { type: 'kube-apiserver', tags: ['tag:trusted'] });
        return [];
      },
      'tag:trusted is a tag of ProxyGroup prod',
    ],
    [
      'a Recorder',
      () => {
        bench.put(KINDS.recorder, { name: 'audit' }, { tags: ['tag:trusted'] });
        return [];
      },
      'tag:trusted is a tag of Recorder audit',
    ],
    [
      'nodes that may upload',
      () => ['tag:trusted', 'nodeid'],
      'tag:trusted is a tag of the setting recorderUploaders',
    ],
  ];
  const CASES = TRUSTED.flatMap(([whose, given, message]) =>
    NAMESPACED.map(([kind, pass]) => [whose, kind, given, pass, message] as const),
  );

  it.each(CASES)('of %s are never given to a %s', async (_whose, _kind, given, pass, message) => {
    await pass(depsWith(ALLOWED, given()), 'tag:trusted');
    expect(bench.control.keys.size).toBe(0);
    expect(bench.events().join()).toContain(message);
  });

  it.each(TRUSTED)('of %s are never given to a Connector', async (_whose, given, message) => {
    const deps = depsWith(ALLOWED, given());
    bench.put(KINDS.connector, { name: 'net' }, { exitNode: true, tags: ['tag:trusted'] });
    await createConnectorReconciler(deps).reconcile('net');
    expect(bench.control.keys.size).toBe(0);
    expect(everything()).toContain(message);
    expect(bench.events().join()).toContain('ConnectorTagsNotAllowed');
    bench.put(KINDS.connector, { name: 'net' }, { exitNode: true, tags: ['tag:router'] });
    await createConnectorReconciler(deps).reconcile('net');
    expect(keysWith('tag:router')).toBe(1);
  });

  it.each(['egress', 'ingress'])('are never given to a ProxyGroup of type %s', async (type) => {
    bench.put(KINDS.recorder, { name: 'audit' }, { tags: ['tag:trusted'] });
    bench.put(KINDS.proxyGroup, { name: 'net' }, { type, tags: ['tag:trusted'] });
    const deps = depsWith();
    const reconciler =
      type === 'egress' ? createEgressNodesReconciler(deps) : createIngressGroupReconciler(deps);
    await reconciler.reconcile('net');
    expect(bench.control.keys.size).toBe(0);
    expect(bench.events().join()).toContain('ProxyGroupTagsNotAllowed');
  });

  it('are not given to the nodes of a Service that names none, where the default is such a tag', async () => {
    bench.put(KINDS.recorder, { name: 'audit' }, { tags: ['tag:k8s'] });
    const annotations = { 'tailscale.com/expose': 'true' };
    bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations }, SERVICE);
    await createServiceReconciler(depsWith()).reconcile('dev/a');
    expect(bench.control.keys.size).toBe(0);
    expect(bench.events().join()).toContain('tag:k8s is a tag of Recorder audit');
  });

  it('are looked up again, and refused while they cannot be', async () => {
    const [[, service]] = NAMESPACED as [(typeof NAMESPACED)[0]];
    bench.api.interfere = ({ path }) =>
      path.endsWith('/recorders') ? { status: 500, body: { message: 'down' } } : undefined;
    await expect(service(depsWith(ALLOWED), 'tag:trusted')).rejects.toThrow('500');
    expect(bench.control.keys.size).toBe(0);
    expect(bench.object(pathOf(KINDS.service, { namespace: 'dev', name: 'a' }))).toMatchObject({
      status: { conditions: [{ status: 'False', reason: 'ProxyFailed' }] },
    });
  });
});

describe('a group of nodes', () => {
  it('gives its Tailscale Services the default tags, not those of its nodes', async () => {
    bench.put(KINDS.proxyGroup, { name: 'in' }, { type: 'ingress', tags: ['tag:edge'] });
    const annotations = { 'tailscale.com/expose': 'true', 'tailscale.com/proxy-group': 'in' };
    bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations }, SERVICE);
    await createIngressGroupReconciler(depsWith()).reconcile('in');
    expect(bench.control.known.get('svc:dev-a')).toMatchObject({ tags: ['tag:k8s'] });
  });

  it('refuses tags that its members may not choose', async () => {
    bench.put(KINDS.proxyGroup, { name: 'in' }, { type: 'ingress' });
    const annotations = {
      'tailscale.com/expose': 'true',
      'tailscale.com/proxy-group': 'in',
      'tailscale.com/tags': 'tag:db',
    };
    bench.put(KINDS.service, { name: 'a', namespace: 'dev', annotations }, SERVICE);
    await createIngressGroupReconciler(depsWith()).reconcile('in');
    expect(bench.control.known.size).toBe(0);
    expect(everything()).toContain('tailscale.com/tags: tag:db is not allowed in namespace dev');
  });

  it('of type egress lends its tags to namespaces that may have them, and to no other', async () => {
    bench.put(KINDS.proxyGroup, { name: 'out' }, { type: 'egress', tags: ['tag:db-client'] });
    const annotations = {
      'tailscale.com/proxy-group': 'out',
      'tailscale.com/tailnet-fqdn': 'db.lab.ts.net',
    };
    for (const namespace of ['dev', 'prod'])
      bench.put(
        KINDS.service,
        { name: 'db', namespace, annotations },
        { type: 'ExternalName', ports: [{ port: 5432 }] },
      );
    const deps = depsWith([{ namespace: 'prod', tag: 'tag:db-client' }]);
    await createEgressReconciler(deps).reconcile('out');
    const fronts = bench.left().filter((path) => path.includes('/services/'));
    expect(fronts).toHaveLength(1);
    expect(bench.object(fronts[0]!)?.metadata.labels).toMatchObject({
      'tailscale.com/parent-resource-ns': 'prod',
    });
    expect(everything()).toContain(
      'tailscale.com/proxy-group: tag:db-client is not allowed in namespace dev',
    );
  });
});

describe('the setting allowedTags', () => {
  const { parse } = OPERATOR_SETTINGS.allowedTags;

  it('has tags for all namespaces and for single ones', () => {
    expect(parse('tag:web,prod=tag:db')).toEqual([
      { namespace: undefined, tag: 'tag:web' },
      { namespace: 'prod', tag: 'tag:db' },
    ]);
    expect(parse(['tag:web'])).toEqual([{ namespace: undefined, tag: 'tag:web' }]);
  });

  it.each(['web', 'prod=web', '=tag:web', 'Prod=tag:web', 'tag:', 'prod=tag:a_b'])('refuses %s', (text) => {
    expect(() => parse(text)).toThrow('tag:<name> or <namespace>=tag:<name> is expected');
  });
});
