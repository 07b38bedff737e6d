import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  createGatewayClassReconciler,
  createGatewayReconciler,
} from '../../../src/operator/gateway/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { createBench, OWN, SETS, settle, survives, untilSurvived, type Bench } from '../bench.ts';
import { CERTIFICATE, putCertificate, expectNodeGone, serveConfigOf, tableOf } from '../web-nodes.ts';
import { API_VERSION, gatewayObject, HTTP, HTTPS, routeObject, rule } from './gateways.ts';

const NAME = objectNameOf({ type: 'gateway', namespace: 'prod', name: 'edge' });
const POD = `${NAME}-0`;
const API = `/apis/${API_VERSION}`;
const CLASS = `${API}/gatewayclasses/tailscale`;
const pathOf = (name: string): string => `${API}/namespaces/prod/gateways/${name}`;
const PATH = pathOf('edge');
const ROUTE = `${API}/namespaces/prod/httproutes/route`;
const HOST = 'own.example.org';
/** Entry in a route's status that another controller wrote for its own Gateway. */
const FOREIGN = {
  parentRef: { name: 'other', group: 'gateway.networking.k8s.io', kind: 'Gateway' },
  controllerName: 'example.com/other',
  conditions: [
    { type: 'Accepted', status: 'True', reason: 'Accepted', message: '', lastTransitionTime: 'x' },
  ],
};

interface Said {
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration?: number;
}
interface Status {
  readonly conditions?: readonly Said[];
  readonly addresses?: readonly object[];
  readonly listeners?: readonly {
    readonly name: string;
    readonly attachedRoutes: number;
    readonly conditions: readonly Said[];
  }[];
  readonly parents?: readonly { readonly controllerName: string; readonly conditions: readonly Said[] }[];
}

let bench: Bench;
let reconciler: Reconciler;

beforeEach(async () => {
  bench = await createBench();
  reconciler = createGatewayReconciler(bench.deps());
  putClass();
  bench.put(
    KINDS.service,
    { name: 'web', namespace: 'prod' },
    { clusterIP: '10.96.0.10', ports: [{ port: 80 }] },
  );
});
afterEach(() => bench.close());

const putClass = (controllerName = 'tailcast.dev/gateway', spec: object = {}): string =>
  bench.put(KINDS.gatewayClass, { name: 'tailscale' }, { controllerName, ...spec });
/** Writes an object as a user does: its status and finalizers stay. */
function put(path: string, wanted: object): void {
  const before = bench.object(path);
  const { metadata, ...rest } = wanted as { metadata: { uid?: string } };
  const { uid: _uid, ...own } = metadata;
  const finalizers = before?.metadata.finalizers;
  bench.api.put(path, {
    ...rest,
    metadata: { ...own, ...(finalizers === undefined ? {} : { finalizers }) },
    status: before?.['status'],
  });
}
const putGateway = (listeners: readonly object[] = [HTTP], spec: object = {}): void =>
  put(PATH, gatewayObject(listeners, spec));
const putRoute = (spec: object = { rules: [rule('/')] }): void => put(ROUTE, routeObject(spec));
const run = (): Promise<number | undefined> => reconciler.reconcile('prod/edge');
const status = (path = PATH): Status => bench.object(path)?.['status'] ?? {};
const said = (conditions: readonly Said[] = []): Readonly<Record<string, string>> =>
  Object.fromEntries(conditions.map((one) => [one.type, `${one.status} ${one.reason}`]));
async function up(): Promise<void> {
  await run();
  bench.startPod(POD);
  bench.join(POD, { fqdn: 'edge.lab.ts.net' });
  bench.say(POD, { https_endpoint: 'edge.lab.ts.net' });
  await settle(run);
}

