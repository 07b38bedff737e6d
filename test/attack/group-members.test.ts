/** A Service or Ingress of a ProxyGroup must not interrupt Services or Ingresses of the group in other namespaces. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createEgressReconciler } from '../../src/operator/egress-group/reconcile.ts';
import { createIngressGroupReconciler } from '../../src/operator/ingress-group/reconcile.ts';
import { KINDS } from '../../src/operator/kube-object.ts';
import type { Reconciler } from '../../src/operator/workload/reconciler.ts';
import { createBench, OWN, type Bench } from '../operator/bench.ts';

const OF_IN = { 'tailscale.com/proxy-group': 'in' };
const LATER = '2026-03-01T00:00:00Z';
const TOO_LARGE = {
  status: 500,
  body: { kind: 'Status', code: 500, reason: '', message: 'etcdserver: request is too large' },
};
const shop = '/apis/networking.k8s.io/v1/namespaces/prod/ingresses/shop';
const evil = '/apis/networking.k8s.io/v1/namespaces/evil/ingresses/x';

let bench: Bench;
let group: Reconciler;

beforeEach(async () => {
  bench = await createBench();
  group = createIngressGroupReconciler(bench.deps());
  bench.put(KINDS.proxyGroup, { name: 'in', uid: 'uid-in' }, { type: 'ingress' });
  for (const namespace of ['prod', 'evil']) {
    const spec = { clusterIP: '10.96.0.10', clusterIPs: ['10.96.0.10'], ports: [{ port: 80 }] };
    bench.put(KINDS.service, { name: 'web', namespace }, spec);
  }
  putIngress('prod', 'shop');
  await pass();
  for (const ordinal of [0, 1]) {
    bench.startPod(`in-${ordinal}`);
    bench.join(`in-${ordinal}`, { addresses: [`100.64.0.${ordinal + 1}`] });
  }
  await pass();
});
afterEach(() => bench.close());

function putIngress(
  namespace: string,
  name: string,
  paths: readonly string[] = ['/'],
  created = LATER,
): void {
  const backend = { service: { name: 'web', port: { number: 80 } } };
  const http = { paths: paths.map((path) => ({ path, pathType: 'Prefix', backend })) };
  bench.put(
    KINDS.ingress,
    { name, namespace, creationTimestamp: created, annotations: OF_IN },
    { ingressClassName: 'tailscale', tls: [{ hosts: [name] }], rules: [{ http }] },
  );
}
/** Runs three passes, and returns the error of the last pass. */
async function pass(): Promise<unknown> {
  let failure: unknown;
  for (let count = 0; count < 3; count += 1) {
    failure = undefined;
    await group.reconcile('in').catch((error: unknown) => (failure = error));
  }
  return failure;
}
const config = (): string => bench.data(`${OWN}/secrets/in-0`, 'serve-config') ?? '';
const longPaths = (count: number): string[] =>
  Array.from({ length: count }, (_, at) => `/${at}${'a'.repeat(1000)}`);
/** Expects that the group serves a new Ingress of another namespace, and releases a deleted one. */
async function expectOthersServed(): Promise<void> {
  putIngress('prod', 'later', ['/'], '2026-04-01T00:00:00Z');
  await pass();
  expect(config()).toMatch(/svc:shop.*svc:later/);
  bench.markDeleted(shop);
  await pass();
  expect(bench.object(shop)).toBeUndefined();
  expect(config()).not.toContain('svc:shop');
}

