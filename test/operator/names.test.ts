import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TailnetService } from '../../src/operator/auth-keys.ts';
import { createConnectorReconciler } from '../../src/operator/connector/reconcile.ts';
import { createGatewayReconciler } from '../../src/operator/gateway/reconcile.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { createIngressReconciler } from '../../src/operator/ingress/reconcile.ts';
import { KINDS, pathOf, type ResourceKind } from '../../src/operator/kube-object.ts';
import { networkOf } from '../../src/operator/networks.ts';
import { createProxyGroupReconciler } from '../../src/operator/proxy-group/reconcile.ts';
import { createRecorderReconciler } from '../../src/operator/recorder/reconcile.ts';
import { createServiceReconciler } from '../../src/operator/service/reconcile.ts';
import { createBench, settle, type Bench } from './bench.ts';

const OWNERS = 'tailscale.com/owner-references';
const OLD = '2020-01-01T00:00:00Z';

let bench: Bench;
beforeEach(async () => {
  bench = await createBench({ networks: ['10.99.0.0/24'].flatMap((text) => networkOf(text) ?? []) });
  bench.put(KINDS.gatewayClass, { name: 'tailscale' }, { controllerName: 'tailcast.dev/gateway' });
});
afterEach(() => bench.close());

function putService(namespace: string, name: string, annotations: object, more: object = {}): void {
  bench.put(
    KINDS.service,
    { name, namespace, annotations: { 'tailscale.com/expose': 'true', ...annotations }, ...more },
    { type: 'ClusterIP', clusterIP: '10.96.0.10', clusterIPs: ['10.96.0.10'], ports: [{ port: 80 }] },
  );
}
function putIngress(namespace: string, name: string, host: string, more: object = {}): void {
  bench.put(
    KINDS.ingress,
    { name, namespace, ...more },
    {
      ingressClassName: 'tailscale',
      tls: [{ hosts: [host] }],
      defaultBackend: { service: { name: 'web', port: { number: 80 } } },
    },
  );
}
function putGroup(name: string): void {
  bench.put(KINDS.proxyGroup, { name }, { type: 'ingress' });
}
const ofGroup = (group: string): object => ({ 'tailscale.com/proxy-group': group });
const named = (hostname: string): object => ({ 'tailscale.com/hostname': hostname });

async function runGroup(name: string): Promise<number | undefined> {
  return createIngressGroupReconciler(bench.deps()).reconcile(name);
}

/** Returns the conditions and events of a resource. */
function said(kind: ResourceKind, reference: { namespace?: string; name: string }): string {
  const status = bench.object(pathOf(kind, reference))?.['status'];
  return JSON.stringify([status, ...bench.events()]);
}

function withoutServices(): void {
  delete bench.control.services;
  Object.assign(bench.control, { issuesCertificates: false });
}

