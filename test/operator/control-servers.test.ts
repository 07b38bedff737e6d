import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TailnetControl } from '../../src/operator/auth-keys.ts';
import { createHeadscaleControl } from '../../src/operator/headscale-api.ts';
import { createTailscaleControl } from '../../src/operator/tailscale-api.ts';

interface Seen {
  readonly method: string;
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: string;
}
type Answer = { readonly status: number; readonly body?: unknown };

let seen: Seen[];
let answer: (request: Seen) => Answer;
let baseUrl: string;
let close: () => Promise<void>;
const signal = new AbortController().signal;
const NOW = Date.UTC(2026, 10, 21, 9);

beforeEach(async () => {
  seen = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => (body += chunk.toString()));
    request.on('end', () => {
      const { method = '', url: path = '', headers } = request;
      const one = { method, path, authorization: headers.authorization, body };
      seen.push(one);
      const { status, body: json } = answer(one);
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(json === undefined ? '' : JSON.stringify(json));
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(() => done()));
  };
});

afterEach(() => close());

describe('Tailscale’s API', () => {
  let nowMs: number;
  let control: TailnetControl;
  let tokens: number;
  let api: (request: Seen) => Answer;

  beforeEach(() => {
    nowMs = NOW;
    tokens = 0;
    api = () => ({ status: 200, body: {} });
    answer = (request) => {
      if (request.path !== '/api/v2/oauth/token') return api(request);
      tokens += 1;
      return { status: 200, body: { access_token: `token-${tokens}`, expires_in: 3600 } };
    };
    control = createTailscaleControl({
      baseUrl: `${baseUrl}/`,
      loginServer: 'https://login.example.com',
      credentials: async () => ({ clientId: 'id', clientSecret: 'se&cret' }),
      nowMs: () => nowMs,
      signal,
    });
  });

  it('makes keys for one node, approved and tagged, that end soon', async () => {
    api = () => ({ status: 200, body: { id: 'k1', key: 'tskey-auth-1', expires: '2026-11-21T10:00:00Z' } });
    const key = await control.createKey({
      tags: ['tag:a'],
      lifetimeMs: 3_600_000,
      description: 'x'.repeat(60),
    });
    expect(key).toEqual({ id: 'k1', key: 'tskey-auth-1', expiresAtMs: Date.UTC(2026, 10, 21, 10) });
    expect(seen[0]).toMatchObject({
      method: 'POST',
      body: 'grant_type=client_credentials&client_id=id&client_secret=se%26cret',
    });
    expect(seen[1]).toMatchObject({
      method: 'POST',
      path: '/api/v2/tailnet/-/keys',
      authorization: 'Bearer token-1',
    });
    expect(JSON.parse(seen[1]!.body)).toEqual({
      capabilities: {
        devices: { create: { reusable: false, ephemeral: false, preauthorized: true, tags: ['tag:a'] } },
      },
      expirySeconds: 3600,
      description: 'x'.repeat(50),
    });
  });

  it('keeps a token until shortly before its end, and gets a new one when it is refused', async () => {
    await expect(control.deleteDevice('n1')).resolves.toBe(true);
    await control.deleteDevice('n1');
    expect(tokens).toBe(1);
    nowMs += 3_541_000;
    await control.deleteDevice('n1');
    expect(tokens).toBe(2);
    api = ({ authorization }) => ({ status: authorization === 'Bearer token-2' ? 401 : 200 });
    await control.deleteDevice('n1');
    expect(tokens).toBe(3);
    api = () => ({ status: 401, body: { message: 'no' } });
    await expect(control.deleteDevice('n1')).rejects.toThrow('deleting a device: 401 no');
    expect(tokens).toBe(4);
  });

  it('tells nodes that are there from those that are not', async () => {
    api = () => ({ status: 200, body: { hostname: 'rec-0', addresses: ['100.64.0.1'], nodeId: 'n1' } });
    await expect(control.device('n/1')).resolves.toEqual({
      hostname: 'rec-0',
      addresses: ['100.64.0.1'],
    });
    expect(seen.at(-1)?.path).toBe('/api/v2/device/n%2F1');
    api = () => ({ status: 404, body: { message: 'no such device' } });
    await expect(control.device('n1')).resolves.toBeUndefined();
    await expect(control.deleteDevice('n1')).resolves.toBe(false);
    await expect(control.revokeKey('k1')).resolves.toBeUndefined();
    await expect(control.keyUsable('k1')).resolves.toBe(false);
    api = () => ({ status: 200, body: { id: 'k1', invalid: true } });
    await expect(control.keyUsable('k1')).resolves.toBe(false);
    api = () => ({ status: 200, body: { id: 'k1' } });
    await expect(control.keyUsable('k1')).resolves.toBe(true);
  });

  it('sets tags', async () => {
    await control.setTags('n1', ['tag:a', 'tag:b']);
    expect(seen.at(-1)).toMatchObject({
      method: 'POST',
      path: '/api/v2/device/n1/tags',
      body: '{"tags":["tag:a","tag:b"]}',
    });
  });

  it('reads, writes and removes Services, and repeats the addresses that were chosen', async () => {
    const { services } = control;
    const service = {
      name: 'svc:prod',
      tags: ['tag:a'],
      ports: ['tcp:443'],
      comment: 'x',
      annotations: { owner: 'me' },
      addrs: [],
    };
    const path = '/api/v2/tailnet/-/vip-services/svc%3Aprod';
    await services?.put(service);
    expect(seen.at(-1)).toMatchObject({ method: 'PUT', path });
    expect(JSON.parse(seen.at(-1)!.body)).not.toHaveProperty('addrs');
    await services?.put({ ...service, addrs: ['100.100.0.1'] });
    expect(JSON.parse(seen.at(-1)!.body)).toEqual({ ...service, addrs: ['100.100.0.1'] });
    api = () => ({ status: 200, body: { name: 'svc:prod', addrs: ['100.100.0.1'], tags: ['tag:a'] } });
    await expect(services?.get('svc:prod')).resolves.toEqual({
      name: 'svc:prod',
      tags: ['tag:a'],
      ports: [],
      comment: '',
      annotations: {},
      addrs: ['100.100.0.1'],
    });
    api = () => ({ status: 200, body: { vipServices: [{ name: 'svc:prod' }, { name: 'svc:other' }] } });
    expect((await services?.list())?.map(({ name }) => name)).toEqual(['svc:prod', 'svc:other']);
    api = () => ({ status: 404, body: { message: 'not found' } });
    await expect(services?.get('svc:prod')).resolves.toBeUndefined();
    await expect(services?.remove('svc:prod')).resolves.toBeUndefined();
    expect(seen.at(-1)).toMatchObject({ method: 'DELETE', path });
    api = () => ({ status: 403, body: { message: 'no scope' } });
    for (const refused of [
      () => services?.get('svc:prod'),
      () => services?.list(),
      () => services?.put(service),
      () => services?.remove('svc:prod'),
    ]) {
      await expect(refused()).rejects.toMatchObject({ code: 'CONTROL_FAILED' });
    }
  });

  it('says what was refused, and no secret', async () => {
    answer = () => ({ status: 403, body: { message: 'not allowed' } });
    const failure = await control.device('n1').catch((error: Error) => error);
    expect(failure).toMatchObject({
      code: 'CONTROL_FAILED',
      message: expect.stringContaining('getting an access token: 403 not allowed'),
    });
    expect((failure as Error).message).not.toContain('cret');
  });

  it('says that there was no answer', async () => {
    await close();
    close = async () => undefined;
    await expect(control.device('n1')).rejects.toMatchObject({
      code: 'CONTROL_FAILED',
      message: expect.stringContaining('connection refused'),
    });
  });

  it('lists all nodes by the name that state Secrets have for them', async () => {
    const device = {
      id: '92960230385',
      nodeId: 'n292kg92CNTRL',
      name: 'db.lab.ts.net',
      tags: ['tag:k8s'],
      machineKey: 'mkey:50d2',
    };
    api = () => ({ status: 200, body: { devices: [device, { nodeId: 'nB', hostname: 'laptop' }] } });
    await expect(control.allDevices()).resolves.toEqual([
      { id: 'n292kg92CNTRL', name: 'db.lab.ts.net', tags: ['tag:k8s'], machineKey: 'mkey:50d2' },
      { id: 'nB', name: 'laptop', tags: [], machineKey: '' },
    ]);
    expect(seen.at(-1)).toMatchObject({ method: 'GET', path: '/api/v2/tailnet/-/devices' });
  });

  it('lists them in a large tailnet too', async () => {
    const devices = Array.from({ length: 10_000 }, (_, index) => ({
      nodeId: `n${index}`,
      clientConnectivity: 'x'.repeat(1000),
    }));
    api = () => ({ status: 200, body: { devices } });
    expect(await control.allDevices()).toHaveLength(10_000);
  });
});

