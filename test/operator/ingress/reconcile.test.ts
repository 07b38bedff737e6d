import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createIngressReconciler } from '../../../src/operator/ingress/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { createBench, OWN, SETS, settle, untilSurvived, type Bench } from '../bench.ts';
import { CERTIFICATE, putCertificate, expectNodeGone, serveConfigOf, tableOf } from '../web-nodes.ts';

const NAME = objectNameOf({ type: 'ingress', namespace: 'prod', name: 'shop' });
const POD = `${NAME}-0`;
const SECRET = `${OWN}/secrets/${POD}`;
const PATH = '/apis/networking.k8s.io/v1/namespaces/prod/ingresses/shop';
const WEB = '/api/v1/namespaces/prod/services/web';
const OF_GROUP = { 'tailscale.com/proxy-group': 'in' };

let bench: Bench;
let reconciler: Reconciler;

beforeEach(async () => {
  bench = await createBench();
  reconciler = createIngressReconciler(bench.deps());
  putService();
});
afterEach(() => bench.close());

const putService = (): string =>
  bench.put(
    KINDS.service,
    { name: 'web', namespace: 'prod' },
    { clusterIP: '10.96.0.10', ports: [{ port: 80 }] },
  );
function put(spec: object = {}, annotations: object = {}, name = 'shop'): void {
  const defaultBackend = { service: { name: 'web', port: { number: 80 } } };
  bench.put(
    KINDS.ingress,
    { name, namespace: 'prod', annotations },
    { ingressClassName: 'tailscale', defaultBackend, tls: [{ hosts: ['shop'] }], ...spec },
  );
}
const putClass = (controller: string): string =>
  bench.put(KINDS.ingressClass, { name: 'tailscale' }, { controller });
const run = (): Promise<number | undefined> => reconciler.reconcile('prod/shop');
const shown = (): unknown =>
  (bench.object(PATH)?.['status'] as { loadBalancer?: { ingress?: object[] } } | undefined)?.loadBalancer
    ?.ingress;
async function up(endpoint = 'shop.lab.ts.net'): Promise<void> {
  await run();
  bench.startPod(POD);
  bench.join(POD, { fqdn: 'shop.lab.ts.net' });
  bench.say(POD, { https_endpoint: endpoint });
  await settle(run);
}