describe('the name of a Tailscale Service', () => {
  it('is not joined by a Service of another namespace and another group', async () => {
    putGroup('in');
    putGroup('other');
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    const before = bench.control.known.get('svc:prod-web');
    expect(before).toMatchObject({ tags: ['tag:k8s'] });
    putService('dev', 'evil', { ...ofGroup('other'), ...named('prod-web') }, { creationTimestamp: OLD });
    expect(await runGroup('other')).toBeLessThanOrEqual(60_000);
    expect(bench.control.known.get('svc:prod-web')).toEqual(before);
    expect(said(KINDS.service, { namespace: 'dev', name: 'evil' })).toContain(
      'tailscale.com/hostname: the tailnet name prod-web belongs to Service prod/web: choose another name',
    );
    expect(bench.names()).toEqual(expect.arrayContaining(['prod-web: Service prod/web']));
    await runGroup('in');
    expect(bench.control.known.get('svc:prod-web')).toEqual(before);
  });

  it('stays with its owner when an older Service of the same group asks for it', async () => {
    putGroup('in');
    putService('dev', 'old', ofGroup('in'), { creationTimestamp: OLD });
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    const before = bench.control.known.get('svc:prod-web');
    putService('dev', 'old', { ...ofGroup('in'), ...named('PROD-web') }, { creationTimestamp: OLD });
    await runGroup('in');
    expect(bench.control.known.get('svc:prod-web')).toEqual(before);
    expect(said(KINDS.service, { namespace: 'dev', name: 'old' })).toContain('belongs to Service prod/web');
  });

  it('says in the reference’s format which Service of which namespace owns it', async () => {
    putGroup('in');
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    const { uid } = bench.object(pathOf(KINDS.service, { namespace: 'prod', name: 'web' }))!.metadata;
    const group = bench.object(pathOf(KINDS.proxyGroup, { name: 'in' }))!.metadata.uid;
    expect(JSON.parse(bench.control.known.get('svc:prod-web')!.annotations[OWNERS]!)).toEqual({
      ownerRefs: [{ operatorID: `tailcast-${group}`, resource: { kind: 'Service', name: 'prod/web', uid } }],
    });
  });

  it.each<[string, object[] | undefined, string]>([
    [
      'a Service of another cluster',
      [{ operatorID: 'tailcast-g', resource: { kind: 'Service', name: 'prod/web', uid: 'of-there' } }],
      'belongs to Service prod/web (uid of-there, operator tailcast-g)',
    ],
    ['another operator', [{ operatorID: 'node-id' }], 'belongs to the operator node-id'],
    [
      'a ProxyGroup of another cluster',
      [{ operatorID: 'tailcast-operator', resource: { kind: 'ProxyGroup', name: 'prod', uid: 'u' } }],
      'belongs to ProxyGroup prod (uid u, operator tailcast-operator)',
    ],
    ['a person', [], 'belongs to a user without an operator'],
    ['a person who says nothing', undefined, 'belongs to a user without an operator'],
  ])('stays with %s, whose name the condition says', async (_whose, ownerRefs, message) => {
    const foreign: TailnetService = {
      name: 'svc:prod-web',
      tags: ['tag:x'],
      ports: ['tcp:1'],
      comment: '',
      annotations: ownerRefs === undefined ? {} : { [OWNERS]: JSON.stringify({ ownerRefs }) },
      addrs: ['100.100.0.5'],
    };
    bench.control.known.set('svc:prod-web', foreign);
    putGroup('in');
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    expect(bench.control.known.get('svc:prod-web')).toEqual(foreign);
    expect(said(KINDS.service, { namespace: 'prod', name: 'web' })).toContain(message);
    bench.control.known.delete('svc:prod-web');
    await runGroup('in');
    const path = pathOf(KINDS.service, { namespace: 'prod', name: 'web' });
    expect(bench.condition(path, 'TailscaleIngressSvcValid')).toMatchObject({ status: 'True' });
  });

  it('goes over to a Service that was made again under the same name', async () => {
    putGroup('in');
    putService('prod', 'web', ofGroup('in'), { uid: 'first' });
    await runGroup('in');
    // A user removes the Service together with its finalizer, so the operator never sees the deletion.
    const path = pathOf(KINDS.service, { namespace: 'prod', name: 'web' });
    bench.api.remove(path);
    putService('prod', 'web', ofGroup('in'), { uid: 'second' });
    await runGroup('in');
    expect(bench.control.known.get('svc:prod-web')?.annotations[OWNERS]).toContain('"uid":"second"');
    expect(said(KINDS.service, { namespace: 'prod', name: 'web' })).not.toContain('belongs to');
  });

  it('moves with its Service to another group', async () => {
    putGroup('in');
    putGroup('other');
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    putService('prod', 'web', ofGroup('other'));
    for (const group of ['in', 'other', 'in', 'other']) await runGroup(group);
    const { uid } = bench.object(pathOf(KINDS.proxyGroup, { name: 'other' }))!.metadata;
    expect(bench.control.known.get('svc:prod-web')?.annotations[OWNERS]).toContain(`tailcast-${uid}`);
    expect(bench.names()).toContain('prod-web: Service prod/web');
  });

  it('is free when its Service leaves, or has another name', async () => {
    putGroup('in');
    putService('prod', 'web', ofGroup('in'));
    await runGroup('in');
    putService('prod', 'web', { ...ofGroup('in'), ...named('shop') });
    await runGroup('in');
    expect(bench.names().filter((name) => name.includes('Service'))).toEqual(['shop: Service prod/web']);
    putService('prod', 'web', {});
    await runGroup('in');
    expect(bench.names().filter((name) => name.includes('Service'))).toEqual([]);
  });
});

