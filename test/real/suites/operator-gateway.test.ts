/**
 * Gateway resources and HTTPRoutes with real peers and the CRDs of the Gateway API: served by tailscaled, or by
 * `tailcast ingress`.
 */
import { beforeAll, expect, it } from 'vitest';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { createTestAuthority, type TestAuthority } from '../../support/issued-certificates.ts';
import { create, gatewayApiCrds, manifests } from '../operator/installation.ts';
import { DOMAIN, NAMESPACE, type WebAnswer, type WorkloadSite } from '../operator/workload-site.ts';
import { describeSite, type Condition } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const API = '/apis/gateway.networking.k8s.io/v1';
const GATEWAYS = `${API}/namespaces/default/gateways`;
const ROUTES = `${API}/namespaces/default/httproutes`;
const APIVERSION = 'gateway.networking.k8s.io/v1';
const HOST = 'shop.own.example';

interface ShownGateway {
  readonly metadata: { readonly finalizers?: readonly string[] };
  readonly status?: {
    readonly addresses?: readonly { readonly type: string; readonly value: string }[];
    readonly conditions?: readonly Condition[];
    readonly listeners?: readonly {
      readonly name: string;
      readonly attachedRoutes: number;
      readonly conditions: readonly Condition[];
    }[];
  };
}
interface ShownRoute {
  readonly status?: {
    readonly parents?: readonly {
      readonly controllerName: string;
      readonly conditions: readonly Condition[];
    }[];
  };
}

