/** Translation of WebSocket exec to SPDY, over real sockets. The API server uses the SPDY code of the demo cluster. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { openSpdySession } from '../../../demo/spdy-session.ts';
import type { RemoteStreams } from '../../../demo/remote-streams.ts';
import type { RequestInfo } from '../../../src/kube/request-info.ts';
import { translateToSpdy } from '../../../src/proxy/session/exec-upstream.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { parseExecOptions } from '../../../src/kube/exec-options.ts';
import { openRecorded, openRig } from '../../support/recorded-rig.ts';
import {
  clientMessage,
  createSpdyPeer,
  serverEnd,
  serverMessage,
  STATUS_SUCCESS,
  text,
  utf8,
} from '../../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC,
  type startRig,
  switching,
  WEBSOCKET_V5,
  type UpgradeClient,
  type UpgradeScript,
} from '../../support/upgrade-rig.ts';
import { createServerFrameReceiver } from '../../support/ws-receiver.ts';

function setUp(
  script: UpgradeScript,
  deps: Parameters<typeof startRig>[0]['deps'] = { translateExec: translateToSpdy },
) {
  return openRecorded(script, { deps });
}

type Program = (streams: RemoteStreams) => Promise<void> | void;

/** Accepts SPDY requests. `otherwise` handles all other requests. */
function spdyServer(
  program: Program,
  otherwise: UpgradeScript = (_request, socket) => socket.destroy(),
): UpgradeScript {
  return (request, socket, head) => {
    if (request.headers.upgrade !== 'SPDY/3.1') return otherwise(request, socket, head);
    socket.write(switching(request, 'v4.channel.k8s.io', 'Audit-Id: a'));
    void serve(request, socket, program);
  };
}

async function serve(request: IncomingMessage, socket: Duplex, program: Program): Promise<void> {
  const tty = request.url?.includes('tty=true') === true;
  const options = { stdin: true, stdout: true, stderr: true, tty };
  await program(await openSpdySession(socket, 'v4.channel.k8s.io', options));
}

/** Reads the complete response with the frame receiver of `ws`. */
async function readAll({ reader }: UpgradeClient): Promise<{ channels: string[]; code: number | undefined }> {
  await reader.untilClosed();
  const receiver = createServerFrameReceiver();
  const channels = ['', '', '', ''];
  let code: number | undefined;
  receiver.on('message', (data: Buffer) => (channels[data[0]!] += text(data.subarray(1))));
  receiver.on('conclude', (said: number) => (code = said));
  receiver.write(reader.bytes);
  return { channels, code };
}

/** Refuses SPDY with `status`, and accepts a WebSocket. */
function refusing(status: number): UpgradeScript {
  return (request, socket) => {
    if (request.headers.upgrade === 'SPDY/3.1') {
      socket.end(`HTTP/1.1 ${status} No\r\nContent-Length: 2\r\n\r\nno`);
      return;
    }
    socket.write(switching(request, 'v5.channel.k8s.io'));
    socket.write(serverMessage(1, utf8('as ever')));
    socket.end(serverEnd(STATUS_SUCCESS));
    socket.resume();
  };
}

