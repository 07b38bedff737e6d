import type { ServerResponse } from 'node:http';
import { once } from 'node:events';
import { connect } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { openPortal } from '../../src/compose/portal.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createEvents } from '../../src/observe/events.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { pageHeaders } from '../../src/portal/page-headers.ts';
import { rawClient } from '../proxy/rig.ts';
import { startRecorderSpy } from '../support/recorder-spy.ts';
import { CAST, CUT, field, ID, LIST, openPortalRig, stack, type PortalRig } from './portal-rig.ts';

describe.each(['h1', 'h2'] as const)('the portal over %s', (protocol) => {
  it('shows the page under its path, with a policy that lets it reach nothing else', async () => {
    const { client, log, accounted } = await openPortalRig();
    const { ask } = client(protocol);
    const moved = await ask({ path: '/-/recordings?a=1' });
    expect([moved.status, field(moved.rawHeaders, 'location')]).toEqual([308, '/-/recordings/?a=1']);
    const page = await ask({ path: '/-/recordings/' });
    expect([page.status, page.body.toString()]).toEqual([200, '<!doctype html>']);
    const policy = field(page.rawHeaders, 'content-security-policy') ?? '';
    expect(policy).toContain("default-src 'none'");
    expect(policy).toMatch(/script-src https:\/\/[^ ]+\/-\/recordings\/assets\/;/);
    expect(policy).toMatch(
      /connect-src https:\/\/\S+\/-\/recordings\/api\/ wss:\/\/\S+\/-\/recordings\/api\/;/,
    );
    expect(policy).not.toMatch(/'self'|unsafe-inline|'unsafe-eval'/);
    const head = await ask({ path: '/-/recordings/assets/index-x.js', method: 'HEAD' });
    expect([head.status, head.body.length]).toEqual([200, 0]);
    expect(field(head.rawHeaders, 'content-length')).toBe('2');
    const asset = '/-/recordings/assets/index-x.js';
    const tag = field(head.rawHeaders, 'etag') ?? '';
    const same = await ask({ path: asset, headers: ['If-None-Match', tag] });
    expect([same.status, same.body.length]).toEqual([304, 0]);
    expect((await ask({ path: '/-/recordings/assets/other.js' })).status).toBe(404);
    await accounted(5);
    expect(log).toMatchObject([308, 200, 200, 304, 404].map((status) => ({ status })));
  });

  it('sends the page with each request, since the packages make tags of size and time only', async () => {
    const { ask } = (await openPortalRig()).client(protocol);
    const path = '/-/recordings/';
    const { rawHeaders } = await ask({ path });
    expect(field(rawHeaders, 'cache-control')).toBe('no-cache');
    expect(field(rawHeaders, 'etag')).toBeUndefined();
    expect(field(rawHeaders, 'last-modified')).toBeUndefined();
    const later = new Date(Date.now() + 1e9).toUTCString();
    for (const condition of [
      ['If-None-Match', '"a"'],
      ['If-Modified-Since', later],
      ['Range', 'bytes=0-1'],
    ]) {
      const { status, body } = await ask({ path, headers: condition });
      expect([status, body.toString()]).toEqual([200, '<!doctype html>']);
    }
  });

  it('counts the bytes of a file once it is sent', async () => {
    const { client, log, accounted } = await openPortalRig();
    const path = '/-/recordings/assets/index-x.js';
    for (const method of ['GET', 'HEAD']) await client(protocol).ask({ path, method });
    await accounted(2);
    expect(log).toMatchObject([{ responseBytes: 2 }, { responseBytes: 0 }]);
  });

  it('sends a file packed to who takes it so, under a tag of its own', async () => {
    const { ask } = (await openPortalRig()).client(protocol);
    const path = '/-/recordings/assets/index-x.js';
    const tags = new Set<string | undefined>();
    for (const [takes, coding, text] of [
      ['gzip, br', 'br', 'packed'],
      ['gzip, brotli', undefined, '1;'],
    ] as const) {
      const accept = ['Accept-Encoding', takes];
      const { status, rawHeaders, body } = await ask({ path, headers: accept });
      expect([status, body.toString()]).toEqual([200, text]);
      expect(field(rawHeaders, 'content-encoding')).toBe(coding);
      expect(field(rawHeaders, 'content-type')).toContain('javascript');
      const tag = field(rawHeaders, 'etag') ?? '';
      tags.add(tag);
      expect(field(rawHeaders, 'vary')).toBe('accept-encoding');
      const same = await ask({ path, headers: [...accept, 'If-None-Match', tag] });
      expect([same.status, same.body.length, field(same.rawHeaders, 'etag')]).toEqual([304, 0, tag]);
    }
    expect(tags.size).toBe(2);
  });

  it('tells who waits for a recorder when the gateway ends', async () => {
    const { client, recorder, shutDown, accounted, log } = await openPortalRig();
    recorder.script = () => undefined;
    const asked = client(protocol).ask({ path: LIST });
    await recorder.until(() => recorder.requests.length === 1);
    shutDown();
    const { status, body } = await asked;
    expect([status, body.toString()]).toEqual([503, expect.stringContaining('the gateway is shutting down')]);
    await accounted(1);
    expect(log).toMatchObject([{ status: 503, error: 'RECORDER_UNAVAILABLE' }]);
  });

  it('hands on what a recorder says, and asks for parts and changes', async () => {
    const { client, recorder, log } = await openPortalRig();
    const { ask } = client(protocol);
    recorder.script = (request, response) => {
      const part = request.headers.range === 'bytes=2-3';
      if (part) response.setHeader('content-range', 'bytes 2-3/6');
      response.setHeader('etag', '"v1"');
      if (request.headers['if-none-match'] === '"v1"') return response.writeHead(304).end();
      response.writeHead(part ? 206 : 200, { 'content-length': part ? 2 : 6 });
      return response.end(part ? 'cd' : 'abcdef');
    };
    const whole = await ask({ path: `${CAST}?normalise=0` });
    expect([whole.status, whole.body.toString()]).toEqual([200, 'abcdef']);
    expect(field(whole.rawHeaders, 'content-type')).toBe('application/x-asciicast');
    const part = await ask({ path: CAST, headers: ['Range', 'bytes=2-3', 'If-Range', '"v1"'] });
    expect([part.status, part.body.toString()]).toEqual([206, 'cd']);
    expect(field(part.rawHeaders, 'content-range')).toBe('bytes 2-3/6');
    const same = await ask({ path: CAST, headers: ['If-None-Match', '"v1"'] });
    expect([same.status, field(same.rawHeaders, 'content-type')]).toEqual([304, 'application/x-asciicast']);
    const odd = await ask({ path: CAST, headers: ['Range', 'lines=2-3', 'If-None-Match', '*'] });
    expect(odd.status).toBe(200);
    expect(recorder.requests.map(({ url }) => url)).toEqual([
      `/api/v1/recordings/${ID}/cast?normalise=0`,
      ...Array.from({ length: 3 }, () => `/api/v1/recordings/${ID}/cast`),
    ]);
    expect(recorder.requests.at(-1)?.headers.map(([name]) => name)).not.toContain('range');
    const line = { id: 'request-id', user: 'alice@example.com', path: CAST, status: 200, responseBytes: 6 };
    expect(log[0]).toMatchObject({ ...line, protocol });
  });

  it('asks for searches, whose answers nobody keeps', async () => {
    const { client, recorder } = await openPortalRig();
    const { ask } = client(protocol);
    recorder.script = (_request, response) => void response.writeHead(200, { 'content-length': 2 }).end('{}');
    const api = LIST.replace('/recordings/api/v1/recordings', '/recordings/api/v1');
    const asked = [
      '/search?q=a%20b&view=1',
      '/search/facets?q=a',
      '/searches',
      `/recordings/${ID}/search?q=a`,
      `/recordings/${ID}/review`,
      `/thumbnails?ids=${ID}`,
    ];
    for (const path of asked) {
      const answer = await ask({ path: `${api}${path}` });
      expect([answer.status, field(answer.rawHeaders, 'cache-control')]).toEqual([200, 'no-store']);
    }
    expect(recorder.requests.map(({ url }) => url)).toEqual(asked.map((path) => `/api/v1${path}`));
    for (const path of ['/search/', '/search/other', `/recordings/${ID}/search/facets`])
      expect((await ask({ path: `${api}${path}` })).status).toBe(404);
  });

  it('says a recorder’s errors as data', async () => {
    const { client, recorder } = await openPortalRig();
    recorder.script = (_request, response) => {
      response.writeHead(404, { 'content-length': 16 });
      response.end('{"message":"no"}');
    };
    const answer = await client(protocol).ask({ path: CAST });
    expect([answer.status, answer.body.toString()]).toEqual([404, '{"message":"no"}']);
    expect(field(answer.rawHeaders, 'content-type')).toContain('application/json');
  });

  it('takes from a recorder no more than the client takes', async () => {
    const { client, recorder } = await openPortalRig(['recorder'], { stallMs: 300 });
    let taken = 0;
    const chunk = Buffer.alloc(1024 * 1024);
    recorder.script = (_request, response) => {
      const more = (): void => {
        while (!response.destroyed && taken < 512 * chunk.length) {
          taken += chunk.length;
          if (!response.write(chunk)) return void response.once('drain', more);
        }
      };
      more();
    };
    const answer = await client(protocol).open({ path: CAST });
    answer.body.on('error', () => undefined);
    // the client does not read, so the portal ends the stalled response
    await recorder.requests[0]?.gone;
    expect(taken).toBeLessThan(64 * chunk.length);
  });

  it('gives up a recorder that goes silent, but not a session that does', async () => {
    const { client, recorder } = await openPortalRig(['recorder'], { stallMs: 400 });
    recorder.script = (_request, response) => void response.write('half');
    const { open } = client(protocol);
    // on a busy machine, the time limit may expire before the client gets the response head
    await expect(open({ path: CAST }).then((answer) => answer.rest())).rejects.toThrow(CUT);
    const started = performance.now();
    recorder.script = (_request, response) => {
      response.write('half');
      setTimeout(() => response.end(' and half'), 1_200);
    };
    expect((await (await open({ path: `${CAST}?follow=1` })).rest()).toString()).toBe('half and half');
    expect(performance.now() - started).toBeGreaterThan(1_100);
  });

  it('ends what is under way with the access of who looks', async () => {
    const { client, recorder, revoke, watched, accounted, log } = await openPortalRig();
    recorder.script = (_request, response) => void response.write('half');
    const answer = await client(protocol).open({ path: `${CAST}?follow=1` });
    expect(watched()).toBe(1);
    revoke();
    await expect(answer.rest()).rejects.toThrow(CUT);
    await recorder.requests[0]?.gone;
    expect(watched()).toBe(0);
    await accounted(1);
    expect(log).toMatchObject([{ status: 200, error: 'ACCESS_ENDED' }]);
  });

  it('refuses a viewer whose access ends before the recorder responds', async () => {
    const { client, recorder, revoke, watched, accounted, log } = await openPortalRig();
    recorder.script = () => undefined;
    const asked = client(protocol).ask({ path: CAST });
    await recorder.until(() => recorder.requests.length === 1);
    revoke();
    const refused = await asked;
    expect(refused.status).toBe(403);
    expect(JSON.parse(refused.body.toString())).toMatchObject({
      kind: 'Status',
      viewer: 'alice@example.com',
    });
    await recorder.requests[0]?.gone;
    expect(watched()).toBe(0);
    await accounted(1);
    expect(log).toMatchObject([{ status: 403, error: 'ACCESS_ENDED' }]);
  });

  it('logs that the client left in the middle of a response', async () => {
    const { client, recorder, accounted, log } = await openPortalRig();
    recorder.script = (_request, response) => void response.write('half');
    const answer = await client(protocol).open({ path: CAST });
    answer.rest().catch(() => undefined);
    answer.abort();
    await accounted(1);
    expect(log).toMatchObject([{ status: 200, error: 'client left' }]);
  });

  it('takes a bounded number of questions of a node', async () => {
    const { client, recorder } = await openPortalRig(['recorder'], { perNode: 2 });
    const waiting: ServerResponse[] = [];
    recorder.script = (_request, response) => {
      waiting.push(response);
      response.write('h');
    };
    const { ask, open } = client(protocol);
    const held = [await open({ path: CAST }), await open({ path: CAST })];
    expect((await ask({ path: CAST })).status).toBe(429);
    for (const response of waiting) response.end();
    for (const answer of held) await answer.rest();
    recorder.script = undefined;
    for (let round = 0; round < 4; round++) expect((await ask({ path: LIST })).status).toBe(200);
  });

  it('takes a bounded number of questions of all together', async () => {
    const { client, recorder } = await openPortalRig(['recorder'], { total: 1 });
    recorder.script = (_request, response) => void response.write('h');
    const { ask, open } = client(protocol);
    const held = await open({ path: CAST });
    held.rest().catch(() => undefined);
    expect((await ask({ path: CAST })).status).toBe(429);
    held.abort();
    await recorder.requests[0]?.gone;
  });
});

