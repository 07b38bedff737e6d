import type { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { RECORDER_CLIENT_LIMITS } from '../../../src/recording/recorder-client.ts';
import {
  deadAddress,
  linesOf,
  openRecorded,
  openRecorder,
  openRig,
  recordingPolicy,
  webSocketExec,
} from '../../support/recorded-rig.ts';
import {
  clientMessage,
  createSpdyPeer,
  serverEnd,
  serverMessage,
  statusExit,
  STATUS_SUCCESS,
  utf8,
} from '../../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC_TTY,
  SPDY_V4,
  statusBody,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
} from '../../support/upgrade-rig.ts';

/** Returns an exec script that performs only the WebSocket handshake; the test sends the messages. */
function openEnded(): { readonly script: UpgradeScript; readonly peer: Promise<Socket> } {
  const opened = Promise.withResolvers<Socket>();
  return {
    script: (request, socket) => {
      socket.on('error', () => {});
      socket.once('end', () => socket.end());
      socket.resume();
      socket.write(switching(request, 'v5.channel.k8s.io'));
      opened.resolve(socket as Socket);
    },
    peer: opened.promise,
  };
}

/** Opens a recorded exec. `server` is the API server's end of the connection. */
async function beginExec(options?: Parameters<typeof openRecorded>[1]) {
  const { script, peer } = openEnded();
  const opened = await openRecorded(script, options);
  const client = await askUpgrade(opened.rig.port, { headers: WEBSOCKET_V5 });
  return { ...opened, client, server: await peer };
}

