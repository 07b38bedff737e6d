/** Ingresses on real peers: requests of a tailnet node reach pods through the stock container's own server. */
import { beforeAll, expect, it } from 'vitest';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { DOMAIN, NAMESPACE, PORT, type WebAnswer, type WorkloadSite } from '../operator/workload-site.ts';
import { describeSite } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const INGRESSES = '/apis/networking.k8s.io/v1/namespaces/default/ingresses';

describeSite('operator-ingress', 'Ingresses', ({ start, startClient, api, read, list, until }) => {
  let site: WorkloadSite;
  let address: string;
  const to = (name: string, port: object = { number: 80 }): object => ({ service: { name, port } });
  const path = (value: string, pathType: string, backend: object): object => ({
    path: value,
    pathType,
    backend,
  });
  const post = (name: string, spec: object, annotations: object = {}): Promise<unknown> =>
    api('POST', INGRESSES, {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'Ingress',
      metadata: { name, annotations },
      spec: { ingressClassName: 'tailscale', ...spec },
    });
  /** Returns the addresses in the status of an Ingress. */
  const shown = (name: string): Promise<object> =>
    until(`${name} to say where it is`, async () => {
      const entry = (await read(`${INGRESSES}/${name}`)).status?.loadBalancer?.ingress?.[0];
      if (entry !== undefined) return entry;
      throw new Error(
        `${JSON.stringify((await site.nodes()).map(({ given_name }) => given_name))}\n${await events(name)}`,
      );
    });
  const ask = (url: string, host = `shop.${DOMAIN}`, headers: object = {}): Promise<WebAnswer> =>
    site.http('client', `http://${address}${url}`, host, headers);
  async function events(name: string): Promise<string> {
    const items = (await list(`${DEFAULT}/events`)) as unknown as {
      reason: string;
      message: string;
      involvedObject: { name: string };
    }[];
    return items
      .filter(({ involvedObject }) => involvedObject.name === name)
      .map(({ reason, message }) => `${reason}: ${message}`)
      .join('\n');
  }

  beforeAll(async () => {
    site = await start();
    await site.serveWeb('front', 'api');
    await startClient();
    await post('shop', {
      tls: [{ hosts: ['shop'] }],
      defaultBackend: to('front'),
      rules: [
        {
          http: {
            paths: [
              path('/api', 'Prefix', to('api', { name: 'http' })),
              path('/login', 'Exact', to('api')),
              path('/later', 'Prefix', to('later')),
            ],
          },
        },
        { host: 'own.example.org', http: { paths: [path('/', 'Prefix', to('api'))] } },
      ],
    });
    await shown('shop');
    [address = ''] = (await until('its node', () => site.node('shop'))).ip_addresses;
  }, 300_000);

  it('say where callers go', async () => {
    const ports = [{ port: 80, protocol: 'TCP' }];
    expect(await shown('shop')).toEqual({ hostname: `shop.${DOMAIN}`, ports });
  });

  it('lead by path to pods, the path as it was', { timeout: 180_000 }, async () => {
    await until('the first answer', async () => ((await ask('/')).name === 'front' ? true : undefined));
    expect(await ask('/api/v1/items?page=2')).toMatchObject({ name: 'api', path: '/api/v1/items?page=2' });
    expect(await ask('/api')).toMatchObject({ name: 'api', path: '/api' });
    expect(await ask('/apis')).toMatchObject({ name: 'front', path: '/apis' });
    expect(await ask('/other/page')).toMatchObject({ name: 'front', path: '/other/page' });
  });

  it('know exact paths', async () => {
    expect(await ask('/login')).toMatchObject({ name: 'api', path: '/login' });
    expect(await ask('/login/')).toMatchObject({ name: 'front', path: '/login/' });
    expect(await ask('/login/more')).toMatchObject({ name: 'front', path: '/login/more' });
  });

  it('know several hosts, and their own addresses', async () => {
    expect(await ask('/', 'own.example.org')).toMatchObject({ name: 'api' });
    expect(await ask('/', address)).toMatchObject({ name: 'front' });
    expect(await ask('/', 'foreign.example.org')).toEqual({ status: 404 });
  });

  it('carry WebSockets, and streams as they come', async () => {
    const answers = await site.converse('client', `ws://${address}/socket`, 3);
    expect(answers.map((text) => JSON.parse(text) as WebAnswer)).toEqual(
      Array.from({ length: 3 }, () => expect.objectContaining({ name: 'front', path: '/socket' }) as unknown),
    );
    const times = await site.lines('client', `http://${address}/?lines=5`);
    expect(times).toHaveLength(5);
    // The lines leave the server 300 ms apart. Buffered lines would arrive together.
    expect(times.at(-1)).toBeGreaterThan(800);
  });

  it('carry a body of 1 GiB each way, byte for byte', { timeout: 260_000 }, async () => {
    const startedMs = performance.now();
    const { up, down, expected } = await site.bodies('client', `http://${address}/`, 1024 ** 3);
    const seconds = Math.round((performance.now() - startedMs) / 1000);
    process.stderr.write(`operator-ingress: 1 GiB up and 1 GiB down in ${seconds} s\n`);
    expect(expected.bytes).toBe(1024 ** 3);
    expect({ up, down }).toEqual({ up: expected, down: expected });
  });

  it('tell pods nothing about callers that a caller made up', async () => {
    const forged = { 'Tailscale-User-Login': 'mallory@example.com' };
    // Only a response from the pod counts, because a proxy that returns an error did not forward the headers.
    const { login } = await until('a response of the pod', async () => {
      const response = await ask('/', undefined, forged);
      return response.name === 'front' ? response : undefined;
    });
    expect(login ?? '').not.toContain('mallory');
  });

  it('say what cannot be done, with field and remedy', async () => {
    const text = await events('shop');
    expect(text).toContain('HTTPSNotEnabled: spec.tls');
    expect(text).toContain(
      'InvalidIngressBackend: spec.rules[0].http.paths[2].backend: Service "later" does not exist',
    );
  });

  it('take a backend up when it comes, without a restart', { timeout: 240_000 }, async () => {
    const pod = objectNameOf({ type: 'ingress', namespace: 'default', name: 'shop' });
    const before = await site.pod(NAMESPACE, `${pod}-0`);
    await api('POST', `${DEFAULT}/services`, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'later' },
      spec: { selector: { app: 'api' }, ports: [{ port: 80, targetPort: PORT }] },
    });
    await until('the path', async () => ((await ask('/later/on')).name === 'api' ? true : undefined));
    expect((await site.pod(NAMESPACE, `${pod}-0`)).metadata.uid).toBe(before.metadata.uid);
  });

  it('leave one name to one of them', { timeout: 240_000 }, async () => {
    await post('rival', { tls: [{ hosts: ['shop'] }], defaultBackend: to('api') });
    await until('a word', async () =>
      (await events('rival')).includes('the tailnet name shop belongs to Ingress default/shop')
        ? true
        : undefined,
    );
    expect(await site.node('shop-1')).toBeUndefined();
    await api('DELETE', `${INGRESSES}/rival`);
    expect(await site.gone('ingress', 'rival')).toBe(true);
  });

  it(
    'are left alone when they are of another class, and cleaned up when they become so',
    { timeout: 240_000 },
    async () => {
      await api('PATCH', `${INGRESSES}/shop`, { spec: { ingressClassName: 'nginx' } });
      expect(await site.gone('ingress', 'shop')).toBe(true);
      const { metadata, status } = await read(`${INGRESSES}/shop`);
      expect(metadata.finalizers ?? []).toEqual([]);
      expect(status?.loadBalancer?.ingress ?? []).toEqual([]);
    },
  );

  it('come back, and go with their node when they are deleted', { timeout: 240_000 }, async () => {
    await api('PATCH', `${INGRESSES}/shop`, { spec: { ingressClassName: 'tailscale' } });
    await shown('shop');
    await api('DELETE', `${INGRESSES}/shop`);
    expect(await site.gone('ingress', 'shop')).toBe(true);
  });
});
