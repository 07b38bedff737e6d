/**
 * Viewers behind `tailscale serve`: a recorder with `proxyProtocol`, started from settings, with a tailscaled double.
 * The test sends PROXY headers as tailscaled does, and forges them as a process of the pod or a tailnet node would.
 */
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openIdentities } from '../../src/compose/recorder-identities.ts';
import { startRecorder } from '../../src/compose/recorder.ts';
import type { RunningRecorder } from '../../src/compose/recorder-parts.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import {
  startLocalApiDouble,
  taggedNode,
  userNode,
  type LocalApiDouble,
} from '../support/local-api-double.ts';
import { recorderSettings } from '../support/settings.ts';
import { HEADER, uploadWhole } from '../tsrecorder/recorder-rig.ts';

const ALICE = '100.64.0.4';
const CI = '100.64.0.5';
const STRANGER = '100.64.0.99';
const LIST = '/api/v1/recordings';

let localApi: LocalApiDouble;
beforeEach(async () => {
  localApi = await startLocalApiDouble();
  onTestFinished(() => localApi.close());
  const nodes = new Map<string, unknown>([
    [ALICE, userNode()],
    ['fd7a:115c:a1e0::4', userNode()],
    [CI, taggedNode()],
  ]);
  // The uploader connects from a port that the OS chooses.
  localApi.whois.get = (address) =>
    nodes.get(address) ?? (address.startsWith('127.0.0.1:') ? taggedNode(['tag:gateway']) : undefined);
});

/** Starts a recorder with one recording, which only alice may see. */
async function open(settings: Readonly<Record<string, unknown>> = {}): Promise<RunningRecorder> {
  const config = recorderSettings({
    listen: '127.0.0.1:0',
    proxyProtocol: '127.0.0.77:0',
    store: join(mkdtempSync(join(tmpdir(), 'tc-proxied-')), 'recordings'),
    socket: localApi.socketPath,
    viewers: 'alice@example.com',
    drainSeconds: 1,
    ...settings,
  });
  const { identify, identifyViewer } = openIdentities(config);
  const recorder = await startRecorder(config, { identify, identifyViewer, log: createSilentLogger() });
  onTestFinished(() => recorder.close());
  await uploadWhole(recorder, HEADER);
  return recorder;
}

/** Header of version 2 with the command PROXY, as tailscaled sends it. */
function header(address: string, port = 33_664): Buffer {
  const v4 = address.split('.').map(Number);
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(port);
  ports.writeUInt16BE(443, 2);
  const start = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
  return Buffer.concat([start, Buffer.from([0x21, 0x11, 0, 12]), Buffer.from([...v4, 100, 64, 0, 2]), ports]);
}

/** Opens a connection to the listener for PROXY headers, and sends bytes. */
async function dial(recorder: RunningRecorder, parts: readonly (string | Uint8Array)[]): Promise<Socket> {
  const socket = connect({ ...recorder.proxied!, noDelay: true });
  socket.on('error', () => undefined);
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  for (const part of parts) socket.write(part);
  return socket;
}

/** Sends bytes to the listener for PROXY headers, and returns all received bytes. */
async function send(recorder: RunningRecorder, ...parts: readonly (string | Uint8Array)[]): Promise<string> {
  return text(await dial(recorder, parts)).catch(() => '');
}

const requestOf = (path: string, method = 'GET'): string =>
  `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.77\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`;

/** Returns the status, and the number of recordings in the list. */
async function listed(recorder: RunningRecorder, ...head: readonly (string | Uint8Array)[]) {
  const answer = await send(recorder, ...head, requestOf(LIST));
  const [fields = '', body = ''] = answer.split('\r\n\r\n');
  const { recordings } = JSON.parse(/\{[^]*\}/.exec(body)?.[0] ?? '{}') as {
    recordings?: readonly { id: string }[];
  };
  return { status: Number(fields.split(' ')[1]), recordings: recordings?.length };
}