/** Kinds of resources, each with a function that creates a resource with the hostname `shop` and reconciles it. */
const KIND_OF_OWNER: readonly [string, (namespace: string) => Promise<unknown>][] = [
  [
    'Service',
    (namespace) => {
      putService(namespace, 'a', named('shop'));
      return createServiceReconciler(bench.deps()).reconcile(`${namespace}/a`);
    },
  ],
  [
    'Ingress',
    (namespace) => {
      putIngress(namespace, 'a', 'shop');
      return createIngressReconciler(bench.deps()).reconcile(`${namespace}/a`);
    },
  ],
  [
    'Gateway',
    (namespace) => {
      bench.put(
        KINDS.gateway,
        { name: 'a', namespace, annotations: { 'tailscale.com/hostname': 'shop' } },
        { gatewayClassName: 'tailscale', listeners: [{ name: 'web', port: 80, protocol: 'HTTP' }] },
      );
      return createGatewayReconciler(bench.deps()).reconcile(`${namespace}/a`);
    },
  ],
  [
    'Connector',
    (namespace) => {
      bench.put(KINDS.connector, { name: `a-${namespace}` }, { exitNode: true, hostname: 'shop' });
      return createConnectorReconciler(bench.deps()).reconcile(`a-${namespace}`);
    },
  ],
  [
    'grouped Service',
    (namespace) => {
      putGroup(`g-${namespace}`);
      putService(namespace, 'b', { ...ofGroup(`g-${namespace}`), ...named('shop') });
      return runGroup(`g-${namespace}`);
    },
  ],
];
const PAIRS = KIND_OF_OWNER.flatMap(([first, putFirst]) =>
  KIND_OF_OWNER.map(([second, putSecond]) => [first, second, putFirst, putSecond] as const),
);

describe('the name of a node', () => {
  it.each(PAIRS)('that a %s has is not given to a %s', async (_first, _second, putFirst, putSecond) => {
    await putFirst('prod');
    const owner = bench.names().find((name) => name.startsWith('shop: '))!;
    const before = bench.left();
    const again = await putSecond('dev');
    expect(again).toBeLessThanOrEqual(60_000);
    expect(bench.names().filter((name) => name.startsWith('shop: '))).toEqual([owner]);
    expect(JSON.stringify([...bench.api.objects.values()])).toContain(
      `the tailnet name shop belongs to ${owner.replace('shop: ', '')}: choose another name`,
    );
    const made = bench.left().filter((path) => !before.includes(path));
    // No new objects are allowed, except those of the nodes of group `g-dev`, because other Services of the group may
    // use these nodes.
    expect(made.filter((path) => !/\/g-dev/.test(path))).toEqual([]);
  });

  it.each<[string, string, ResourceKind, (name: string) => Promise<unknown>]>([
    [
      'a Recorder',
      'audit-0',
      KINDS.recorder,
      (name) => {
        bench.put(KINDS.recorder, { name }, { enableUI: true });
        return createRecorderReconciler(bench.deps()).reconcile(name);
      },
    ],
    [
      'gateways',
      'audit-1',
      KINDS.proxyGroup,
      (name) => {
        bench.put(KINDS.proxyGroup, { name }, { type: 'kube-apiserver', kubeAPIServer: { mode: 'noauth' } });
        return createProxyGroupReconciler(bench.deps()).reconcile(name);
      },
    ],
    [
      'gateways in common',
      'audit',
      KINDS.proxyGroup,
      (name) => {
        bench.put(KINDS.proxyGroup, { name }, { type: 'kube-apiserver', kubeAPIServer: { mode: 'noauth' } });
        return createProxyGroupReconciler(bench.deps()).reconcile(name);
      },
    ],
  ])('of %s is nobody else’s', async (_whose, hostname, kind, putOwner) => {
    await putOwner('audit');
    putService('dev', 'a', named(hostname));
    await createServiceReconciler(bench.deps()).reconcile('dev/a');
    expect(said(KINDS.service, { namespace: 'dev', name: 'a' })).toContain(
      `the tailnet name ${hostname} belongs to ${kind.kind} audit`,
    );
  });

  it('stays with its owner when an older one asks for it, and is free when the owner goes', async () => {
    const ingresses = createIngressReconciler(bench.deps());
    putIngress('prod', 'web', 'shop');
    await ingresses.reconcile('prod/web');
    putIngress('dev', 'old', 'shop', { creationTimestamp: OLD });
    expect(await ingresses.reconcile('dev/old')).toBe(60_000);
    expect(bench.events().join()).toContain(
      'IngressNameTaken: the tailnet name shop belongs to Ingress prod/web',
    );
    bench.markDeleted(pathOf(KINDS.ingress, { namespace: 'prod', name: 'web' }));
    await settle(() => ingresses.reconcile('prod/web'));
    expect(bench.names()).toEqual([]);
    await ingresses.reconcile('dev/old');
    expect(bench.names()).toEqual(['shop: Ingress dev/old']);
  });

  it('is free when its owner has another one, or was removed without our finalizer', async () => {
    const services = createServiceReconciler(bench.deps());
    putService('prod', 'a', named('one'));
    await services.reconcile('prod/a');
    putService('prod', 'a', named('two'));
    await services.reconcile('prod/a');
    expect(bench.names()).toEqual(['two: Service prod/a']);
    bench.api.remove(pathOf(KINDS.service, { namespace: 'prod', name: 'a' }));
    putService('dev', 'b', named('two'));
    await services.reconcile('dev/b');
    expect(bench.names()).toEqual(['two: Service dev/b']);
  });

  it('is not taken by a resource that is invalid', async () => {
    putService('prod', 'a', { ...named('shop'), 'tailscale.com/tags': 'nonsense' });
    await createServiceReconciler(bench.deps()).reconcile('prod/a');
    expect(bench.names()).toEqual([]);
  });

  it('belongs to one resource in each tailnet', async () => {
    bench.put(
      { ...KINDS.tailnet },
      { name: 'lab' },
      { loginUrl: 'http://127.0.0.1:1', credentials: { secretName: 'lab' } },
    );
    const connectors = createConnectorReconciler(bench.deps());
    bench.put(KINDS.connector, { name: 'a' }, { exitNode: true, hostname: 'shop' });
    bench.put(KINDS.connector, { name: 'b' }, { exitNode: true, hostname: 'shop', tailnet: 'lab' });
    await connectors.reconcile('a');
    await connectors.reconcile('b').catch(() => undefined);
    expect(bench.names()).toHaveLength(2);
  });

  it('whose ConfigMap somebody else has made is nobody’s, and that ConfigMap stays', async () => {
    const path = pathOf(KINDS.configMap, { namespace: 'tailcast', name: 'tailnet-name.shop' });
    const metadata = { name: 'tailnet-name.shop', namespace: 'tailcast' };
    bench.api.put(path, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { note: 'mine' } });
    putService('prod', 'a', named('shop'));
    const services = createServiceReconciler(bench.deps());
    await expect(services.reconcile('prod/a')).rejects.toThrow('does not contain the owner of the name');
    expect(bench.object(path)?.['data']).toEqual({ note: 'mine' });
  });

  it('is given to one of two that ask at the same moment', async () => {
    putService('prod', 'a', named('shop'));
    putService('dev', 'a', named('shop'));
    const passes = ['prod/a', 'dev/a'].map((name) => createServiceReconciler(bench.deps()).reconcile(name));
    await Promise.all(passes);
    expect(bench.names()).toHaveLength(1);
    const refusals = bench.events().filter((event) => event.startsWith('ServiceNameTaken'));
    expect(refusals).toHaveLength(1);
  });
});