describe('a recorded exec', () => {
  it('is delivered and recorded over WebSocket, with caller, target, exit status and end', async () => {
    const { recorder, apiServer, rig } = await openRecorded(
      webSocketExec([serverMessage(1, utf8('out\n')), serverMessage(2, utf8('err\n'))], statusExit(7)),
    );
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(101);
    expect(client.head).toContain('Sec-WebSocket-Protocol: v5.channel.k8s.io');
    expect(client.head).toContain('Sec-WebSocket-Accept: x');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString('latin1')).toContain('out\n');
    const ended = await rig.until('sessionEnded');
    expect(ended).toMatchObject({
      outcome: 'completed',
      exitCode: 7,
      outputBytes: 8,
      kind: 'exec',
      pod: 'web',
    });
    expect(recorder.uploads[0]!.ended).toBe(true);
    const lines = linesOf(recorder);
    expect(lines[0]).toMatchObject({
      version: 2,
      width: 0,
      height: 0,
      timestamp: 1_700_000_000,
      command: 'sh -c a b',
      srcNode: 'laptop.example.ts.net',
      srcNodeID: 'nALICE1CNTRL',
      srcNodeUser: 'alice@example.com',
      env: null,
      connectionID: 'session-1',
      kubernetes: { PodName: 'web', Namespace: 'default', Container: 'main', SessionType: 'exec' },
    });
    expect(recorder.uploads[0]!.lines()[0]).toContain('"srcNodeUserID":16793133573424020');
    expect(lines[1]).toEqual({
      kind: 'session',
      id: 'session-1',
      user: 'alice@example.com',
      groups: ['devs'],
      argv: ['sh', '-c', 'a b'],
      tty: false,
      stdin: true,
      protocol: 'websocket',
      subprotocol: 'v5.channel.k8s.io',
      path: '/api/v1/namespaces/default/pods/web/exec',
    });
    expect(lines.slice(2)).toEqual([
      [expect.any(Number), 'o', 'out\n'],
      { kind: 'stream', name: 'stderr' },
      [expect.any(Number), 'o', 'err\n'],
      { kind: 'exit', code: 7, message: expect.any(String) },
      { kind: 'end', outcome: 'completed', outputBytes: 8, outputLines: 2 },
    ]);
    expect(apiServer.requests[0]!.headers).toMatchObject({ 'impersonate-user': 'alice@example.com' });
  });

  it('is recorded over SPDY with the terminal size of the client', async () => {
    const { recorder, rig } = await openRecorded((request, socket) => {
      const server = createSpdyPeer();
      socket.write(switching(request, 'v4.channel.k8s.io'));
      socket.once('data', () => {
        socket.resume();
        for (const id of [1, 3, 5, 7]) socket.write(server.reply(id));
        socket.write(server.data(5, utf8('# ')));
        socket.write(server.data(5, new Uint8Array(0), true));
        socket.end(server.data(1, STATUS_SUCCESS, true));
      });
    });
    const client = await askUpgrade(rig.port, { method: 'POST', target: EXEC_TTY, headers: SPDY_V4 });
    expect(client.status).toBe(101);
    const peer = createSpdyPeer();
    client.socket.write(
      Buffer.concat([
        ...['error', 'stdin', 'stdout', 'resize'].map((role, index) => peer.open(index * 2 + 1, role)),
        peer.data(7, utf8('{"Width":120,"Height":40}\n')),
      ]),
    );
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 0 });
    const lines = linesOf(recorder);
    expect(lines[0]).toMatchObject({ width: 120, height: 40 });
    expect(lines).toContainEqual([expect.any(Number), 'o', '# ']);
  });

  it('is announced to the recorder before the API server gets the request', async () => {
    let uploadsAtDial = -1;
    const { recorder, rig } = await openRecorded((request, socket, head) => {
      uploadsAtDial = recorder.uploads.length;
      webSocketExec([])(request, socket, head);
    });
    await (await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).reader.untilClosed();
    expect(uploadsAtDial).toBe(1);
  });

  it('keeps and records bytes that arrive with the heads of both sides', async () => {
    const early = clientMessage(4, utf8('{"Width":9,"Height":8}'));
    let arrived: Buffer = Buffer.alloc(0);
    const { recorder, rig } = await openRecorded((request, socket, head) => {
      arrived = head;
      socket.on('data', (chunk: Buffer) => {
        arrived = Buffer.concat([arrived, chunk]);
        // ends the session only after the terminal size has arrived. The gateway sends the size after the server has
        // been silent for a while
        if (arrived.length >= early.length) socket.end(serverEnd(STATUS_SUCCESS));
      });
      socket.write(
        Buffer.concat([
          Buffer.from(switching(request, 'v5.channel.k8s.io')),
          serverMessage(1, utf8('early')),
        ]),
      );
    });
    const client = await askUpgrade(rig.port, { target: EXEC_TTY, headers: WEBSOCKET_V5, early });
    await client.reader.untilClosed();
    await rig.until('sessionEnded');
    expect(client.reader.bytes.subarray(0, 8)).toEqual(Buffer.from(serverMessage(1, utf8('early'))));
    expect(arrived.equals(early)).toBe(true);
    expect(linesOf(recorder)[0]).toMatchObject({ width: 9, height: 8 });
    expect(linesOf(recorder)).toContainEqual([expect.any(Number), 'o', 'early']);
  });

  it('offers the API server only protocols that can be recorded', async () => {
    const { apiServer, rig } = await openRecorded(webSocketExec([]));
    const headers = [
      ...WEBSOCKET_V5.slice(0, 4),
      'Sec-WebSocket-Protocol: mystery.k8s.io, v5.channel.k8s.io',
      'Sec-WebSocket-Protocol: v4.channel.k8s.io',
      'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits',
    ];
    const client = await askUpgrade(rig.port, { headers });
    expect(client.status).toBe(101);
    expect(apiServer.requests[0]!.headers['sec-websocket-protocol']).toBe(
      'v5.channel.k8s.io, v4.channel.k8s.io',
    );
    expect(apiServer.requests[0]!.headers['sec-websocket-extensions']).toBeUndefined();
  });

  it('is recorded when the client offers no subprotocol', async () => {
    const { recorder, rig } = await openRecorded((request, socket) => {
      socket.write(switching(request, ''));
      socket.end(serverMessage(1, utf8('plain')));
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5.slice(0, 4) });
    await client.reader.untilClosed();
    await rig.until('sessionEnded');
    expect(linesOf(recorder)).toContainEqual([expect.any(Number), 'o', 'plain']);
  });

  it('is recorded as plain asciicast at a recorder of the reference', async () => {
    for (const behaviour of [{ upgradeOffered: false }, { v2: false }]) {
      const { recorder, rig } = await openRecorded(webSocketExec([serverMessage(2, utf8('err\n'))]), {
        behaviour,
      });
      await (await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).reader.untilClosed();
      await rig.until('sessionEnded');
      const lines = linesOf(recorder);
      expect(lines).toEqual([expect.objectContaining({ version: 2 }), [expect.any(Number), 'o', 'err\n']]);
    }
  });

  it.each(['WebSocket', 'WEBSOCKET', 'websocket, foo'])(
    'is detected with the headers "%s"',
    async (spelling) => {
      const { recorder, rig } = await openRecorded(webSocketExec([serverMessage(1, utf8('x'))]));
      const headers = ['Connection: keep-alive, Upgrade', `Upgrade: ${spelling}`, ...WEBSOCKET_V5.slice(2)];
      const client = await askUpgrade(rig.port, { headers });
      expect(client.status).toBe(101);
      await client.reader.untilClosed();
      await rig.until('sessionEnded');
      expect(linesOf(recorder)).toContainEqual([expect.any(Number), 'o', 'x']);
    },
  );

  it('is recorded over SPDY with a GET in lower case', async () => {
    const { recorder, apiServer, rig } = await openRecorded((request, socket) => {
      socket.end(switching(request, 'v4.channel.k8s.io'));
    });
    const headers = ['Connection: upgrade', 'Upgrade: spdy/3.1', ...SPDY_V4.slice(2)];
    const client = await askUpgrade(rig.port, { headers });
    expect(client.status).toBe(101);
    expect(apiServer.requests[0]!.headers.upgrade).toBe('SPDY/3.1');
    await client.reader.untilClosed();
    await rig.until('sessionEnded');
    expect(recorder.uploads).toHaveLength(1);
  });
});

