/**
 * Plain requests and upgrades that try to reach another cluster, over HTTP/1.1 and HTTP/2. Each API server stores the
 * requests that it receives, so a test detects a request that reached the wrong cluster.
 */
import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  askHttp2,
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ClusterRig,
  type ScriptedServer,
} from '../support/cluster-rig.ts';
import { parseAccessRules } from '../../src/tailnet/access-rules.ts';
import { KEY, signal, startRig, user } from '../access/rig.ts';

const RULES = [
  { clusters: ['a'], impersonate: { groups: ['admins-of-a'] } },
  { clusters: ['b'], impersonate: { groups: ['viewers-of-b'] } },
];
const UPGRADE = ['Connection', 'Upgrade', 'Upgrade', 'SPDY/3.1'];
const EXEC = '/api/v1/namespaces/n/pods/p/exec?command=sh';

describe('requests for another cluster', () => {
  let [a, b, c]: ScriptedServer[] = [];
  let rig: ClusterRig;
  beforeAll(async () => {
    [a, b, c] = await Promise.all(['a', 'b', 'c'].map((name) => startScripted(name)));
    rig = await openClusterRig({
      content: {
        clusters: ['a', 'b', 'c'].map((name) => ({
          name,
          hosts: [`${name}.test`],
          kubeconfig: { file: `DIR/${name}.yaml` },
        })),
      },
      files: {
        'a.yaml': kubeconfigOf(a!),
        'b.yaml': kubeconfigOf(b!),
        'c.yaml': kubeconfigOf(c!),
      },
      rules: RULES,
    });
  });
  afterAll(async () => {
    await rig.close();
    for (const server of [a, b, c]) await server?.close();
  });

  /** Everything that a server received, as one text. */
  const seenBy = (server: ScriptedServer | undefined): string =>
    JSON.stringify([...(server?.asked ?? []), ...(server?.upgrades ?? [])]);
  const received = (): number =>
    [a, b, c].reduce((sum, one) => sum + one!.asked.length + one!.upgrades.length, 0);

  it.each([
    ['another Host than SNI', '/api', { serverName: 'a.test', host: 'b.test' }, 421],
    ['a shared Host after the SNI of a cluster', '/api', { serverName: 'a.test' }, 421],
    ['a path of another cluster', '/clusters/b/api', { serverName: 'a.test', host: 'a.test' }, 421],
    ['a dot segment', '/clusters/a/../b/api', {}, 400],
    ['an encoded dot segment', '/clusters/a/%2e%2e/b/api', {}, 400],
    ['an encoded slash', '/clusters/a%2fb/api', {}, 400],
    ['a double slash', '//clusters/b/api', {}, 400],
    ['two names', '/clusters/a/clusters/b/api', {}, 400],
    ['an absolute target', 'https://b.test/api', { host: 'a.test' }, 400],
    ['another letter case', '/clusters/B/api', {}, 403],
    ['an encoded name', '/clusters/%62/api', {}, 403],
    ['no name', '/api', {}, 404],
    ['a foreign Host', '/api', { host: 'evil.test' }, 400],
    ['a cluster without a rule', '/clusters/c/api', {}, 403],
    ['the host of a cluster without a rule', '/api', { host: 'c.test' }, 403],
    ['two Host headers', '/api', { host: 'a.test', headers: ['Host', 'b.test'] }, 400],
  ] as const)('are refused: %s', async (_, target, options, status) => {
    const before = received();
    expect((await rig.get(target, options)).status).toBe(status);
    const upgrade = [...('headers' in options ? options.headers : []), ...UPGRADE];
    const path = target.replace(/\/api$/, EXEC);
    expect((await rig.get(path, { ...options, headers: upgrade })).status).toBe(status);
    expect(received()).toBe(before);
  });

  it('are refused with one text for a missing rule and a missing cluster', async () => {
    const bodies = await Promise.all(
      ['/clusters/c/api', '/clusters/nowhere/api'].map(async (path) => (await rig.get(path)).body),
    );
    expect(bodies[0]).toBe(bodies[1]);
  });

  it('over one HTTP/2 connection are refused when the authority changes', async () => {
    const session = rig.http2('a.test');
    try {
      expect((await askHttp2(session, 'a.test', '/api')).body).toBe('a');
      const before = b!.asked.length;
      expect((await askHttp2(session, 'b.test', '/api')).status).toBe(421);
      expect((await askHttp2(session, 'gateway.test', '/clusters/b/api')).status).toBe(421);
      expect((await askHttp2(session, 'a.test', '/clusters/b/api')).status).toBe(421);
      expect(b!.asked.length).toBe(before);
      expect((await askHttp2(session, 'a.test', '/api')).body).toBe('a');
    } finally {
      session.close();
    }
  });

  it('get the cluster of each request on one keep-alive connection of HTTP/1.1', async () => {
    const { host, port, caPem: ca } = rig.gateway;
    const checkServerIdentity = (): undefined => undefined;
    const agent = new Agent({
      keepAlive: true,
      maxSockets: 1,
      host,
      port,
      ca,
      checkServerIdentity,
      servername: '',
    });
    const ports = new Set<number | undefined>();
    for (const name of ['a', 'b', 'c', 'b', 'a']) {
      const headers = { Host: 'gateway.test' };
      const asking = request({ host, port, agent, headers, path: `/clusters/${name}/api` }).end();
      const [response] = (await once(asking, 'response')) as [IncomingMessage];
      ports.add(response.socket.localPort);
      const body = await text(response);
      if (name === 'c') expect(response.statusCode).toBe(403);
      else expect(body).toBe(name);
    }
    agent.destroy();
    expect(ports.size).toBe(1);
    expect(c!.asked).toEqual([]);
  });

  it('keep the groups, credentials, warnings and connections of their own cluster', async () => {
    const session = rig.http2('gateway.test');
    try {
      const answers = await Promise.all(
        Array.from({ length: 40 }, async (_, index) => {
          const name = index % 2 === 0 ? 'a' : 'b';
          const path = `/clusters/${name}/api?n=${index}`;
          const answer = await (index % 4 < 2 ? rig.get(path) : askHttp2(session, 'gateway.test', path));
          return { name, answer };
        }),
      );
      for (const { name, answer } of answers) {
        expect(answer.body).toBe(name);
        expect(String(answer.headers['warning'])).toContain(`"${name}"`);
      }
    } finally {
      session.close();
    }
    await rig.get(`/clusters/a${EXEC}`, { headers: UPGRADE });
    await rig.get(`/clusters/b${EXEC}`, { headers: UPGRADE });
    expect(seenBy(a)).toContain('admins-of-a');
    expect(seenBy(a)).not.toMatch(/viewers-of-b|token-of-b|clusters/);
    expect(seenBy(b)).toContain('viewers-of-b');
    expect(seenBy(b)).not.toMatch(/admins-of-a|token-of-a|clusters/);
    expect(b!.upgrades.at(-1)?.path).toBe(EXEC);
    expect(seenBy(c)).toBe('[]');
  });
});