describe('an Ingress', () => {
  it('gets a proxy without privileges, which is told what to serve', async () => {
    put();
    await run();
    const { spec } = bench.object(`${SETS}/${NAME}`) as unknown as {
      spec: {
        template: { spec: { initContainers?: object[]; containers: { env: object[] }[]; volumes: object[] } };
      };
    };
    const { initContainers, containers, volumes } = spec.template.spec;
    expect(initContainers).toBeUndefined();
    expect(containers).toMatchObject([
      { securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } } },
    ]);
    expect(JSON.stringify(containers)).not.toContain('"privileged"');
    expect(containers[0]!.env).toContainEqual({ name: 'TS_USERSPACE', value: 'true' });
    expect(containers[0]!.env).toContainEqual({
      name: 'TS_SERVE_CONFIG',
      value: '/etc/tailscaled/$(POD_NAME)/serve-config',
    });
    const items = [{ key: 'serve-config', path: 'serve-config' }];
    expect(volumes).toContainEqual({
      name: 'serve-config-0',
      secret: { secretName: POD, items, optional: true },
    });
    expect(serveConfigOf(bench, POD)).toMatchObject({ TCP: { '443': { HTTPS: true } } });
    expect(bench.file(POD, 'cap-107.hujson')).toMatchObject({ Hostname: 'shop' });
    expect(bench.object(PATH)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
  });

  it('is served whether there is an object of its class or not, as long as it is ours', async () => {
    put();
    await up();
    expect(shown()).toMatchObject([{ hostname: 'shop.lab.ts.net' }]);
    putClass('tailscale.com/ts-ingress');
    const { writes } = bench;
    await run();
    bench.api.remove('/apis/networking.k8s.io/v1/ingressclasses/tailscale');
    await run();
    expect(bench.writes).toBe(writes);
  });

  it('says where callers go when its node has joined and serves, not before', async () => {
    put({}, { 'tailscale.com/http-redirect': 'true' });
    await run();
    bench.startPod(POD);
    await run();
    bench.join(POD, { fqdn: 'shop.lab.ts.net' });
    await run();
    expect(shown()).toBeUndefined();
    bench.say(POD, { https_endpoint: 'shop.lab.ts.net' });
    await settle(run);
    expect(shown()).toEqual([
      { hostname: 'shop.lab.ts.net', ports: [443, 80].map((port) => ({ port, protocol: 'TCP' })) },
    ]);
    const { writes } = bench;
    await run();
    expect(bench.writes).toBe(writes);
  });

  it.each([
    ['gives none', false, 'shop.lab.ts.net'],
    ['has HTTPS turned off', true, 'no-https'],
  ])(
    'is served by HTTP, and an event says so, where the control server %s',
    async (_what, issues, endpoint) => {
      Object.assign(bench.control, { issuesCertificates: issues });
      put();
      await up(endpoint);
      expect(serveConfigOf(bench, POD)).toMatchObject({ TCP: { '80': { HTTP: true } } });
      expect(JSON.stringify(serveConfigOf(bench, POD))).not.toContain('HTTPS');
      expect(shown()).toEqual([{ hostname: 'shop.lab.ts.net', ports: [{ port: 80, protocol: 'TCP' }] }]);
      expect(bench.events().join()).toContain('HTTPSNotEnabled: spec.tls');
    },
  );

  it('loses a backend that goes, and has it again when it comes back', async () => {
    put();
    await up();
    bench.api.remove(WEB);
    await run();
    expect(serveConfigOf(bench, POD)).toEqual({});
    expect(shown()).toEqual([]);
    expect(bench.events().join()).toContain('NoValidBackends');
    putService();
    await run();
    expect(serveConfigOf(bench, POD)).toMatchObject({ TCP: { '443': { HTTPS: true } } });
    expect(shown()).toMatchObject([{ hostname: 'shop.lab.ts.net' }]);
  });

  it('with a certificate that the operator may not read is told so, and served without it', async () => {
    bench.api.forbidden.add(CERTIFICATE);
    put({ tls: [{ hosts: ['shop'], secretName: 'own' }] });
    expect(await run()).toBeLessThanOrEqual(60_000);
    expect(bench.events().join()).toContain('TLSSecretIgnored: spec.tls[0].secretName');
    expect(serveConfigOf(bench, POD)).toMatchObject({ TCP: { '443': { HTTPS: true } } });
    expect(bench.data(SECRET, 'ingress-table')).toBeUndefined();
  });

  describe('with a certificate of its own', () => {
    const HOST = 'shop.example.org';
    const spec = { tls: [{ hosts: [HOST], secretName: 'own' }] };
    // Runs single passes, because the operator polls Secrets and thus requests another pass after each one.
    async function started(): Promise<void> {
      await run();
      bench.startPod(POD);
      bench.join(POD, { fqdn: 'shop.lab.ts.net' });
      podReady(0);
      await run();
    }
    const podReady = (ready: number): void => {
      const set = structuredClone(bench.object(`${SETS}/${NAME}`)!);
      const { generation } = set.metadata;
      set['status'] = { observedGeneration: generation, readyReplicas: ready, updatedReplicas: 1 };
      bench.api.put(`${SETS}/${NAME}`, set);
    };

    it('gets a server beside tailscaled, which leads connections to it', async () => {
      const certificatePem = await putCertificate(bench, HOST);
      put(spec);
      await started();
      expect(serveConfigOf(bench, POD)).toEqual({
        TCP: { '443': { TCPForward: '127.0.0.77:8443', ProxyProtocol: 2 } },
      });
      expect(tableOf(bench, POD)).toMatchObject({
        secure: [HOST],
        certificates: [{ hosts: [HOST], certificatePem }],
      });
      const { spec: set } = bench.object(`${SETS}/${NAME}`) as unknown as {
        spec: {
          template: { spec: { containers: { name: string; args?: string[]; securityContext: object }[] } };
        };
      };
      const [, ingress] = set.template.spec.containers;
      expect(ingress).toMatchObject({
        name: 'ingress',
        args: ['ingress'],
        securityContext: { readOnlyRootFilesystem: true, runAsNonRoot: true },
      });
      expect(shown()).toBeUndefined();
      podReady(1);
      await run();
      expect(shown()).toEqual([{ hostname: 'shop.lab.ts.net', ports: [{ port: 443, protocol: 'TCP' }] }]);
    });

    it('is told another one within a minute, without a new pod', async () => {
      await putCertificate(bench, HOST);
      put(spec);
      await started();
      podReady(1);
      await run();
      const template = JSON.stringify(bench.object(`${SETS}/${NAME}`)?.['spec']);
      const certificatePem = await putCertificate(bench, HOST);
      expect(await run()).toBeLessThanOrEqual(60_000);
      expect(tableOf(bench, POD).certificates).toMatchObject([{ certificatePem }]);
      expect(JSON.stringify(bench.object(`${SETS}/${NAME}`)?.['spec'])).toBe(template);
    });

    it('serves none of its hosts without it, by HTTP neither', async () => {
      put(spec, { 'tailscale.com/http-redirect': 'true' });
      await started();
      expect(bench.events().join()).toContain(
        'InvalidTLSSecret: spec.tls[0].secretName: Secret "own" does not exist',
      );
      expect(tableOf(bench, POD)).toMatchObject({ secure: [HOST], certificates: [] });
      expect(serveConfigOf(bench, POD)).toEqual({
        TCP: { '80': { TCPForward: '127.0.0.77:8080', ProxyProtocol: 2 } },
      });
    });

    it('is served by tailscaled again when it names none any more', async () => {
      await putCertificate(bench, HOST);
      put(spec);
      await started();
      put();
      bench.say(POD, { https_endpoint: 'shop.lab.ts.net' });
      await settle(run);
      expect(serveConfigOf(bench, POD)).toMatchObject({ TCP: { '443': { HTTPS: true } } });
      expect(JSON.stringify(bench.object(`${SETS}/${NAME}`))).not.toContain('"ingress-table"');
    });
  });

  it('waits for a ProxyClass, and says so', async () => {
    put({}, { 'tailscale.com/proxy-class': 'edge' });
    await run();
    expect(bench.events().join()).toContain('IngressNotServed: waiting: ProxyClass "edge" does not exist');
    expect(bench.left()).toEqual([]);
  });

  it('comes up whole when it is killed between any two writes', async () => {
    put();
    await untilSurvived((limit) => createIngressReconciler(bench.deps(limit)).reconcile('prod/shop'));
    await up();
    expect(shown()).toMatchObject([{ hostname: 'shop.lab.ts.net' }]);
    expect([...bench.api.objects.keys()].filter((key) => key.startsWith(`${SETS}/`))).toHaveLength(1);
  });
});

