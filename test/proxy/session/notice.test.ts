import { describe, expect, it } from 'vitest';
import { refuseHiddenTerminal } from '../../../src/proxy/session/container-terminal.ts';
import { holdSession } from '../../../src/proxy/session/moderated.ts';
import { encodeWebSocketFrame } from '../../../src/wire/websocket/frame.ts';
import {
  deadAddress,
  linesOf,
  openRecorded,
  openRecorder,
  openRig,
  recordingPolicy,
  webSocketExec,
} from '../../support/recorded-rig.ts';
import type { RecorderDouble } from '../../support/recorder-double.ts';
import { createSpdyPeer, serverMessage, STATUS_SUCCESS, utf8 } from '../../support/stream-peers.ts';
import { askUpgrade, EXEC, EXEC_TTY, SPDY_V4, switching, WEBSOCKET_V5 } from '../../support/upgrade-rig.ts';

/** The recorded output. */
function outputOf(double: RecorderDouble): string {
  return linesOf(double)
    .flatMap((line) => (Array.isArray(line) && line[1] === 'o' ? [String(line[2])] : []))
    .join('');
}

describe('a recorded session', () => {
  it.each(['v5.channel.k8s.io', 'base64.channel.k8s.io'])(
    'begins with the notice on a WebSocket terminal: %s',
    async (subprotocol) => {
      const { recorder, rig } = await openRecorded(
        (request, socket) => {
          socket.write(switching(request, subprotocol));
          const prompt = subprotocol.startsWith('base64')
            ? encodeWebSocketFrame({ opcode: 1, fin: true, payload: utf8('1IyA=') })
            : serverMessage(1, utf8('# '));
          socket.end(prompt);
          socket.resume();
        },
        { deps: { notice: 'This session is recorded.' } },
      );
      const headers = WEBSOCKET_V5.map((line) => line.replace('v5.channel.k8s.io', subprotocol));
      const client = await askUpgrade(rig.port, { target: EXEC_TTY, headers });
      await client.reader.untilClosed();
      await rig.until('sessionEnded');
      const line = 'This session is recorded.\r\n';
      const data = subprotocol.startsWith('base64')
        ? `1${Buffer.from(line).toString('base64')}`
        : `\u0001${line}`;
      expect(client.reader.bytes.toString('latin1', 2)).toMatch(
        new RegExp(`^${data.replaceAll('.', '\\.')}`),
      );
      expect(outputOf(recorder)).toBe(`${line}# `);
    },
  );

  it.each([1, 7, 65_536])(
    'begins with the notice on a SPDY terminal, in pieces of %d bytes',
    async (size) => {
      const { recorder, rig } = await openRecorded(
        (request, socket) => {
          const server = createSpdyPeer();
          socket.write(switching(request, 'v4.channel.k8s.io'));
          socket.once('data', () => {
            socket.resume();
            const bytes = Buffer.concat([
              ...[1, 3, 5, 7].map((id) => server.reply(id)),
              server.data(5, utf8('# ')),
              server.data(5, new Uint8Array(0), true),
              server.data(1, STATUS_SUCCESS, true),
            ]);
            for (let at = 0; at < bytes.length; at += size) socket.write(bytes.subarray(at, at + size));
            socket.end();
          });
        },
        { deps: { notice: 'This session is recorded.' } },
      );
      const client = await askUpgrade(rig.port, { method: 'POST', target: EXEC_TTY, headers: SPDY_V4 });
      const peer = createSpdyPeer();
      client.socket.write(
        Buffer.concat([
          ...['error', 'stdin', 'stdout', 'resize'].map((role, index) => peer.open(index * 2 + 1, role)),
          peer.data(7, utf8('{"Width":120,"Height":40}\n')),
        ]),
      );
      await client.reader.untilClosed();
      expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 0 });
      expect(outputOf(recorder)).toBe('This session is recorded.\r\n# ');
      const shown = client.reader.bytes.toString('latin1');
      const replied = shown.indexOf(Buffer.from([0x80, 3, 0, 2, 0, 0, 0]).toString('latin1'));
      expect(shown.indexOf('This session is recorded.')).toBeGreaterThan(replied);
      expect(shown.indexOf('This session is recorded.')).toBeLessThan(shown.indexOf('# '));
    },
  );

  it.each([
    ['a program reads the output', EXEC, 'failClosed' as const],
    ['no recorder is there', EXEC_TTY, 'failOpen' as const],
  ])('begins without a notice and a question if %s', async (_name, target, mode) => {
    const recorder = await openRecorder();
    const { rig } = await openRig(
      webSocketExec([serverMessage(1, utf8('out\n'))]),
      recordingPolicy(mode, [mode === 'failOpen' ? await deadAddress() : recorder.address]),
      { deps: { notice: 'This session is recorded.', asksReason: true, holdSession } },
    );
    const client = await askUpgrade(rig.port, { target, headers: WEBSOCKET_V5 });
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString('latin1')).toContain('out\n');
    expect(client.reader.bytes.toString('latin1')).not.toContain('recorded');
    expect(client.reader.bytes.toString('latin1')).not.toContain('Reason');
  });

  const container = (name: string, tty?: boolean): unknown => ({
    name,
    ...(tty === undefined ? {} : { tty }),
  });
  const podOf = (spec: unknown): unknown => ({ spec });
  it.each([
    ['its container', '', podOf({ containers: [container('a', true)] }), 403],
    ['one of its containers', '', podOf({ containers: [container('a'), container('b', true)] }), 403],
    ['the named container', '&container=b', podOf({ containers: [container('b', true)] }), 403],
    [
      'an ephemeral container',
      '&container=b',
      podOf({ containers: [container('a')], ephemeralContainers: [container('b', true)] }),
      403,
    ],
    [
      'only another container',
      '&container=b',
      podOf({ containers: [container('a', true), container('b')] }),
      101,
    ],
    ['no container', '', podOf({ containers: [container('a', false)] }), 101],
    ['no container of this name', '&container=b', podOf({ containers: [container('a')] }), 403],
    ['a pod that the caller may not read', '', undefined, 403],
    ['an invalid pod', '', 'no pod', 502],
  ])(
    'that attaches without a terminal is refused if the pod or container has one: a terminal has %s',
    async (_name, query, pod, status) => {
      const { apiServer, rig } = await openRecorded(webSocketExec([serverMessage(1, utf8('out\n'))]), {
        deps: { asksReason: true, holdSession, refuseHiddenTerminal },
      });
      apiServer.pod = pod;
      const target = `/api/v1/namespaces/default/pods/web/attach?stdin=true&stdout=true${query}`;
      const client = await askUpgrade(rig.port, { target, headers: WEBSOCKET_V5 });
      expect(client.status).toBe(status);
      expect(apiServer.requests[0]).toMatchObject({
        method: 'GET',
        url: '/api/v1/namespaces/default/pods/web',
      });
      expect(apiServer.requests.length).toBe(status === 101 ? 2 : 1);
    },
  );
});
