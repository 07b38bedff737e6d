/** Sources, reload, failover and isolation of the clusters of one gateway. */
import { rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createClusterServer } from '../../src/compose/clusters.ts';
import { GATEWAY_SETTINGS } from '../../src/config/gateway.ts';
import { guardedLookup } from '../../src/kube/guarded-lookup.ts';
import { parseKubeconfigContext } from '../../src/kube/kubeconfig.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import {
  askHttp2,
  createServerCa,
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ClusterRig,
  type ScriptedServer,
} from '../support/cluster-rig.ts';
import { startApiServerDouble } from '../support/api-server-double.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';
import { listenOn } from '../support/listen.ts';
import { settingsOf } from '../support/settings.ts';

async function scripted(...options: Parameters<typeof startScripted>): Promise<ScriptedServer> {
  const server = await startScripted(...options);
  onTestFinished(() => server.close().catch(() => {}));
  return server;
}

async function open(options: Parameters<typeof openClusterRig>[0]): Promise<ClusterRig> {
  const rig = await openClusterRig(options);
  onTestFinished(() => rig.close());
  return rig;
}

const eventually = { timeout: 15_000, interval: 50 };
const entry = (name: string, extra: object = {}): object => ({
  name,
  kubeconfig: { file: `DIR/${name}.yaml` },
  ...extra,
});