describe('an Ingress that leaves', () => {
  beforeEach(async () => {
    put();
    await up();
  });
  async function expectGone(): Promise<void> {
    await expectNodeGone(bench, POD, run);
  }

  it('by another class takes everything along, and what was said, but not what another one has said', async () => {
    const other = { hostname: 'lb.example.com' };
    put({ ingressClassName: 'nginx' });
    bench.api.put(PATH, {
      ...bench.object(PATH)!,
      status: { loadBalancer: { ingress: [...(shown() as object[]), other] } },
    });
    await expectGone();
    expect(shown()).toEqual([other]);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
  });

  it('to a group does so, too', async () => {
    put({}, OF_GROUP);
    await expectGone();
    expect(shown()).toEqual([]);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
  });

  it('by being deleted does so, too', async () => {
    bench.markDeleted(PATH);
    await expectGone();
    expect(bench.object(PATH)).toBeUndefined();
  });

  it('with the operator stays, without our finalizer', async () => {
    reconciler = createIngressReconciler({ ...bench.deps(), leaving: true });
    await expectGone();
    expect(shown()).toEqual([]);
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
  });
});

describe('an Ingress of a group', () => {
  it('is that group’s business', async () => {
    put({}, OF_GROUP);
    expect(await run()).toBeUndefined();
    expect(bench.writes).toBe(0);
  });

  it('holds up no other that has the same host', async () => {
    put({}, OF_GROUP, 'first');
    await reconciler.reconcile('prod/first');
    put();
    await up();
    expect(shown()).toMatchObject([{ hostname: 'shop.lab.ts.net' }]);
  });

  it('is served when it leaves the group', async () => {
    put({}, OF_GROUP);
    await run();
    put();
    await up();
    expect(shown()).toMatchObject([{ hostname: 'shop.lab.ts.net' }]);
  });
});

describe('an Ingress of another controller', () => {
  it.each<[string, object, string]>([
    ['another class', { ingressClassName: 'nginx' }, 'tailscale.com/ts-ingress'],
    ['no class', { ingressClassName: undefined }, 'tailscale.com/ts-ingress'],
    ['a class of our name that is somebody else’s', {}, 'example.com/other'],
  ])('is not touched: %s', async (_what, spec, controller) => {
    putClass(controller);
    put(spec);
    await run();
    expect(bench.writes).toBe(0);
  });
});