describe('an upgrade that the gateway cannot interpret on a recorded path', () => {
  it('is refused when the API server chooses a subprotocol that was not offered, or uses an extension', async () => {
    const recorder = await openRecorder();
    const answers: UpgradeScript[] = [
      (request, socket) => socket.write(switching(request, 'v4.channel.k8s.io')),
      (request, socket) =>
        socket.write(switching(request, 'v5.channel.k8s.io', 'Sec-WebSocket-Extensions: permessage-deflate')),
      (_request, socket) =>
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n'),
    ];
    for (const answer of answers) {
      const { rig } = await openRig(answer, recordingPolicy('failClosed', [recorder.address]));
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      expect(client.status).toBe(502);
      expect((await statusBody(client)).details).toMatchObject({ causes: [{ message: 'UPSTREAM_BROKEN' }] });
    }
    await recorder.until(() => recorder.uploads.every(({ aborted }) => aborted));
    expect(recorder.uploads.every(({ body }) => body.length === 0)).toBe(true);
  });
});

describe('a refusal of the API server', () => {
  const refusal = '{"kind":"Status","message":"pods \\"web\\" is forbidden","code":403}';

  it('reaches the client unchanged, and leaves no recording', async () => {
    const { recorder, rig } = await openRecorded((_request, socket) => {
      socket.end(
        'HTTP/1.1 403 Not You\r\nContent-Type: application/json\r\nX-Odd: a\r\nX-Odd: b\r\nSet-Cookie: ' +
          `s=1\r\nContent-Length: ${refusal.length}\r\n\r\n${refusal}`,
      );
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.head).toMatch(/^HTTP\/1\.1 403 Not You\r\n/);
    expect(client.head).toContain('X-Odd: a\r\nX-Odd: b\r\n');
    expect(client.head).not.toContain('Set-Cookie');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString()).toBe(refusal);
    await recorder.until(() => recorder.uploads[0]!.aborted);
    expect(recorder.uploads[0]!.body).toHaveLength(0);
    expect(rig.named('sessionStarted')).toEqual([]);
  });

  it.each(['Transfer-Encoding: chunked', `Content-Length: ${0x8000 * 32}`])(
    'of a session that must be recorded ends after 64 KiB (%s)',
    async (framing) => {
      const { rig } = await openRecorded((_request, socket) => {
        const piece = 'x'.repeat(0x8000);
        socket.on('error', () => {});
        socket.write(`HTTP/1.1 403 Forbidden\r\n${framing}\r\n\r\n`);
        for (let round = 0; round < 32; round += 1)
          socket.write(framing.endsWith('chunked') ? `8000\r\n${piece}\r\n` : piece);
        if (framing.endsWith('chunked')) socket.write('0\r\n\r\n');
      });
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      expect(client.head).toMatch(/^HTTP\/1\.1 403 /);
      await client.reader.untilClosed();
      expect(client.reader.bytes.length).toBeLessThan(70_000);
      expect(client.reader.bytes.toString().endsWith('0\r\n\r\n')).toBe(false);
      await expect.poll(() => rig.accessLines).toMatchObject([{ status: 403, error: 'UPSTREAM_BROKEN' }]);
    },
  );

  it('may be chunked and long', async () => {
    const { rig } = await openRig(
      (_request, socket) => {
        const chunk = 'x'.repeat(0x8000);
        socket.write('HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n');
        for (let round = 0; round < 32; round += 1) socket.write(`8000\r\n${chunk}\r\n`);
        socket.end('0\r\n\r\n');
      },
      { mode: 'off' },
    );
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.head).toContain('Transfer-Encoding: chunked\r\n');
    await client.reader.untilClosed();
    const body = client.reader.bytes.toString('latin1');
    expect(body.replaceAll(/(?:\r\n)?[0-9a-f]+\r\n/g, '').trimEnd()).toHaveLength(0x8000 * 32);
    expect(body).toMatch(/\r\n0\r\n\r\n$/);
  });

  it.each([
    ['failClosed', 502],
    ['failOpen', 200],
  ] as const)('may have a success status but no upgrade: %s sends the client %i', async (mode, status) => {
    const { recorder, rig } = await openRecorded(
      (_request, socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret'),
      { mode },
    );
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    await client.reader.untilClosed();
    expect(client.status).toBe(status);
    expect(client.reader.bytes.includes('secret')).toBe(mode === 'failOpen');
    await recorder.until(() => recorder.uploads[0]!.aborted);
    if (mode === 'failOpen') return;
    expect(rig.named('upstreamFailed')).toMatchObject([{ code: 'UPSTREAM_BROKEN' }]);
    expect(rig.upstreams.size).toBe(0);
  });

  it('may be missing: the client gets a Status', async () => {
    const { apiServer, rig } = await openRig((_request, socket) => socket.destroy(), {
      mode: 'off',
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(502);
    expect(rig.named('upstreamFailed')).toMatchObject([{ code: 'UPSTREAM_UNAVAILABLE' }]);
    expect(apiServer.connections).toBe(1);
  });
});

describe('fail modes', () => {
  it('enforced, no recorder: 403 with the reason, no request to the API server, before any time limit', async () => {
    const { apiServer, rig } = await openRig(
      webSocketExec([]),
      recordingPolicy('failClosed', [await deadAddress()]),
    );
    const started = performance.now();
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(403);
    const body = await statusBody(client);
    expect(body.message).toContain('must be recorded');
    expect(body.message).toContain('connection refused');
    expect(performance.now() - started).toBeLessThan(RECORDER_CLIENT_LIMITS.dialTimeoutMs);
    expect(apiServer.requests).toHaveLength(0);
    await expect.poll(() => rig.upstreams.size).toBe(0);
    expect(rig.named('requestRefused')).toMatchObject([
      { code: 'RECORDING_REQUIRED', user: 'alice@example.com' },
    ]);
  });

  it('enforced, no recorder named: 403', async () => {
    const { apiServer, rig } = await openRig(webSocketExec([]), recordingPolicy('failClosed', []));
    expect((await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).status).toBe(403);
    expect(apiServer.requests).toHaveLength(0);
  });

  it('enforced, tags instead of addresses: the gateway resolves the tags', async () => {
    const recorder = await openRecorder();
    const { rig } = await openRig(
      webSocketExec([]),
      { mode: 'failClosed', recorders: [], recorderTags: ['tag:rec'], events: false },
      {
        deps: {
          findRecorders: async ({ recorderTags }) =>
            recorderTags.includes('tag:rec') ? [recorder.address] : [],
        },
      },
    );
    expect((await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).status).toBe(101);
    expect(recorder.uploads).toHaveLength(1);
  });

  it('not enforced, no recorder: the session runs, and reports that it is not recorded', async () => {
    const { rig } = await openRig(
      webSocketExec([serverMessage(1, utf8('hello'))]),
      recordingPolicy('failOpen', [await deadAddress()]),
    );
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(client.status).toBe(101);
    expect(client.head).toMatch(/Warning: 299 - "this session is not recorded/);
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString('latin1')).toContain('hello');
    await rig.until('sessionEnded');
    expect(rig.named('sessionUnrecorded')).toHaveLength(1);
  });

  it('off: a tunnel to an app, with any protocol', async () => {
    const { apiServer, rig } = await openRig(
      (request, socket) => {
        socket.write(switching(request, undefined));
        socket.pipe(socket);
      },
      { mode: 'off' },
    );
    const headers = ['Connection: Upgrade', 'Upgrade: mystery/7'];
    expect((await askUpgrade(rig.port, { headers })).status).toBe(400);
    const target = '/api/v1/namespaces/default/pods/web/proxy/app';
    const client = await askUpgrade(rig.port, { headers, target });
    expect(client.status).toBe(101);
    client.socket.end('anything at all');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString()).toBe('anything at all');
    expect(await rig.until('sessionEnded')).toMatchObject({
      outcome: 'completed',
      inputBytes: 15,
      outputBytes: 15,
    });
    expect(apiServer.requests[0]!.headers.upgrade).toBe('mystery/7');
  });

  it('enforced, recorder lost: the session ends with a reason that the user sees', async () => {
    const { recorder, rig, client, server } = await beginExec({ behaviour: { upgradeOffered: false } });
    server.write(serverMessage(1, utf8('before')));
    await client.reader.take(serverMessage(1, utf8('before')).length);
    recorder.uploads[0]!.fail('no space left on device');
    await client.reader.untilClosed();
    const shown = client.reader.bytes.toString('latin1');
    expect(shown).toContain('tailcast: the session recorder was lost');
    expect(shown).toContain('no space left on device');
    expect(client.reader.bytes.subarray(-4).toString('hex')).toBe('880203e8');
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'recorder-lost' });
    expect(rig.named('recorderLost')).toMatchObject([{ mode: 'failClosed', resumed: false }]);
  });

  it('enforced, recorder lost during a frame: the connection is closed', async () => {
    const { recorder, rig, client, server } = await beginExec({ behaviour: { upgradeOffered: false } });
    server.write(serverMessage(1, utf8('half a frame')).subarray(0, 7));
    await client.reader.take(7);
    recorder.uploads[0]!.cut();
    await client.reader.untilClosed();
    expect(client.reader.size).toBe(0);
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'recorder-lost' });
  });
});