describe('an approver of one cluster', () => {
  it('cannot see or decide requests for another one, at any host name of the gateway', async () => {
    const access = await startRig();
    access.now = Date.now();
    const servers = await Promise.all(['a', 'b'].map((name) => startScripted(name)));
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-approver-'));
    await writeFile(join(directory, 'late.key'), KEY.toString('base64'), { mode: 0o600 });
    const rig = await openClusterRig({
      content: {
        clusters: servers.map(({ name }) => ({
          name,
          hosts: [`${name}.test`],
          kubeconfig: { file: `DIR/${name}.yaml` },
        })),
      },
      files: Object.fromEntries(servers.map((server) => [`${server.name}.yaml`, kubeconfigOf(server)])),
      rules: [
        { clusters: ['a'], impersonate: { groups: ['viewers'] } },
        { clusters: ['b'], impersonate: { groups: ['leads'] } },
      ],
      accessRules: [{ request: { groups: ['sre'] }, clusters: ['a'] }],
      settings: {
        portal: true,
        kubeconfig: access.api.kubeconfig,
        lateKeyFile: join(directory, 'late.key'),
      },
    });
    const requests = '/-/recordings/api/v1/access/requests';
    const request = async (cluster: string): Promise<string> => {
      const rule = { request: { groups: ['sre'] }, approvers: { groups: ['leads'] } };
      const identity = user('mallory', [rule]);
      const own = { user: identity.login, groups: [], extra: [] };
      const ask = { groups: ['sre'], user: undefined, writes: false, reason: '', durationMs: undefined };
      const rules = parseAccessRules(identity.capabilities);
      const wanted = { identity, own, rules, recording: { mode: 'off' }, cluster, ...ask } as const;
      return (await access.gateway(identity).access.request(wanted, signal)).id;
    };
    const approve = async (id: string, host: string): Promise<number> =>
      (await rig.get(`${requests}/${id}/approve`, { host, method: 'POST', headers: ['Content-Length', '0'] }))
        .status;
    try {
      const [forA, forB] = [await request('a'), await request('b')];
      for (const host of ['gateway.test', 'a.test', 'b.test']) {
        expect((await rig.get(requests, { host })).body).not.toContain(forA);
        expect(await approve(forA, host)).toBe(403);
      }
      const send = async (query: string, host: string): Promise<string> => {
        const headers = ['Content-Length', '0'];
        const target = `${requests}?group=sre${query}`;
        const { status, body } = await rig.get(target, { host, method: 'POST', headers });
        return status === 201 ? String(JSON.parse(body).cluster) : `${status}`;
      };
      expect(await send('&cluster=a', 'gateway.test')).toBe('a');
      expect(await send('', 'a.test')).toBe('a');
      // the caller has no rule for cluster c, and at the hostname of cluster b only the rules for b apply
      for (const [name, host] of [
        ['c', 'gateway.test'],
        ['c', 'a.test'],
        ['nowhere', 'gateway.test'],
        ['a', 'b.test'],
      ] as const)
        expect(await send(`&cluster=${name}`, host)).toBe('403');
      expect((await rig.get(requests)).body).toContain(forB);
      expect(await approve(forB, 'gateway.test')).toBe(200);
    } finally {
      await rig.close();
      for (const server of servers) await server.close();
      await access[Symbol.asyncDispose]();
    }
  });
});