describe('a Gateway', () => {
  it('gets a node, which is told what its routes serve, and all of them say so', async () => {
    putGateway();
    putRoute();
    await run();
    expect(said(status().conditions)).toEqual({
      Accepted: 'True Accepted',
      Programmed: 'False AddressNotAssigned',
    });
    expect(bench.file(POD, 'cap-107.hujson')).toMatchObject({ Hostname: 'edge' });
    await up();
    expect(serveConfigOf(bench, POD)).toMatchObject({
      TCP: { '80': { HTTP: true } },
      Web: { 'edge.lab.ts.net:80': { Handlers: { '/': { Proxy: 'http://10.96.0.10:80/' } } } },
    });
    const { conditions, addresses, listeners } = status();
    expect(said(conditions)).toEqual({ Accepted: 'True Accepted', Programmed: 'True Programmed' });
    expect(addresses).toEqual([
      { type: 'Hostname', value: 'edge.lab.ts.net' },
      { type: 'IPAddress', value: '100.64.0.9' },
      { type: 'IPAddress', value: 'fd7a:115c:a1e0::9' },
    ]);
    expect(listeners).toMatchObject([
      {
        name: 'http',
        attachedRoutes: 1,
        supportedKinds: [{ group: 'gateway.networking.k8s.io', kind: 'HTTPRoute' }],
      },
    ]);
    expect(said(listeners?.[0]?.conditions)).toEqual({
      Accepted: 'True Accepted',
      ResolvedRefs: 'True ResolvedRefs',
      Programmed: 'True Programmed',
    });
    expect(status(ROUTE).parents).toMatchObject([
      {
        controllerName: 'tailcast.dev/gateway',
        parentRef: { name: 'edge' },
        conditions: [{ observedGeneration: 1 }, {}],
      },
    ]);
    const { writes } = bench;
    await run();
    expect(bench.writes).toBe(writes);
  });

  it('serves another route, and one less, without a new pod', async () => {
    putGateway();
    putRoute();
    await up();
    const template = JSON.stringify(bench.object(`${SETS}/${NAME}`)?.['spec']);
    const more = routeObject({ rules: [rule('/more')] }, { name: 'more' });
    const path = ROUTE.replace(/route$/, 'more');
    put(path, more);
    await run();
    expect(JSON.stringify(serveConfigOf(bench, POD))).toContain('"/more"');
    expect(status().listeners?.[0]?.attachedRoutes).toBe(2);
    bench.api.remove(path);
    await run();
    expect(JSON.stringify(serveConfigOf(bench, POD))).not.toContain('"/more"');
    expect(status().listeners?.[0]?.attachedRoutes).toBe(1);
    expect(JSON.stringify(bench.object(`${SETS}/${NAME}`)?.['spec'])).toBe(template);
  });

  it('takes back what it said in a route that names it no more, and nothing else', async () => {
    putGateway();
    bench.api.put(ROUTE, { ...routeObject({ rules: [rule('/')] }), status: { parents: [FOREIGN] } });
    await up();
    expect(status(ROUTE).parents).toHaveLength(2);
    expect(status(ROUTE).parents?.[0]).toEqual(FOREIGN);
    putRoute({ parentRefs: [{ name: 'other' }], rules: [rule('/')] });
    await run();
    expect(status(ROUTE).parents).toEqual([FOREIGN]);
  });

  it('does not write over what another one has said of a route meanwhile', async () => {
    putGateway();
    putRoute();
    bench.api.interfere = ({ method, path }) => {
      if (method === 'PATCH' && path === `${ROUTE}/status`) {
        bench.api.interfere = undefined;
        bench.api.put(ROUTE, { ...bench.object(ROUTE)!, status: { parents: [FOREIGN] } });
      }
      return undefined;
    };
    await expect(run()).rejects.toThrow('409');
    await up();
    expect(status(ROUTE).parents).toMatchObject([FOREIGN, { controllerName: 'tailcast.dev/gateway' }]);
  });

  it('writes the status of other routes if the API server refuses that of one route', async () => {
    putGateway();
    putRoute();
    const other = ROUTE.replace(/route$/, 'second');
    const second = { name: 'second', namespace: 'prod' };
    put(other, { ...routeObject({ rules: [rule('/second')] }), metadata: second });
    bench.api.interfere = ({ method, path }) =>
      method === 'PATCH' && path.includes('/httproutes/route/status')
        ? { status: 500, body: { kind: 'Status', code: 500, message: 'etcdserver: request is too large' } }
        : undefined;
    expect(await run()).toBeLessThanOrEqual(60_000);
    expect(status(other).parents).toHaveLength(1);
    expect(status().listeners).toHaveLength(1);
  });

  it('says what each route cannot have', async () => {
    putGateway();
    putRoute({ rules: [rule('/', 'missing'), { matches: [{ method: 'GET' }] }] });
    await up();
    expect(said(status(ROUTE).parents?.[0]?.conditions)).toEqual({
      Accepted: 'True Accepted',
      ResolvedRefs: 'False BackendNotFound',
      PartiallyInvalid: 'True UnsupportedValue',
    });
    putRoute();
    await run();
    expect(said(status(ROUTE).parents?.[0]?.conditions)).toEqual({
      Accepted: 'True Accepted',
      ResolvedRefs: 'True ResolvedRefs',
    });
  });

  it.each<[string, object, string]>([
    ['addresses', { addresses: [{ value: '10.0.0.1' }] }, 'UnsupportedAddress'],
    ['parameters', { infrastructure: { parametersRef: { name: 'x' } } }, 'InvalidParameters'],
    ['a check of clients', { tls: { frontend: {} } }, 'Invalid'],
  ])('that asks for %s gets nothing, and is told so', async (_what, spec, reason) => {
    putGateway([HTTP], spec);
    expect(await run()).toBeUndefined();
    expect(said(status().conditions)).toEqual({ Accepted: `False ${reason}`, Programmed: 'False Invalid' });
    expect(bench.left()).toEqual([]);
  });

  it('without certificates at the control server serves HTTP, and says so of HTTPS', async () => {
    Object.assign(bench.control, { issuesCertificates: false });
    putGateway([HTTP, HTTPS]);
    putRoute();
    await up();
    expect(JSON.stringify(serveConfigOf(bench, POD))).not.toContain('HTTPS');
    expect(said(status().conditions)).toEqual({
      Accepted: 'True ListenersNotValid',
      Programmed: 'True Programmed',
    });
    expect(said(status().listeners?.[1]?.conditions)).toMatchObject({ Programmed: 'False Invalid' });
  });

  describe('with a certificate of its own', () => {
    const listeners = [HTTP, { ...HTTPS, hostname: HOST, tls: { certificateRefs: [{ name: 'own' }] } }];
    // Runs single passes, because the operator polls Secrets and thus requests another pass after each one.
    async function started(): Promise<void> {
      await run();
      bench.startPod(POD);
      bench.join(POD, { fqdn: 'edge.lab.ts.net' });
      await run();
    }

    it('gets a server beside tailscaled, and another certificate within a minute', async () => {
      await putCertificate(bench, HOST);
      putGateway(listeners);
      putRoute();
      await started();
      const forward = (port: number): object => ({ TCPForward: `127.0.0.77:${port}`, ProxyProtocol: 2 });
      expect(serveConfigOf(bench, POD)).toEqual({ TCP: { '443': forward(8443), '80': forward(8080) } });
      expect(tableOf(bench, POD)).toMatchObject({
        secure: [HOST],
        hosts: [{ name: HOST }],
        plain: [{ name: '' }],
      });
      expect(JSON.stringify(bench.object(`${SETS}/${NAME}`))).toContain('"args":["ingress"]');
      expect(said(status().conditions)).toMatchObject({ Programmed: 'True Programmed' });
      const certificatePem = await putCertificate(bench, HOST);
      expect(await run()).toBeLessThanOrEqual(60_000);
      expect(tableOf(bench, POD).certificates).toMatchObject([{ hosts: [HOST], certificatePem }]);
    });

    it('says which listeners are for the same names, while they are', async () => {
      await putCertificate(bench, HOST);
      const wide = { ...listeners[1], name: 'wide', hostname: '*.example.org' };
      putGateway([...listeners, wide]);
      await started();
      const overlap = (): readonly (string | undefined)[] =>
        (status().listeners ?? []).map(({ conditions }) => said(conditions)['OverlappingTLSConfig']);
      expect(overlap()).toEqual([undefined, 'True OverlappingHostnames', 'True OverlappingHostnames']);
      putGateway(listeners);
      await run();
      expect(overlap()).toEqual([undefined, undefined]);
    });

    it('that may not be read serves nothing there, and says so', async () => {
      bench.api.forbidden.add(CERTIFICATE);
      putGateway(listeners);
      putRoute();
      await started();
      expect(tableOf(bench, POD)).toMatchObject({ secure: [], certificates: [], hosts: [] });
      const [, secure] = status().listeners ?? [];
      expect(said(secure?.conditions)).toEqual({
        Accepted: 'True Accepted',
        ResolvedRefs: 'False InvalidCertificateRef',
        Programmed: 'False Invalid',
      });
    });
  });

  it('waits for a ProxyClass, and says so', async () => {
    const gateway = gatewayObject([HTTP]) as { metadata: { annotations: object } };
    Object.assign(gateway.metadata.annotations, { 'tailscale.com/proxy-class': 'none' });
    put(PATH, gateway);
    await run();
    expect(status().conditions).toMatchObject([
      {
        type: 'Programmed',
        status: 'False',
        reason: 'Pending',
        message: 'waiting: ProxyClass "none" does not exist',
      },
    ]);
    expect(bench.left()).toEqual([]);
  });

  it('leaves a name to the first one of ours, and takes it when that has another class', async () => {
    const first = (spec: object = {}): object => {
      const object = gatewayObject([HTTP], spec) as { metadata: object };
      const { finalizers } = bench.object(pathOf('first'))?.metadata ?? {};
      Object.assign(object.metadata, { name: 'first', uid: 'first', finalizers });
      return object;
    };
    bench.api.put(pathOf('first'), first());
    await reconciler.reconcile('prod/first');
    const before = bench.left();
    putGateway();
    expect(await run()).toBe(60_000);
    expect(said(status().conditions)).toEqual({ Programmed: 'False AddressNotUsable' });
    expect(bench.left()).toEqual(before);
    bench.api.put(pathOf('first'), first({ gatewayClassName: 'other' }));
    await settle(() => reconciler.reconcile('prod/first'));
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    await run();
    expect(bench.left()).not.toEqual([]);
  });

  it('says that the tailnet is not to be had', async () => {
    putGateway();
    Object.assign(bench.control, { createKey: () => Promise.reject(new Error('no keys today')) });
    reconciler = createGatewayReconciler(bench.deps());
    await expect(run()).rejects.toThrow('no keys today');
    expect(said(status().conditions)).toMatchObject({ Programmed: 'False Pending' });
  });

  it('comes up whole when it is killed between any two writes', async () => {
    putGateway();
    putRoute();
    await untilSurvived((limit) => createGatewayReconciler(bench.deps(limit)).reconcile('prod/edge'));
    await up();
    expect(said(status().conditions)).toMatchObject({ Programmed: 'True Programmed' });
    expect([...bench.api.objects.keys()].filter((key) => key.startsWith(`${SETS}/`))).toHaveLength(1);
  });
});