describe('viewers behind `tailscale serve` with PROXY headers', () => {
  it('are the nodes that the headers name', async () => {
    const recorder = await open();
    expect(await listed(recorder, header(ALICE))).toEqual({ status: 200, recordings: 1 });
    expect(await listed(recorder, header(CI))).toEqual({ status: 200, recordings: 0 });
    expect(await listed(recorder, header(STRANGER))).toMatchObject({ status: 403 });
    const v6 = 'PROXY TCP6 fd7a:115c:a1e0::4 fd7a:115c:a1e0::2 33664 443\r\n';
    expect(await listed(recorder, v6)).toEqual({ status: 200, recordings: 1 });
    // The queries contain no port, because tailscaled needs the port only for connections that it forwards itself.
    const asked = localApi.requests.map(({ url }) => new URL(url, 'http://double').searchParams.get('addr'));
    expect(asked).toEqual(expect.arrayContaining([ALICE, CI, STRANGER]));
  });

  it('are never the nodes that HTTP headers or a second PROXY header name', async () => {
    const recorder = await open();
    const request = requestOf(LIST).replace('\r\n\r\n', `\r\nX-Forwarded-For: ${ALICE}\r\n\r\n`);
    expect(await send(recorder, header(STRANGER), request)).toMatch(/^HTTP\/1\.1 403 /);
    expect(await send(recorder, header(STRANGER), header(ALICE), requestOf(LIST))).not.toMatch(
      /^HTTP\/1\.1 200 /,
    );
  });

  it('are not identified by a loopback port that the header claims', async () => {
    const recorder = await open({ viewers: '*' });
    // For this address and port, tailscaled would return the identity of the uploader.
    expect(await listed(recorder, header('127.0.0.1', 40_000))).toMatchObject({ status: 403 });
  });

  it.each([
    ['no header', []],
    ['a header with a wrong version', [Buffer.from(header(ALICE)).fill(0x31, 12, 13)]],
    ['a header after the request', [requestOf(LIST), header(ALICE)]],
  ])('are refused with %s', async (_name, head) => {
    const recorder = await open({ viewers: undefined });
    const before = localApi.requests.length;
    expect(await send(recorder, ...head, requestOf(LIST))).toBe('');
    expect(localApi.requests.length).toBe(before);
  });

  it('may watch live, and do not upload', async () => {
    const recorder = await open();
    const list = await send(recorder, header(ALICE), requestOf(LIST));
    const [, id = ''] = /"id":"([^"]+)"/.exec(list) ?? [];
    const upgrade = async (address: string): Promise<string> => {
      const request =
        `GET ${LIST}/${id}/live HTTP/1.1\r\nHost: 127.0.0.77\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n';
      const [chunk] = (await once(await dial(recorder, [header(address), request]), 'data')) as [Buffer];
      return chunk.toString('latin1');
    };
    expect(await upgrade(ALICE)).toMatch(/^HTTP\/1\.1 101 /);
    expect(await upgrade(CI)).toMatch(/^HTTP\/1\.1 404 /);
    for (const path of ['/record', '/v2/record', '/v2/event'])
      expect(await send(recorder, header(ALICE), requestOf(path, 'POST'))).toMatch(/^HTTP\/1\.1 40[45] /);
  });

  it('leave the other listener as it is', async () => {
    const recorder = await open({ viewers: 'tag:gateway' });
    const answer = await fetch(`${recorder.url}${LIST}`);
    expect([answer.status, ((await answer.json()) as { recordings: [] }).recordings.length]).toEqual([
      200, 1,
    ]);
    const socket = connect(recorder.address);
    socket.write(header(ALICE));
    socket.write(requestOf(LIST));
    expect(await text(socket).catch(() => '')).not.toMatch(/^HTTP\/1\.1 200 /);
  });

  it('have no listener by default', async () => {
    expect((await open({ proxyProtocol: 'off' })).proxied).toBeUndefined();
  });
});

describe('the setting proxyProtocol of a recorder', () => {
  it.each(['127.0.0.1:8080', '[::1]:8080', ':8080', '0.0.0.0:8080', '100.64.0.1:8080', 'localhost:8080'])(
    'refuses %s, which other nodes may reach',
    async (proxyProtocol) => {
      await expect(open({ proxyProtocol })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    },
  );

  it('needs tailscaled', async () => {
    await expect(open({ identity: 'loopback', viewers: undefined })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining('identity=tailscale') as string,
    });
  });
});
