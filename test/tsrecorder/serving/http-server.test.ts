import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect as http2Connect } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createRig, HEADER, openUpload, until, uploadWhole, type Rig } from '../recorder-rig.ts';

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const EMPTY_SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

async function dial(rig: Rig): Promise<Socket> {
  const { host, port } = rig.recorder.address;
  const socket = connect({ host, port, noDelay: true });
  await once(socket, 'connect');
  return socket;
}

/** Returns the received bytes when `enough` returns true or the connection ends. */
async function receive(socket: Socket, enough: (received: Buffer) => boolean): Promise<Buffer> {
  let received = Buffer.alloc(0);
  for await (const chunk of socket) {
    received = Buffer.concat([received, chunk]);
    if (enough(received)) break;
  }
  return received;
}

/** Sends each piece in its own TCP segment. */
async function trickle(socket: Socket, bytes: Uint8Array, size: number): Promise<void> {
  for (let position = 0; position < bytes.length; position += size) {
    socket.write(bytes.subarray(position, position + size));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

describe('one port', () => {
  it.each([1, 3, 13, 14, 23, 24, 33])('speaks HTTP/2 to a preface in segments of %i bytes', async (size) => {
    await using rig = await createRig();
    const socket = await dial(rig);
    await trickle(socket, Buffer.concat([Buffer.from(PREFACE), EMPTY_SETTINGS]), size);
    // the server sends its SETTINGS: the fourth byte of the frame header contains type 4
    const received = await receive(socket, (bytes) => bytes.length >= 9);
    expect(received[3]).toBe(4);
    socket.destroy();
  });

  it.each([1, 5, 1000])('speaks HTTP/1.1 to a request in segments of %i bytes', async (size) => {
    await using rig = await createRig();
    const socket = await dial(rig);
    await trickle(
      socket,
      Buffer.from('GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'),
      size,
    );
    expect(String(await receive(socket, () => false))).toMatch(
      /^HTTP\/1\.1 200 OK\r\n[^]*\{"status":"ok"\}$/,
    );
  });

  it('treats a method that begins like the preface as HTTP/1.1', async () => {
    await using rig = await createRig();
    for (const start of ['PROPFIND / HTTP/1.1', 'PRI * HTTP/1.1', 'P / HTTP/1.1']) {
      const socket = await dial(rig);
      socket.write(`${start}\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
      expect(String(await receive(socket, () => false))).toMatch(/^HTTP\/1\.1 4\d\d /);
    }
  });

  it('stays on HTTP/1.1 if asked to upgrade to h2c', async () => {
    await using rig = await createRig();
    const socket = await dial(rig);
    socket.write(
      'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: ' +
        'h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n',
    );
    const received = String(await receive(socket, () => true));
    expect(received).toMatch(/^HTTP\/1\.1 4\d\d /);
    socket.destroy();
  });

  it('closes a connection that does not reveal its protocol', async () => {
    await using rig = await createRig({ timing: { headTimeoutMs: 50 } });
    for (const start of ['', 'PRI * HT', 'GET / HTTP/1.1\r\nHost:']) {
      const socket = await dial(rig);
      socket.write(start);
      const begun = performance.now();
      await receive(socket, () => false);
      expect(performance.now() - begun).toBeLessThan(5000);
    }
  });

  it('closes a connection with five requests in progress, and does not count completed ones', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack > 0);
    const [found] = await rig.list();
    const request = (target: string): string => `GET ${target} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const following = request(`/api/v1/recordings/${encodeURIComponent(found!.id)}/cast?follow=1`);
    const allowed = await dial(rig);
    for (let count = 0; count < 10; count += 1) {
      allowed.write(request('/healthz'));
      await once(allowed, 'data');
    }
    allowed.write(following.repeat(4));
    expect(String(await receive(allowed, (bytes) => bytes.includes('"version"')))).toContain(' 200 OK');
    const refused = await dial(rig);
    refused.write(following.repeat(5));
    await receive(refused, () => false);
    expect(refused.destroyed).toBe(true);
    upload.end();
    await upload.over;
  });

  it('survives connections that are reset at any moment', async () => {
    await using rig = await createRig();
    for (const start of [
      '',
      'P',
      PREFACE,
      `${PREFACE}${String(EMPTY_SETTINGS)}`,
      'POST /record HTTP/1.1\r\n',
    ]) {
      const socket = await dial(rig);
      socket.write(start, () => socket.resetAndDestroy());
      await once(socket, 'close');
    }
    expect((await rig.get('/healthz')).status).toBe(200);
  });

  it('offers large windows, and closes an abandoned connection', async () => {
    await using rig = await createRig({ timing: { idleTimeoutMs: 1000 } });
    const session = http2Connect(rig.recorder.url);
    await once(session, 'remoteSettings');
    expect(session.remoteSettings.initialWindowSize).toBe(1_048_576);
    await until(async () => (session.state.remoteWindowSize === 16_777_216 ? true : undefined));
    await once(session, 'close');
  });

  it('closes an idle HTTP/2 connection whose client never closes its side', async () => {
    await using rig = await createRig({ timing: { idleTimeoutMs: 300 } });
    const socket = await dial(rig);
    socket.on('error', () => {});
    socket.allowHalfOpen = true;
    socket.write(Buffer.concat([Buffer.from(PREFACE), EMPTY_SETTINGS]));
    const ping = Buffer.from([0, 0, 8, 6, 0, 0, 0, 0, 0, ...Array.from({ length: 8 }, () => 0)]);
    const timer = setInterval(() => socket.write(ping), 50);
    socket.resume();
    // waits without `once` of `node:events`, which would reject if writing a ping fails first
    await new Promise((resolve) => socket.once('close', resolve));
    clearInterval(timer);
    expect(socket.destroyed).toBe(true);
  });

  it('does not close a connection with an upload on it', async () => {
    await using rig = await createRig({ timing: { idleTimeoutMs: 40, idleAckMs: 20 } });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    await until(async () => (upload.acks.length > 8 ? true : undefined));
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length });
  });

  it('offers nothing else over HTTP/2', async () => {
    await using rig = await createRig();
    const session = http2Connect(rig.recorder.url);
    for (const [method, path, status] of [
      ['GET', '/api/v1/recordings', 404],
      ['GET', '/v2/record', 405],
      ['POST', '/record', 404],
      ['HEAD', '/v2/event', 200],
    ] as const) {
      const stream = session.request({ ':method': method, ':path': path });
      const [headers] = await once(stream, 'response');
      expect([path, headers[':status']]).toEqual([path, status]);
      stream.resume();
    }
    session.destroy();
  });

  it('disconnects uploaders when it stops, and keeps the data', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    await using after = await rig.restart();
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('shutting down');
    expect((await after.list()).map(({ state, problem }) => [state, problem])).toEqual([
      ['interrupted', 'the recorder was stopped'],
    ]);
  });

  it('refuses to start twice on one spool', async () => {
    await using rig = await createRig();
    await expect(createRig({}, rig.directory)).rejects.toMatchObject({ code: 'ALREADY_RUNNING' });
    await uploadWhole(rig.recorder, HEADER);
    expect(await rig.list()).toHaveLength(1);
  });

  it('starts on a spool whose owner has exited', async () => {
    await using rig = await createRig();
    await rig.recorder.close();
    await writeFile(join(rig.spool, 'owner'), '1 12345');
    await using after = await createRig({}, rig.directory);
    expect(await after.list()).toEqual([]);
  });
});