describeSite('operator-gateway', 'Gateways', ({ start, startClient, api, until }) => {
  let site: WorkloadSite;
  let authority: TestAuthority;
  let address: string;
  const said = (conditions: readonly Condition[] = []): Readonly<Record<string, string>> =>
    Object.fromEntries(conditions.map(({ type, status, reason }) => [type, `${status} ${reason}`]));
  const gateway = async (name: string): Promise<ShownGateway> =>
    (await api('GET', `${GATEWAYS}/${name}`)) as ShownGateway;
  const route = async (name: string): Promise<ShownRoute> =>
    (await api('GET', `${ROUTES}/${name}`)) as ShownRoute;
  const postGateway = (name: string, listeners: readonly object[]): Promise<unknown> =>
    api('POST', GATEWAYS, {
      apiVersion: APIVERSION,
      kind: 'Gateway',
      metadata: { name, annotations: { 'tailscale.com/hostname': name } },
      spec: { gatewayClassName: 'tailscale', listeners },
    });
  const postRoute = (name: string, parent: object, spec: object): Promise<unknown> =>
    api('POST', ROUTES, {
      apiVersion: APIVERSION,
      kind: 'HTTPRoute',
      metadata: { name },
      spec: { parentRefs: [parent], ...spec },
    });
  const rule = (path: string, backend: string, type = 'PathPrefix'): object => ({
    matches: [{ path: { type, value: path } }],
    backendRefs: [{ name: backend, port: 80 }],
  });
  const programmed = (name: string): Promise<ShownGateway> =>
    until(`${name} to be programmed`, async () => {
      const found = await gateway(name);
      if (said(found.status?.conditions)['Programmed'] === 'True Programmed') return found;
      throw new Error(JSON.stringify(found.status));
    });
  const accepted = (name: string): Promise<ShownRoute> =>
    until(`${name} to be accepted`, async () => {
      const found = await route(name);
      const [first] = found.status?.parents ?? [];
      if (said(first?.conditions)['Accepted'] === 'True Accepted') return found;
      throw new Error(JSON.stringify(found.status));
    });
  const ask = (path: string, host = `edge.${DOMAIN}`): Promise<WebAnswer> =>
    site.http('client', `http://${address}${path}`, host);
  const answer = (
    what: string,
    path: string,
    wanted: Partial<WebAnswer>,
    host?: string,
  ): Promise<WebAnswer> =>
    until(what, async () => {
      const found = await ask(path, host);
      if (Object.entries(wanted).every(([key, value]) => found[key as keyof WebAnswer] === value))
        return found;
      throw new Error(JSON.stringify(found));
    });
  const podOf = async (name: string): Promise<string> => {
    const set = objectNameOf({ type: 'gateway', namespace: 'default', name });
    return (await site.pod(NAMESPACE, `${set}-0`)).metadata.uid;
  };

  beforeAll(async () => {
    authority = await createTestAuthority();
    site = await start(['--controllers=services,ingresses,gateways']);
    for (const file of ['operator-gateways', 'ingress-secrets'])
      for (const manifest of manifests(`deploy/rbac/${file}.yaml`)) await create(site.cluster, manifest);
    await site.serveWeb('front', 'api');
    await startClient();
  }, 300_000);

  it(
    'are waited for where the cluster does not know them, which is said once',
    { timeout: 120_000 },
    async () => {
      const lines = (): readonly string[] =>
        site.operator
          .log()
          .split('\n')
          .filter((line) => line.includes('does not know this kind'));
      await until('three lines', () => Promise.resolve(lines().length >= 3 ? true : undefined));
      for (const crd of await gatewayApiCrds()) await create(site.cluster, crd);
      await until('the API', async () => (await api('GET', `${API}/httproutes`)) as object);
      await api('POST', `${API}/gatewayclasses`, {
        apiVersion: APIVERSION,
        kind: 'GatewayClass',
        metadata: { name: 'tailscale' },
        spec: { controllerName: 'tailcast.dev/gateway' },
      });
      await until('the class to be accepted', async () => {
        const found = (await api('GET', `${API}/gatewayclasses/tailscale`)) as ShownGateway;
        return said(found.status?.conditions)['Accepted'] === 'True Accepted' ? true : undefined;
      });
      expect(lines()).toHaveLength(3);
    },
  );

  it('lead requests of a tailnet node to pods, by the path of a route', { timeout: 300_000 }, async () => {
    await postGateway('edge', [{ name: 'web', protocol: 'HTTP', port: 80 }]);
    await postRoute(
      'front',
      { name: 'edge' },
      { rules: [rule('/', 'front'), rule('/login', 'api', 'Exact')] },
    );
    const { status } = await programmed('edge');
    const node = await until('its node', () => site.node('edge'));
    [address = ''] = node.ip_addresses;
    expect(status?.addresses).toContainEqual({ type: 'Hostname', value: `edge.${DOMAIN}` });
    expect(status?.addresses).toContainEqual({ type: 'IPAddress', value: address });
    expect(await answer('the first answer', '/a?b=1', { name: 'front' })).toMatchObject({ path: '/a?b=1' });
    expect(await ask('/login')).toMatchObject({ name: 'api', path: '/login' });
    expect(await ask('/login/more')).toMatchObject({ name: 'front' });
    const { status: told } = await accepted('front');
    expect(told?.parents).toMatchObject([{ controllerName: 'tailcast.dev/gateway' }]);
    expect(said(told?.parents?.[0]?.conditions)).toEqual({
      Accepted: 'True Accepted',
      ResolvedRefs: 'True ResolvedRefs',
    });
  });

  it('take another route up, and let one go, without a restart', { timeout: 300_000 }, async () => {
    const before = await podOf('edge');
    await postRoute(
      'more',
      { name: 'edge', sectionName: 'web' },
      {
        hostnames: ['more.example.org', `edge.${DOMAIN}`],
        rules: [rule('/api', 'api')],
      },
    );
    await answer('the second route', '/api/v1', { name: 'api' });
    await answer('its other host', '/api/v1', { name: 'api' }, 'more.example.org');
    expect((await gateway('edge')).status?.listeners).toMatchObject([{ name: 'web', attachedRoutes: 2 }]);
    await api('DELETE', `${ROUTES}/more`);
    await answer('the first one again', '/api/v1', { name: 'front' });
    await answer('nothing', '/api/v1', { status: 404 }, 'more.example.org');
    await until('one less', async () =>
      (await gateway('edge')).status?.listeners?.[0]?.attachedRoutes === 1 ? true : undefined,
    );
    expect(await podOf('edge')).toBe(before);
  });

  it('say what a route asks for and cannot have', { timeout: 120_000 }, async () => {
    await postRoute(
      'wrong',
      { name: 'edge' },
      {
        rules: [
          {
            matches: [{ path: { type: 'PathPrefix', value: '/x' }, method: 'GET' }],
            backendRefs: [{ name: 'api', port: 80 }],
          },
          rule('/gone', 'missing'),
        ],
      },
    );
    const { status } = await until('a word', async () => {
      const found = await route('wrong');
      return (found.status?.parents?.length ?? 0) > 0 ? found : undefined;
    });
    const { conditions = [] } = status?.parents?.[0] ?? {};
    expect(said(conditions)).toEqual({
      Accepted: 'True Accepted',
      ResolvedRefs: 'False BackendNotFound',
      PartiallyInvalid: 'True UnsupportedValue',
    });
    expect(conditions.map(({ message }) => message).join()).toContain('spec.rules[0].matches[0].method');
    await answer('no other backend in its place', '/gone/x', { status: 404 });
    await api('DELETE', `${ROUTES}/wrong`);
  });

  it('serve HTTPS with a certificate of their own, and lead there', { timeout: 300_000 }, async () => {
    const { certificatePem, keyPem } = await authority.issue([HOST]);
    const encoded = (text: string): string => Buffer.from(text).toString('base64');
    await api('POST', `${DEFAULT}/secrets`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'shop-tls' },
      type: 'kubernetes.io/tls',
      data: { 'tls.crt': encoded(certificatePem), 'tls.key': encoded(keyPem) },
    });
    await postGateway('shop', [
      { name: 'plain', protocol: 'HTTP', port: 80 },
      {
        name: 'tls',
        protocol: 'HTTPS',
        port: 443,
        hostname: HOST,
        tls: { certificateRefs: [{ name: 'shop-tls' }] },
      },
      {
        name: 'bad',
        protocol: 'HTTPS',
        port: 443,
        hostname: 'bad.example',
        tls: { certificateRefs: [{ name: 'none' }] },
      },
    ]);
    await postRoute(
      'shop',
      { name: 'shop', sectionName: 'tls' },
      { hostnames: [HOST], rules: [rule('/', 'front')] },
    );
    await postRoute(
      'lead',
      { name: 'shop', sectionName: 'plain' },
      {
        rules: [
          { filters: [{ type: 'RequestRedirect', requestRedirect: { scheme: 'https', statusCode: 301 } }] },
        ],
      },
    );
    const { status } = await programmed('shop');
    const [own = ''] = (await until('its node', () => site.node('shop'))).ip_addresses;
    const found = await until('an answer', async () => {
      const said = await site.tls('client', 'https', {
        address: own,
        host: HOST,
        path: '/a',
        ca: authority.caPem,
        headers: {},
      });
      return said.status === 200 ? said : undefined;
    });
    expect(JSON.parse(found.text)).toMatchObject({ name: 'front', path: '/a', host: HOST });
    expect(await site.http('client', `http://${own}/x`, HOST)).toEqual({ status: 301 });
    expect(said(status?.conditions)['Accepted']).toBe('True ListenersNotValid');
    const bad = status?.listeners?.find(({ name }) => name === 'bad');
    expect(said(bad?.conditions)).toMatchObject({
      ResolvedRefs: 'False InvalidCertificateRef',
      Programmed: 'False Invalid',
    });

    const { statuses } = await site.examine();
    for (const check of ['resources', 'rights', 'gateways', 'left-objects'])
      expect([check, statuses[check]]).toEqual([check, 'ok']);
  });

  it('go with their node, and with what was said in routes', { timeout: 300_000 }, async () => {
    await api('DELETE', `${GATEWAYS}/shop`);
    expect(await site.gone('gateway', 'shop')).toBe(true);
    for (const name of ['shop', 'lead']) expect((await route(name)).status?.parents ?? []).toEqual([]);
    await api('PATCH', `${GATEWAYS}/edge`, { spec: { gatewayClassName: 'other' } });
    expect(await site.gone('gateway', 'edge')).toBe(true);
    await until('no word of ours', async () => {
      const { metadata, status } = await gateway('edge');
      const left = [...(metadata.finalizers ?? []), ...(status?.addresses ?? [])];
      return left.length === 0 ? true : undefined;
    });
    expect((await route('front')).status?.parents ?? []).toEqual([]);
  });
});