describe('one connection', () => {
  it('asks as often as it likes, one after another', async () => {
    const { rig, recorder } = await openPortalRig();
    const { socket, until } = await rawClient(rig);
    // sends more requests, one after another, than may be pending at the same time
    for (let asked = 1; asked <= 20; asked++) {
      socket.write(`GET ${LIST} HTTP/1.1\r\nHost: gateway.test\r\n\r\n`);
      await until((text) => text.split('{"recordings":[]}').length === asked + 1);
    }
    expect(recorder.requests).toHaveLength(20);
  });
});

describe('recorders', () => {
  it('are asked one after another until one answers', async () => {
    const silent = await startRecorderSpy();
    stack.push(() => silent.close());
    silent.script = () => undefined;
    const { client, recorder } = await openPortalRig(['127.0.0.1:1', silent.address, 'recorder']);
    const { ask } = client('h1');
    expect((await ask({ path: LIST })).status).toBe(200);
    expect([silent.requests.length, recorder.requests.length]).toEqual([1, 1]);
    // the portal tries recently failed recorders last
    expect((await ask({ path: LIST })).status).toBe(200);
    expect([silent.requests.length, recorder.requests.length]).toEqual([1, 2]);
  });

  it('that fail or do not trust are named in a sentence', async () => {
    const { client, recorder } = await openPortalRig(['127.0.0.1:1', 'recorder']);
    recorder.trusting = false;
    recorder.script = (_request, response) => response.writeHead(503).end();
    const down = await client('h1').ask({ path: LIST });
    expect(down.status).toBe(503);
    expect(down.body.toString()).toContain('127.0.0.1:1: ');
    expect(down.body.toString()).toContain('it answered 503');
  });

  it('that are not there are none', async () => {
    const { client, rig } = await openPortalRig([]);
    const answer = await client('h1').ask({ path: LIST });
    expect(answer.status).toBe(404);
    expect(answer.body.toString()).toContain('no recorder is named for you');
    const live = new WebSocket(`wss://127.0.0.1:${rig.port}${LIST}/${ID}/live`, { ca: rig.pki.ca });
    const [error] = await once(live, 'error');
    expect(String(error)).toContain('404');
  });
});