describe('a Gateway that leaves', () => {
  beforeEach(async () => {
    putGateway();
    bench.api.put(ROUTE, { ...routeObject({ rules: [rule('/')] }), status: { parents: [FOREIGN] } });
    await up();
  });
  async function expectGone(): Promise<void> {
    await expectNodeGone(bench, POD, run);
    expect(status(ROUTE).parents).toEqual([FOREIGN]);
  }
  function expectReleased(): void {
    expect(bench.object(PATH)?.metadata.finalizers).toEqual([]);
    expect(said(status().conditions)).toEqual({ Accepted: 'Unknown Pending', Programmed: 'Unknown Pending' });
    expect(status()).toMatchObject({ addresses: [], listeners: [] });
  }

  it('by another class takes everything along, and what was said', async () => {
    putGateway([HTTP], { gatewayClassName: 'other' });
    await expectGone();
    expectReleased();
  });

  it('by its class, which is somebody else’s now, does so, too', async () => {
    putClass('example.com/other');
    await expectGone();
    expectReleased();
  });

  it('with what another controller has said since leaves that alone', async () => {
    const other = {
      conditions: [],
      addresses: [{ type: 'Hostname', value: 'lb.example.com' }],
      listeners: [],
    };
    putGateway([HTTP], { gatewayClassName: 'other' });
    bench.api.put(PATH, { ...bench.object(PATH)!, status: other });
    await expectGone();
    expect(status()).toEqual(other);
  });

  it('by being deleted does so, too', async () => {
    bench.markDeleted(PATH);
    await expectGone();
    expect(bench.object(PATH)).toBeUndefined();
  });

  it('with the operator stays, without our finalizer', async () => {
    reconciler = createGatewayReconciler({ ...bench.deps(), leaving: true });
    await expectGone();
    expectReleased();
  });

  it('leaves nothing when it is killed between any two writes', async () => {
    bench.markDeleted(PATH);
    for (let limit = 0; bench.object(PATH) !== undefined; limit = (limit + 1) % 12) {
      const mortal = createGatewayReconciler(bench.deps(limit));
      await survives(() => mortal.reconcile('prod/edge'));
      if (bench.object(`${SETS}/${NAME}`) === undefined) bench.api.remove(`${OWN}/pods/${POD}`);
    }
    expect([bench.left(), bench.names()]).toEqual([[], []]);
    expect(status(ROUTE).parents).toEqual([FOREIGN]);
  });
});

describe('a Gateway of another class', () => {
  it.each<[string, () => void]>([
    ['a class of somebody else', () => putClass('example.com/other')],
    ['a missing class', () => bench.api.remove(CLASS)],
  ])('because of %s is left alone, with its routes', async (_what, change) => {
    change();
    putGateway();
    putRoute();
    expect(await run()).toBeUndefined();
    expect(bench.writes).toBe(0);
  });
});

describe('a GatewayClass', () => {
  const see = async (): Promise<Status> => {
    await createGatewayClassReconciler(bench.deps()).reconcile('tailscale');
    return status(CLASS);
  };

  it('of ours is accepted, once', async () => {
    expect(said((await see()).conditions)).toEqual({ Accepted: 'True Accepted' });
    const { writes } = bench;
    await see();
    expect(bench.writes).toBe(writes);
  });

  it('with parameters is not', async () => {
    putClass('tailcast.dev/gateway', { parametersRef: { group: 'x', kind: 'Y', name: 'z' } });
    expect(said((await see()).conditions)).toEqual({ Accepted: 'False InvalidParameters' });
  });

  it('of somebody else is left alone', async () => {
    putClass('example.com/other');
    expect(await see()).toEqual({});
  });
});