describe('Headscale’s API', () => {
  let control: TailnetControl;

  beforeEach(() => {
    control = createHeadscaleControl({
      baseUrl,
      loginServer: 'https://login.example.com',
      apiKey: async () => 'hskey',
      nowMs: () => NOW,
      signal,
    });
  });

  it('has no Services and issues no certificates', () => {
    expect(control.services).toBeUndefined();
    expect(control.issuesCertificates).toBe(false);
  });

  it('makes keys for one node with tags', async () => {
    answer = () => ({ status: 200, body: { preAuthKey: { id: '12', key: 'hs-1' } } });
    const key = await control.createKey({ tags: ['tag:a'], lifetimeMs: 3_600_000, description: 'x' });
    expect(key).toEqual({ id: '12', key: 'hs-1', expiresAtMs: NOW + 3_600_000 });
    expect(seen[0]).toMatchObject({
      method: 'POST',
      path: '/api/v1/preauthkey',
      authorization: 'Bearer hskey',
    });
    expect(JSON.parse(seen[0]!.body)).toEqual({
      reusable: false,
      ephemeral: false,
      expiration: '2026-11-21T10:00:00.000Z',
      aclTags: ['tag:a'],
    });
  });

  it('knows which keys still let a node in', async () => {
    answer = () => ({
      status: 200,
      body: {
        preAuthKeys: [
          { id: '1', used: true, expiration: '2027-01-01T00:00:00Z' },
          { id: '2', expiration: '2026-01-01T00:00:00Z' },
          { id: 3, used: false, expiration: '2027-01-01T00:00:00Z' },
        ],
      },
    });
    const usable = await Promise.all(['1', '2', '3', '4'].map((id) => control.keyUsable(id)));
    expect(usable).toEqual([false, false, true, false]);
  });

  it.each([
    { status: 404, body: {} },
    { status: 500, body: { code: 5, message: 'node not found' } },
    { status: 500, body: { code: 2, message: 'record not found' } },
  ])('takes what is gone as gone: $status $body', async (gone) => {
    answer = () => gone;
    await expect(control.device('4')).resolves.toBeUndefined();
    await expect(control.deleteDevice('4')).resolves.toBe(false);
  });

  it('does not take a failure for an absence', async () => {
    answer = () => ({ status: 500, body: { code: 2, message: 'database is locked' } });
    await expect(control.device('4')).rejects.toThrow('reading a node: 500 database is locked');
    await expect(control.deleteDevice('4')).rejects.toThrow('database is locked');
  });

  it('lists all nodes with their tags', async () => {
    answer = () => ({
      status: 200,
      body: {
        nodes: [
          { id: '4', name: 'rec', givenName: 'rec-x', tags: ['tag:k8s'], machineKey: 'mkey:50d2' },
          { id: 5, name: 'laptop' },
        ],
      },
    });
    await expect(control.allDevices()).resolves.toEqual([
      { id: '4', name: 'rec-x', tags: ['tag:k8s'], machineKey: 'mkey:50d2' },
      { id: '5', name: 'laptop', tags: [], machineKey: '' },
    ]);
    expect(seen[0]).toMatchObject({ method: 'GET', path: '/api/v1/node' });
  });

  it('shows nodes and sets their tags', async () => {
    answer = () => ({
      status: 200,
      body: { node: { id: '4', name: 'rec-0', givenName: 'rec-0-x', ipAddresses: ['100.64.0.4'] } },
    });
    await expect(control.device('4')).resolves.toEqual({
      hostname: 'rec-0-x',
      addresses: ['100.64.0.4'],
    });
    await control.setTags('4', ['tag:b']);
    expect(seen.at(-1)).toMatchObject({
      method: 'POST',
      path: '/api/v1/node/4/tags',
      body: '{"tags":["tag:b"]}',
    });
  });
});