describe('a live view', () => {
  const handshake = (more: string): string =>
    `GET ${LIST}/${ID}/live HTTP/1.1\r\nHost: gateway.test\r\nConnection: Upgrade\r\nUpgrade: ` +
    `websocket\r\nSec-WebSocket-Version: 13\r\n${more}\r\n`;
  const view = ({ rig }: Pick<PortalRig, 'rig'>): WebSocket =>
    new WebSocket(`wss://127.0.0.1:${rig.port}${LIST}/${ID}/live`, ['v2.asciicast'], { ca: rig.pki.ca });

  it('is relayed both ways until one end closes', async () => {
    const portal = await openPortalRig();
    const viewer = view(portal);
    await once(viewer, 'open');
    expect(viewer.protocol).toBe('v2.asciicast');
    const [recorder] = portal.recorder.live;
    recorder!.write(Buffer.of(0x81, 2, 0x68, 0x69));
    const [text] = await once(viewer, 'message');
    expect(String(text)).toBe('hi');
    viewer.ping();
    const [ping] = (await once(recorder!, 'data')) as [Buffer];
    expect(ping[0]).toBe(0x89);
    recorder!.end(Buffer.of(0x88, 2, 0x03, 0xe8));
    expect((await once(viewer, 'close'))[0]).toBe(1000);
    await portal.recorder.until(() => portal.recorder.live.size === 0);
  });

  it('ends at the recorder when the viewer is gone', async () => {
    const portal = await openPortalRig();
    const viewer = view(portal);
    await once(viewer, 'open');
    expect(portal.recorder.live.size).toBe(1);
    viewer.terminate();
    await portal.recorder.until(() => portal.recorder.live.size === 0);
  });

  it('that is refused is closed, although the client keeps its side open', async () => {
    const { rig } = await openPortalRig();
    const raw = connect({ host: '127.0.0.1', port: rig.port, allowHalfOpen: true });
    const client = tlsConnect({ socket: raw, ca: rig.pki.ca, ALPNProtocols: ['http/1.1'] });
    // ignores the reset that the client's next bytes cause after the portal has closed the connection
    client.on('error', () => client.destroy());
    client.write(handshake(''));
    const [answer] = (await once(client, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 4/);
    const sending = setInterval(() => client.write('x'), 50);
    await new Promise((resolve) => raw.once('close', resolve));
    clearInterval(sending);
  });

  it('ends with the access of who looks, and when nothing moves', async () => {
    for (const limits of [{}, { stallMs: 100 }]) {
      const portal = await openPortalRig(['recorder'], limits);
      const viewer = view(portal);
      viewer.on('error', () => undefined);
      await once(viewer, 'open');
      if (!('stallMs' in limits)) portal.revoke();
      await once(viewer, 'close');
      await portal.recorder.until(() => portal.recorder.live.size === 0);
      expect(portal.watched()).toBe(0);
      await portal.accounted(1);
      expect(portal.log[0]).toMatchObject({ status: 101 });
      if (!('stallMs' in limits)) expect(portal.log[0]).toMatchObject({ error: 'ACCESS_ENDED' });
    }
  });

  it('is accounted once: by whom, how it was answered, what came back', async () => {
    const portal = await openPortalRig();
    const viewer = view(portal);
    await once(viewer, 'open');
    const [recorder] = portal.recorder.live;
    // sends output and a close frame in one write, so that the viewer's later messages are not forwarded
    recorder!.end(Buffer.of(0x81, 2, 0x68, 0x69, 0x88, 2, 0x03, 0xe8));
    await once(viewer, 'close');
    await portal.accounted(1);
    const line = { id: 'request-id', user: 'alice@example.com', path: `${LIST}/${ID}/live` };
    expect(portal.log).toEqual([
      expect.objectContaining({ ...line, protocol: 'upgrade', status: 101, responseBytes: 8 }),
    ]);
    expect(portal.log[0]).not.toHaveProperty('error');
    portal.recorder.liveStatus = 404;
    await once(view(portal), 'error');
    await portal.accounted(2);
    expect(portal.log[1]).toMatchObject({ ...line, status: 404, error: 'NOT_FOUND' });
  });

  it('that its viewer leaves before the recorder has answered is neither shown nor refused', async () => {
    const portal = await openPortalRig();
    portal.recorder.handshake = 'never';
    const { socket } = await rawClient(portal.rig);
    socket.write(handshake('Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'));
    await portal.recorder.until(() => portal.recorder.requests.length === 1);
    socket.destroy();
    await portal.accounted(1);
    expect(portal.log[0]).toMatchObject({ status: 499, responseBytes: 0, error: 'client left' });
    await portal.recorder.until(() => portal.recorder.live.size === 0);
  });

  it('takes a place like everything else', async () => {
    const portal = await openPortalRig(['recorder'], { perNode: 1 });
    const viewer = view(portal);
    await once(viewer, 'open');
    expect((await portal.client('h1').ask({ path: LIST })).status).toBe(429);
    expect(String((await once(view(portal), 'error'))[0])).toContain('429');
    viewer.terminate();
    await portal.recorder.until(() => portal.recorder.live.size === 0);
  });

  it('that the recorder does not show is refused as such', async () => {
    const portal = await openPortalRig();
    for (const [status, told] of [
      [404, '404'],
      [403, '503'],
    ] as const) {
      portal.recorder.liveStatus = status;
      expect(String((await once(view(portal), 'error'))[0])).toContain(told);
    }
  });

  it('wants one key of the right shape, and an answer of the right shape', async () => {
    const portal = await openPortalRig();
    const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
    for (const more of ['', key + key, 'Sec-WebSocket-Key: x\r\n']) {
      const { socket, until } = await rawClient(portal.rig);
      socket.write(handshake(more));
      expect(await until((text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 400 /);
    }
    expect(portal.recorder.requests).toEqual([]);
    portal.recorder.handshake = 'none';
    expect(String((await once(view(portal), 'error'))[0])).toContain('503');
    await portal.recorder.until(() => portal.recorder.live.size === 0);
  });
});

describe('the page', () => {
  it('is read from the built player, and nothing else next to it', async () => {
    const { ask } = (await openPortalRig()).client('h1');
    for (const name of [
      'secret.pem',
      'assets/notes.txt',
      'assets/index-x.js.br',
      'assets',
      'assets/icon.svg',
    ])
      expect([name, (await ask({ path: `/-/recordings/${name}` })).status]).toEqual([name, 404]);
    expect((await ask({ path: '/-/recordings/index.html' })).body.toString()).toBe('<!doctype html>');
  });

  it('is missing in a gateway that was built without it', async () => {
    const rig = await openPortalRig(['recorder'], {}, { playerDirectory: join(import.meta.dirname, 'none') });
    const { status, body } = await rig.client('h1').ask({ path: '/-/recordings/' });
    expect([status, body.toString()]).toEqual([404, expect.stringContaining('built without the page')]);
  });

  it('has a policy that names no host which could break out of it', () => {
    for (const host of ['[::1]:8443', "x; script-src 'unsafe-inline'", 'a b', '']) {
      expect(pageHeaders(host)['content-security-policy']).toContain("script-src 'self'; style-src 'self'");
    }
    expect(pageHeaders('gw.ts.net:8443')['content-security-policy']).toContain(
      'script-src https://gw.ts.net:8443/-/recordings/assets/; ',
    );
  });
});

describe('the settings', () => {
  const open = (portalRecorders: readonly string[], portal = true): Promise<unknown> => {
    const unused = (): never => {
      throw new Error('not needed');
    };
    const tailnet = {
      dialRecorder: unused,
      nodeOf: unused,
      resolveRecorderTags: unused,
      carriesTag: unused,
    };
    const metrics = createMetrics();
    return openPortal({ portal, portalRecorders, portalPort: undefined }, tailnet, {
      gate: { recognise: unused },
      rechecks: { watch: unused },
      metrics,
      accessLog: { write: unused },
      events: createEvents(metrics, createSilentLogger()),
      monotonicMs: () => 0,
      signal: new AbortController().signal,
    });
  };

  it('name recorders by tag or address', async () => {
    expect(await open(['tag:tsrecorder', '100.64.0.7:80'])).toMatchObject({ prefix: '/-/recordings' });
    await expect(open(['recorder.tail1.ts.net:80'])).rejects.toThrow('neither a tag nor ip:port');
  });

  it('can do without a portal', async () => {
    expect(await open([], false)).toBeUndefined();
  });
});