describe('other upgrades', () => {
  const portForward = '/api/v1/namespaces/default/pods/web/portforward';
  const echo: UpgradeScript = (request, socket) => {
    socket.write(switching(request, undefined));
    socket.pipe(socket);
  };

  it('port-forward is allowed with enforced recording, and its bytes are unchanged', async () => {
    const { rig } = await openRig(echo, recordingPolicy('failClosed', []));
    const headers = [...WEBSOCKET_V5.slice(0, 4), 'Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io'];
    const client = await askUpgrade(rig.port, { target: portForward, headers });
    expect(client.status).toBe(101);
    client.socket.end(Buffer.from([0, 1, 2, 255]));
    await client.reader.untilClosed();
    expect([...client.reader.bytes]).toEqual([0, 1, 2, 255]);
  });

  it('a watch over WebSocket is allowed with enforced recording', async () => {
    const { rig } = await openRig(echo, recordingPolicy('failClosed', []));
    const client = await askUpgrade(rig.port, { target: '/api/v1/pods?watch=1', headers: WEBSOCKET_V5 });
    expect(client.status).toBe(101);
  });

  it('are stored as events before they reach the API server, and refused if a required event fails', async () => {
    const recorded: string[] = [];
    const recorder = await openRecorder();
    const open = await openRig(echo, recordingPolicy('failOpen', [recorder.address], true), {
      deps: { recordApiRequest: async ({ admission }) => void recorded.push(admission.target.raw) },
    });
    await askUpgrade(open.rig.port, { target: portForward, headers: WEBSOCKET_V5 });
    expect(recorded).toEqual([portForward]);
    const closed = await openRig(echo, recordingPolicy('failClosed', [recorder.address], true), {
      deps: {
        recordApiRequest: async () => {
          throw new TailcastError('RECORDING_REQUIRED', 'nobody took it');
        },
      },
    });
    const client = await askUpgrade(closed.rig.port, { target: portForward, headers: WEBSOCKET_V5 });
    expect(client.status).toBe(403);
    expect(closed.apiServer.connections).toBe(0);
  });
});

describe('the end of sessions', () => {
  it('is reported to every recorded session at a shutdown, and no new session starts', async () => {
    const { recorder, rig, client } = await beginExec();
    expect(rig.sessions.size).toBe(1);
    await rig.sessions.endAll('maintenance');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString('latin1')).toContain('maintenance');
    expect(rig.sessions.size).toBe(0);
    expect(linesOf(recorder).at(-1)).toMatchObject({ kind: 'end', outcome: 'interrupted' });
    expect((await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).status).toBe(503);
  });

  it('happens after the identity of the caller became invalid', async () => {
    const { rig, client } = await beginExec({
      deps: {
        rechecks: {
          watch: (_admission, _peer, end) => {
            const timer = setTimeout(
              () => end(new TailcastError('IDENTITY_UNKNOWN', 'the node key has expired')),
              10,
            );
            return () => clearTimeout(timer);
          },
        },
      },
    });
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString('latin1')).toContain('the node key has expired');
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  it('is caused by a broken API server, and the recording is interrupted', async () => {
    const { recorder, rig, client, server } = await beginExec();
    server.resetAndDestroy();
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
    expect(linesOf(recorder).at(-1)).toMatchObject({ kind: 'end', outcome: 'interrupted' });
  });
});