describe('an Ingress of an ingress group', () => {
  it('may have any characters in its paths', async () => {
    putIngress('evil', 'x', ['/\u20ac']);
    await expectOthersServed();
    expect(config()).toContain('/\u20ac');
  });

  it('is refused if its paths are too large, and not allocated again in each pass', async () => {
    putIngress('evil', 'x', longPaths(40));
    await expectOthersServed();
    expect(config()).not.toContain('svc:x');
    expect(bench.events().join('\n')).toMatch(/IngressNotServed: spec\.rules: the paths need \d+ KiB/);
    const written: string[] = [];
    bench.api.interfere = ({ method, path }) => {
      if (method !== 'GET') written.push(path);
      return undefined;
    };
    expect(await pass()).toBeUndefined();
    expect(written.join('\n')).not.toMatch(/evil|ingress-config|tailnet-name/);
    putIngress('evil', 'x', longPaths(20));
    await pass();
    expect(config()).toContain('svc:x');
  });

  it('is refused if the group has no space left, and older members stay', async () => {
    for (let at = 0; at < 12; at += 1) putIngress('evil', `x${at}`, longPaths(20));
    await pass();
    expect(config()).toContain('svc:shop');
    expect(config().length).toBeLessThan(400_000);
    expect(bench.events().join('\n')).toContain('ProxyGroup "in" has no space left');
  });

  it.each<[string, (path: string) => boolean]>([
    ['its finalizer', (path) => path.startsWith(evil) && !path.includes('status')],
    ['its status', (path) => path.startsWith(`${evil}/status`)],
    ['the owner of its name', (path) => path.includes('tailnet-name.x')],
    ['its certificate', (path) => path.includes('/secrets/x.lab.ts.net')],
  ])('stops no other if the API server refuses %s', async (_what, matches) => {
    bench.api.interfere = (request) =>
      request.method !== 'GET' && matches(nameIn(request)) ? TOO_LARGE : undefined;
    putIngress('evil', 'x');
    await expectOthersServed();
  });

  it('stays while the API server refuses to release it, and is released later', async () => {
    putIngress('evil', 'x');
    await pass();
    expect(config()).toContain('svc:x');
    bench.api.interfere = ({ method, path }) =>
      method === 'PATCH' && path.startsWith(evil) ? TOO_LARGE : undefined;
    bench.markDeleted(evil);
    expect(String(await pass())).toContain('too large');
    await expectOthersServed();
    expect(config()).not.toContain('svc:x');
    bench.api.interfere = () => undefined;
    await pass();
    expect(bench.object(evil)).toBeUndefined();
  });

  it('keeps its name and addresses while a request for it fails', async () => {
    putIngress('evil', 'x');
    await pass();
    const before = config();
    const names = `${OWN}/configmaps/tailnet-name.x`;
    bench.api.remove(names);
    bench.api.interfere = (request) =>
      request.method === 'POST' && nameIn(request).includes('tailnet-name.x') ? TOO_LARGE : undefined;
    expect(String(await pass())).toContain('too large');
    expect(config()).toBe(before);
  });
});

/** Returns the path of a request, followed by the name of the object in its body. */
function nameIn({ path, body }: { readonly path: string; readonly body?: unknown }): string {
  const { metadata } = (body ?? {}) as { metadata?: { name?: string } };
  return `${path.split('?')[0]}/${metadata?.name ?? ''}`;
}

describe('a Service of an egress group', () => {
  it('stops no other if the API server refuses its status', async () => {
    const egress = createEgressReconciler(bench.deps());
    bench.put(KINDS.proxyGroup, { name: 'out', uid: 'uid-out' }, { type: 'egress' });
    const annotations = {
      'tailscale.com/proxy-group': 'out',
      'tailscale.com/tailnet-fqdn': 'db.example.ts.net',
    };
    for (const namespace of ['evil', 'prod'])
      bench.put(
        KINDS.service,
        { name: 'db', namespace, annotations },
        { type: 'ExternalName', externalName: 'unused', ports: [{ port: 5432 }] },
      );
    bench.api.interfere = ({ method, path }) =>
      method === 'PATCH' && path.includes('/namespaces/evil/services/db/status') ? TOO_LARGE : undefined;
    await expect(egress.reconcile('out')).rejects.toThrow('too large');
    const service = '/api/v1/namespaces/prod/services/db';
    expect(bench.condition(service, 'TailscaleEgressSvcValid')?.status).toBe('True');
  });
});