describe('the clusters of a gateway', () => {
  it('reload without a restart, and keep the last good state', async () => {
    const [a, b] = [await scripted('a'), await scripted('b')];
    const rig = await open({
      content: { clusters: [entry('a')], discover: [{ directory: 'DIR/d' }] },
      files: { 'a.yaml': kubeconfigOf(a) },
    });
    const read = async (name: string): Promise<string> => (await rig.get(`/clusters/${name}/api`)).body;
    expect(await read('a')).toBe('a');
    expect((await rig.get('/clusters/b/api')).status).toBe(403);

    const file = join(rig.directory, 'd', 'b.yaml');
    await writeFile(file, kubeconfigOf(b));
    await vi.waitFor(async () => expect(await read('b')).toBe('b'), eventually);

    await writeFile(file, 'clusters: [');
    await vi.waitFor(async () => expect(await rig.readiness()).toContain('b.yaml'), eventually);
    expect(await rig.readiness()).toMatch(/^ok\n/);
    expect(await rig.metrics()).toContain('tailcast_cluster_problems 1');
    expect(await read('b')).toBe('b');

    await rig.configure({ clusters: 'nonsense' });
    await vi.waitFor(
      async () => expect(await rig.metrics()).toContain('tailcast_cluster_problems 2'),
      eventually,
    );
    expect([await read('a'), await read('b')]).toEqual(['a', 'b']);

    await rm(file);
    await vi.waitFor(async () => expect((await rig.get('/clusters/b/api')).status).toBe(403), eventually);
    expect(await read('a')).toBe('a');
  });

  it('never give the name of a cluster to another one', async () => {
    const [a, other] = [await scripted('a'), await scripted('other')];
    const rig = await open({
      content: { discover: [{ directory: 'DIR/d' }] },
      files: { 'd/a.yaml': kubeconfigOf(a) },
    });
    const file = join(rig.directory, 'd', 'a.yaml');
    await writeFile(file, kubeconfigOf(other));
    await vi.waitFor(
      async () => expect(await rig.readiness()).toContain('belonged to another cluster'),
      eventually,
    );
    expect((await rig.get('/clusters/a/api')).body).toBe('a');
    // a kubeconfig that names the same CA and another port
    const moved = await scripted('moved', await createServerCa());
    await writeFile(file, kubeconfigOf({ ...moved, ca: a.ca }));
    await vi.waitFor(
      async () => expect(await rig.metrics()).toContain('tailcast_cluster_problems 0'),
      eventually,
    );
    // the certificate of the server at this port is from another CA, so the 502 proves that the gateway uses the new
    // kubeconfig
    await vi.waitFor(async () => expect((await rig.get('/clusters/a/api')).status).toBe(502), eventually);
    expect(other.asked).toEqual([]);
  });

  it('never give the name of a cluster to another one if both use the CAs of the OS', async () => {
    const [a, other] = [await scripted('a'), await scripted('other')];
    const noCa = { 'certificate-authority-data': undefined };
    const rig = await open({
      content: { clusters: [entry('b')], discover: [{ directory: 'DIR/d' }] },
      files: { 'b.yaml': kubeconfigOf(a), 'd/a.yaml': kubeconfigOf(a, noCa) },
    });
    await writeFile(join(rig.directory, 'd', 'a.yaml'), kubeconfigOf(other, noCa));
    await vi.waitFor(
      async () => expect(await rig.readiness()).toContain('belonged to another cluster'),
      eventually,
    );
  });

  it('of a discovery cannot stop reloads with the host name of another cluster', async () => {
    const [a, b] = [await scripted('a'), await scripted('b')];
    const content = (...names: readonly string[]): object => ({
      clusters: names.map((name) =>
        entry(name, { kubeconfig: { file: 'DIR/a.yaml' }, hosts: [`${name}.test`] }),
      ),
      discover: [{ directory: 'DIR/d', hosts: ['prod.test'] }],
    });
    const rig = await open({
      content: content('prod'),
      files: { 'a.yaml': kubeconfigOf(a), 'd/hostile.yaml': kubeconfigOf(b) },
    });
    const read = async (host: string): Promise<string> => (await rig.get('/api', { host })).body;
    expect(await read('prod.test')).toBe('a');
    expect(await rig.readiness()).toContain('the host name prod.test is already used by clusters: prod');
    await rig.configure(content('prod', 'new'));
    await vi.waitFor(async () => expect(await read('new.test')).toBe('a'), eventually);
    expect(await read('prod.test')).toBe('a');
  });

  it('of API objects are never dialled at an address of this machine', async () => {
    const config = settingsOf(GATEWAY_SETTINGS, {});
    const context = parseKubeconfigContext(kubeconfigOf(await scripted('a')), 'Secret capi/a');
    const lookupOf = async (isTrusted: boolean): Promise<unknown> => {
      const spec = { name: 'a', hosts: [], addresses: [], service: undefined, kcp: false } as const;
      const identity = 'impersonate' as const;
      const one = { ...spec, identity, listen: undefined, endpoints: [], context, isTrusted };
      const server = await createClusterServer(one, {
        config,
        environment: new Map(),
        log: createSilentLogger(),
      });
      return server.lookup;
    };
    expect(await lookupOf(false)).toBe(guardedLookup);
    expect(await lookupOf(true)).toBeUndefined();
  });

  it('do not replace each other if two sources describe one name', async () => {
    const [a, other] = [await scripted('a'), await scripted('other')];
    const rig = await open({
      content: { clusters: [entry('a')], discover: [{ directory: 'DIR/d' }] },
      files: { 'a.yaml': kubeconfigOf(a), 'd/a.yaml': kubeconfigOf(other) },
    });
    expect(await rig.readiness()).toContain('the name a is already used');
    expect((await rig.get('/clusters/a/api')).body).toBe('a');
  });

  it('lose no request while 200 of them reload', async () => {
    const a = await scripted('a');
    const names = Array.from({ length: 200 }, (_, index) => `c${index}`);
    const kubeconfigs = names.map((name) => [`${name}.yaml`, kubeconfigOf(a)] as const);
    const rig = await open({
      content: { clusters: names.map((name) => entry(name)) },
      files: Object.fromEntries(kubeconfigs),
    });
    let answered = 0;
    let done = false;
    const tokens = new Map<string, string>();
    const client = async (first: number): Promise<void> => {
      const session = rig.http2('gateway.test');
      for (let at = first; !done; at = (at + 7) % names.length) {
        const path = `/clusters/${names[at]!}/api?c=${names[at]!}`;
        const { status, body } = await (first % 2 === 0
          ? askHttp2(session, 'gateway.test', path)
          : rig.get(path));
        expect([status, body]).toEqual([200, 'a']);
        answered += 1;
        for (const { path: asked, headers } of a.asked.splice(0))
          tokens.set(
            asked.slice(asked.indexOf('=') + 1),
            headers.find((one) => one.startsWith('Bearer ')) ?? '',
          );
      }
      session.close();
    };
    const clients = Promise.all([0, 1, 2, 3].map(client));
    for (const round of ['one', 'two']) {
      for (const [file] of kubeconfigs)
        await writeFile(join(rig.directory, file), kubeconfigOf(a, {}, { token: round }));
      const renewed = (): boolean => names.every((name) => tokens.get(name) === `Bearer ${round}`);
      await Promise.race([vi.waitFor(() => expect(renewed()).toBe(true), eventually), clients]);
    }
    done = true;
    await clients;
    expect(answered).toBeGreaterThan(2 * names.length);
  });

  it('fail over to another API server, without a second request', async () => {
    const ca = await createServerCa();
    const servers = await Promise.all(['one', 'two', 'three'].map((name) => scripted(name, ca)));
    const [one, two, three] = servers;
    const endpoints = servers.map(({ port }) => `127.0.0.1:${port}`);
    const rig = await open({
      content: { clusters: [entry('a', { endpoints })] },
      files: { 'a.yaml': kubeconfigOf(one!) },
    });
    const ask = async (): Promise<string> =>
      (await rig.get('/clusters/a/api', { method: 'POST', headers: ['Content-Length', '0'] })).body;
    await vi.waitFor(async () => expect(['one', 'two', 'three']).toContain(await ask()), eventually);
    await one!.close();
    for (let count = 0; count < 12; count++) expect(['two', 'three']).toContain(await ask());
    two!.ready = 503;
    const label = `tailcast_cluster_endpoint_up{cluster="a",endpoint="127.0.0.1:${two!.port}"} 0`;
    await vi.waitFor(async () => expect(await rig.metrics()).toContain(label), eventually);
    const before = two!.asked.length;
    for (let count = 0; count < 6; count++) expect(await ask()).toBe('three');
    expect(two!.asked.length).toBe(before);
    const posts = servers.flatMap(({ asked }) => asked).filter(({ method }) => method === 'POST');
    const ids = posts.map(({ headers }) => headers[headers.indexOf('Audit-ID') + 1]);
    expect(new Set(ids).size).toBe(posts.length);
    three!.ready = 401;
    await vi.waitFor(async () => expect(await ask()).toBe('three'), eventually);
  });

  it('use the API server that works, next to one that never responds and one of another CA', async () => {
    const [a, foreign] = [await scripted('a'), await scripted('foreign')];
    const silent = createServer(() => {});
    onTestFinished(() => void silent.close());
    const endpoints = [await listenOn(silent), foreign.port, a.port].map((port) => `127.0.0.1:${port}`);
    const rig = await open({
      content: { clusters: [entry('a', { endpoints })] },
      files: { 'a.yaml': kubeconfigOf(a) },
    });
    const ask = () => rig.get('/clusters/a/api', { method: 'POST', headers: ['Content-Length', '0'] });
    const startedAt = performance.now();
    for (let count = 0; count < 9; count++) expect((await ask()).body).toBe('a');
    // no request waited for the connection timeout of the silent server
    expect(performance.now() - startedAt).toBeLessThan(15_000);
    const states = endpoints.map((endpoint, index) => {
      const labels = `{cluster="a",endpoint="${endpoint}"}`;
      return `tailcast_cluster_endpoint_up${labels} ${index === 2 ? 1 : 0}`;
    });
    await vi.waitFor(async () => {
      const metrics = await rig.metrics();
      for (const state of states) expect(metrics).toContain(state);
    }, eventually);
    expect(foreign.asked).toEqual([]);
    expect(a.asked).toHaveLength(9);
  });

  it('do not block each other', async () => {
    const [a, b] = [await scripted('a'), await scripted('b')];
    // a server that accepts connections but never sends a byte
    const silent = createServer(() => {});
    onTestFinished(() => void silent.close());
    const c = { name: 'c', port: await listenOn(silent), ca: a.ca };
    const rig = await open({
      content: { clusters: [entry('a'), entry('b'), entry('c')] },
      files: { 'a.yaml': kubeconfigOf(a), 'b.yaml': kubeconfigOf(b), 'c.yaml': kubeconfigOf(c) },
      settings: { maxRequests: 8, requestsPerUser: 8 },
    });
    const hanging = Array.from({ length: 8 }, () => rig.get('/clusters/a/hang').then(({ status }) => status));
    await vi.waitFor(() => expect(a.asked).toHaveLength(4), eventually);
    for (let count = 0; count < 3; count++) rig.get('/clusters/c/api').catch(() => {});
    const times: number[] = [];
    while (times.length < 100) {
      const startedAt = performance.now();
      expect((await rig.get('/clusters/b/api')).body).toBe('b');
      times.push(performance.now() - startedAt);
    }
    // if cluster a or c blocked cluster b, a request would wait several seconds for a timeout
    expect(times.toSorted((one, other) => one - other).at(-2)).toBeLessThan(1000);
    await a.close();
    const statuses = await Promise.all(hanging);
    expect(statuses.filter((status) => status === 429)).toHaveLength(4);
  });

  it('need a file with at least one usable cluster at the start', async () => {
    const a = await scripted('a');
    const files = { 'a.yaml': kubeconfigOf(a) };
    await expect(openClusterRig({ content: {} })).rejects.toThrow('no cluster can be used');
    await expect(openClusterRig({ content: { clusters: [entry('A')] }, files })).rejects.toThrow('DNS label');
    await expect(openClusterRig({ content: { clusters: [entry('a'), entry('a')] }, files })).rejects.toThrow(
      'twice',
    );
    const service = { clusters: [entry('a', { service: 'svc:a' })] };
    await expect(openClusterRig({ content: service, files })).rejects.toThrow('identity=tailscale');
    const tailscaled = await startLocalApiDouble();
    onTestFinished(() => tailscaled.close());
    tailscaled.status = { ...tailscaled.status, Version: '1.98.2' };
    const settings = { identity: 'tailscale', socket: tailscaled.socketPath };
    await expect(openClusterRig({ content: service, files, settings })).rejects.toThrow('1.98.2');
  });

  it('with kcp review the rights of the account in a workspace at the start', async () => {
    const kcp = await startApiServerDouble();
    onTestFinished(() => kcp.close());
    kcp.prefix = '/clusters/root';
    const server = { name: 'kcp', port: kcp.port, ca: kcp.caPem };
    const openKcp = (): Promise<ClusterRig> =>
      open({
        content: { clusters: [entry('a', { kcp: true, hosts: ['a.test'] })] },
        files: { 'a.yaml': kubeconfigOf(server) },
      });
    const reviews = (): readonly string[] => kcp.requests.filter((line) => line.includes('review'));
    const rig = await openKcp();
    // the gateway checks its account twice; the last request of each check is a SelfSubjectRulesReview
    const ends = (): number => reviews().filter((line) => line.endsWith('/selfsubjectrulesreviews')).length;
    await vi.waitFor(() => expect(ends()).toBe(2), eventually);
    expect(reviews().filter((line) => !line.startsWith('POST /clusters/root/apis/'))).toEqual([]);
    kcp.allowed = () => false;
    const warned = await openKcp();
    await vi.waitFor(() => expect(warned.log()).toContain('the account may not impersonate'), eventually);
    expect(rig.log()).not.toContain('check the account');
  });
});