describe('a recorded exec over WebSocket, with SPDY to the API server', () => {
  it("is requested with the client's method, as the caller, and is a WebSocket for the client", async () => {
    const { recorder, apiServer, rig } = await setUp(
      spdyServer(async ({ stdin, stdout, stderr, finish }) => {
        const typed: string[] = [];
        for await (const chunk of stdin ?? []) typed.push(String(chunk));
        stdout?.end(`got ${typed.join('')}`);
        stderr?.end('and this');
        await finish({ kind: 'exit', code: 7 });
      }),
    );
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(101);
    expect(client.head).toContain('Upgrade: websocket\r\n');
    expect(client.head).toContain('Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n');
    // RFC 6455 §1.3
    expect(client.head).toContain('Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n');
    expect(client.head).toContain('Audit-Id: a\r\n');
    expect(client.head).not.toMatch(/spdy|x-stream-protocol-version/i);
    client.socket.write(clientMessage(0, utf8('typed')));
    client.socket.write(clientMessage(255, Uint8Array.of(0)));
    const { channels, code } = await readAll(client);
    expect(channels.slice(1, 3)).toEqual(['got typed', 'and this']);
    expect(JSON.parse(channels[3]!)).toMatchObject({ reason: 'NonZeroExitCode' });
    expect(code).toBe(1000);
    expect(apiServer.requests).toHaveLength(1);
    const [{ method, url, headers }] = apiServer.requests as [IncomingMessage];
    expect([method, url]).toEqual(['GET', EXEC]);
    expect(headers).toMatchObject({
      'impersonate-user': 'alice@example.com',
      'x-stream-protocol-version': 'v4.channel.k8s.io',
    });
    expect(Object.keys(headers).filter((name) => name.startsWith('sec-websocket'))).toEqual([]);
    const ended = await rig.until('sessionEnded');
    expect(ended).toMatchObject({ outcome: 'completed', exitCode: 7, inputBytes: 5, outputBytes: 17 });
    const lines = recorder.uploads[0]!.lines().join('\n');
    expect(lines).toContain('got typed');
    expect(lines).toContain('"protocol":"websocket"');
  });

  it('transfers terminal sizes', async () => {
    const { rig } = await setUp(
      spdyServer(async ({ onResize, stdout, finish }) => {
        const size = await new Promise<unknown>((resolve) => onResize(resolve));
        stdout?.end(JSON.stringify(size));
        await finish({ kind: 'success' });
      }),
    );
    const client = await askUpgrade(rig.port, { target: `${EXEC}&tty=true`, headers: WEBSOCKET_V5 });
    client.socket.write(clientMessage(4, utf8('{"Width":101,"Height":31}\n')));
    expect((await readAll(client)).channels[1]).toBe('{"columns":101,"rows":31}');
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed' });
  });

  it.each([
    [
      'before it says how the command ended',
      (peer: ReturnType<typeof createSpdyPeer>) => [peer.data(5, utf8('half'))],
    ],
    [
      'with a status and without the end of the output',
      (peer: ReturnType<typeof createSpdyPeer>) => [
        peer.data(5, utf8('half')),
        peer.data(1, STATUS_SUCCESS, true),
      ],
    ],
  ])('that breaks %s fails for the client, and is interrupted', async (_name, frames) => {
    const { rig } = await setUp((request, socket) => {
      const peer = createSpdyPeer();
      socket.on('error', () => {});
      socket.write(switching(request, 'v4.channel.k8s.io'));
      socket.write(Buffer.concat([peer.reply(1)]));
      let opened = 1;
      socket.on('data', () => {
        opened += 2;
        if (opened <= 7) socket.write(peer.reply(opened));
        if (opened === 7) socket.end(Buffer.concat(frames(peer)));
      });
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const { channels, code } = await readAll(client);
    expect(channels[1]).toBe('half');
    expect(JSON.parse(channels[3]!)).toMatchObject({
      status: 'Failure',
      message: expect.stringContaining('tailcast: '),
    });
    expect(code).toBe(1000);
    const ended = await rig.until('sessionEnded');
    expect(ended).toMatchObject({ outcome: 'interrupted' });
  });
});

describe('an API server that refuses SPDY', () => {
  it.each([400, 401, 403, 404, 405, 426, 429, 500, 501, 503])(
    'gets one request, and its %d goes to the client',
    async (status) => {
      const { apiServer, rig, recorder } = await setUp(refusing(status));
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      expect(client.status).toBe(status);
      await client.reader.untilClosed();
      expect(apiServer.requests).toHaveLength(1);
      await recorder.until(() => recorder.uploads[0]!.aborted);
    },
  );

  it('and names no stream protocol causes a 502', async () => {
    const { rig } = await setUp((request, socket) => socket.write(switching(request, undefined)));
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(502);
  });
});

describe('the SPDY request for an exec', () => {
  const exec = parseExecOptions(parseTarget(EXEC));
  const impersonation = { user: 'alice', groups: [], extra: [] };
  const headers = (protocols: string, ...more: string[]) => [
    'Sec-WebSocket-Version',
    '13',
    'Sec-WebSocket-Key',
    'dGhlIHNhbXBsZSBub25jZQ==',
    ...(protocols === '' ? [] : ['Sec-WebSocket-Protocol', protocols]),
    ...more,
  ];
  const ask = (protocols: string, parts: Record<string, unknown> = {}, dial: Record<string, unknown> = {}) =>
    translateToSpdy(
      { requestClass: 'exec', impersonation, exec, info: { apiGroup: '' } as RequestInfo, ...parts },
      {
        connect: () => Promise.reject(new Error('not now')),
        method: 'GET',
        target: EXEC,
        headers: headers(protocols),
        protocol: 'websocket',
        responseTimeoutMs: 1,
        ...dial,
      },
    );

  it.each([
    ['v5.channel.k8s.io', 'v4.channel.k8s.io'],
    ['v4.channel.k8s.io, v5.channel.k8s.io', 'v4.channel.k8s.io'],
    ['v3.channel.k8s.io,v4.channel.k8s.io', 'v3.channel.k8s.io'],
    ['other, v2.channel.k8s.io', 'v2.channel.k8s.io'],
    ['channel.k8s.io', 'channel.k8s.io'],
  ])('%s: %s', (offered, expected) => {
    expect(ask(offered)?.dial.headers.slice(-2)).toEqual(['X-Stream-Protocol-Version', expected]);
  });

  it.each(['', 'base64.channel.k8s.io', 'v4.base64.channel.k8s.io, v4.channel.k8s.io', 'other'])(
    'not: %s',
    (offered) => {
      expect(ask(offered)).toBeUndefined();
    },
  );

  it('is not sent for callers with their own credentials, for other requests and for other protocols', () => {
    const v5 = 'v5.channel.k8s.io';
    expect(ask(v5)).toBeDefined();
    expect(ask(v5, { requestClass: 'attach' })).toBeDefined();
    expect(ask(v5, { impersonation: undefined })).toBeUndefined();
    expect(ask(v5, { requestClass: 'portForward' })).toBeUndefined();
    expect(ask(v5, { requestClass: 'nodeProxy' })).toBeUndefined();
    expect(ask(v5, {}, { protocol: 'SPDY/3.1' })).toBeUndefined();
  });

  it('is not sent for an invalid handshake', () => {
    const key = ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='];
    const version = ['Sec-WebSocket-Version', '13'];
    const protocol = ['Sec-WebSocket-Protocol', 'v5.channel.k8s.io'];
    for (const lines of [
      [...version, ...protocol],
      [...key, ...protocol],
      [...key, ...key, ...version, ...protocol],
      [...key, ...version, ...version, ...protocol],
      ['Sec-WebSocket-Key', 'short', ...version, ...protocol],
      [...key, 'Sec-WebSocket-Version', '8', ...protocol],
    ]) {
      expect(ask('', {}, { headers: lines })).toBeUndefined();
    }
    expect(ask('', {}, { headers: [...key, ...version, ...protocol] })).toBeDefined();
    const other = { info: { apiGroup: 'subresources.kubevirt.io' } };
    expect(ask('', other, { headers: [...key, ...version, ...protocol] })).toBeUndefined();
  });
});

it('uses WebSocket on both sides unless a setting enables translation', async () => {
  const { apiServer, rig } = await setUp(refusing(500), {});
  const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
  expect((await readAll(client)).channels[1]).toBe('as ever');
  expect(apiServer.requests.map(({ method }) => method)).toEqual(['GET']);
});

it('does not translate sessions that are not recorded', async () => {
  const deps = { translateExec: translateToSpdy };
  const { apiServer, rig } = await openRig(refusing(500), { mode: 'off' }, { deps });
  const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
  const { channels, code } = await readAll(client);
  expect([channels[1], code]).toEqual(['as ever', 1000]);
  expect(apiServer.requests.map(({ method }) => method)).toEqual(['GET']);
});