describe('the host of an Ingress of a group', () => {
  it('is served by the Ingress whose own name it is, not by an older one that names it', async () => {
    withoutServices();
    putGroup('in');
    const prod = ofGroup('in');
    const backend = (name: string): object => ({ service: { name, port: { number: 80 } } });
    bench.put(
      KINDS.ingress,
      { name: 'shop', namespace: 'prod', annotations: { ...prod } },
      { ingressClassName: 'tailscale', tls: [{ hosts: ['shop'] }], defaultBackend: backend('web') },
    );
    bench.put(
      KINDS.ingress,
      { name: 'evil', namespace: 'dev', annotations: { ...prod }, creationTimestamp: OLD },
      {
        ingressClassName: 'tailscale',
        tls: [{ hosts: ['evil'] }],
        rules: [
          { host: 'shop', http: { paths: [{ path: '/', pathType: 'Prefix', backend: backend('web') }] } },
        ],
      },
    );
    for (const namespace of ['prod', 'dev'])
      bench.put(
        KINDS.service,
        { name: 'web', namespace },
        { clusterIP: namespace === 'prod' ? '10.96.0.1' : '10.96.0.66', ports: [{ port: 80 }] },
      );
    await runGroup('in');
    bench.startPod('in-0');
    bench.join('in-0', { addresses: ['100.64.0.1'] });
    await runGroup('in');
    const config = JSON.parse(
      bench.data('/api/v1/namespaces/tailcast/secrets/in-0', 'serve-config') ?? '{}',
    ) as {
      Web: Record<string, object>;
    };
    expect(config.Web['shop.lab.ts.net:80']).toEqual({
      Handlers: { '/': { Proxy: 'http://10.96.0.1:80/' } },
    });
    expect(bench.events().join()).toContain('UnsupportedHost');
  });
});
