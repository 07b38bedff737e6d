/** Upgraded uploads of peers that violate the protocol or disconnect. */
import { once } from 'node:events';
import { connect as http2Connect } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { takeRecording } from '../../../src/tsrecorder/serving/upload-handler.ts';
import { overUpgrade } from '../../../src/tsrecorder/serving/upload-transports.ts';
import { createRecorderMetrics } from '../../../src/tsrecorder/intake/recorder-metrics.ts';
import type { UploadEvents } from '../../../src/tsrecorder/intake/upload-connection.ts';
import { FrameBatch } from '../../../src/wire/recorder-api/upload-frame.ts';
import { encodeRecords, MAX_UPLOAD_RECORD_BYTES } from '../../../src/wire/recorder-api/length-prefixed.ts';
import { recordOf } from '../../support/recorder-double.ts';
import { createRig, HEADER, openUpload, STORED_HEADER, until, UPLOADER, type Rig } from '../recorder-rig.ts';
import { spoolStatus } from '../../../src/tsrecorder/intake/spool-status.ts';

const LINE = '[0.5,"o","hello\\r\\n"]\n';
const END = Buffer.alloc(4);

async function dial(rig: Rig, allowHalfOpen = false): Promise<Socket> {
  const { host, port } = rig.recorder.address;
  const socket = connect({ host, port, noDelay: true, allowHalfOpen });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

const ask = (fields: Record<string, string> = {}, start = 'GET /v2/record HTTP/1.1'): string =>
  [
    start,
    ...Object.entries({
      Host: 'x',
      Connection: 'Upgrade',
      Upgrade: 'tailcast-record/1',
      ...another(),
      ...fields,
    })
      .filter(([, value]) => value !== '')
      .map(([name, value]) => `${name}: ${value}`),
    '\r\n',
  ].join('\r\n');

const named = (name: string): Record<string, string> => ({ 'tailcast-session': name });

/** Returns a message with a frame of complete lines. */
function frameOf(lines: string): Buffer {
  const batch = new FrameBatch();
  batch.text(lines);
  return Buffer.concat(encodeRecords([batch.take()], MAX_UPLOAD_RECORD_BYTES));
}

let sessions = 0;
/** Returns a new name for each upload. */
const another = (): Record<string, string> => named(`a${(sessions += 1)}`);

/** Returns all data until the connection ends. */
async function receiveAll(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.once('end', () => socket.destroy());
  if (!socket.closed) await once(socket, 'close');
  return Buffer.concat(chunks).toString('latin1');
}

async function states(rig: Rig): Promise<readonly string[]> {
  return (await rig.list('?limit=500')).map(({ state }) => state);
}

describe('GET /v2/record', () => {
  it('is announced to HEAD, and its 101 contains the durable position', async () => {
    await using rig = await createRig();
    const session = http2Connect(rig.recorder.url);
    const [head] = await once(session.request({ ':method': 'HEAD', ':path': '/v2/record' }), 'response');
    session.destroy();
    const offers = Object.entries(head as object).filter(([name]) => name.startsWith('tailcast-'));
    expect(Object.fromEntries(offers)).toEqual({ 'tailcast-upgrade': '1' });
    const upload = openUpload(rig.recorder, named('s'));
    expect(await upload.headers).toMatchObject({
      ':status': 101,
      connection: 'Upgrade',
      upgrade: 'tailcast-record/1',
      'tailcast-offset': '0',
    });
    upload.close();
  });

  it.each([
    ['another method', ask({}, 'POST /v2/record HTTP/1.1'), 405, 'METHOD_REFUSED'],
    ['another protocol', ask({ Upgrade: 'websocket' }), 400, 'UPLOAD_MALFORMED'],
    ['a newer version alone', ask({ Upgrade: 'tailcast-record/2' }), 400, 'UPLOAD_MALFORMED'],
    ['a body', `${ask({ 'Content-Length': '2' })}{}`, 400, 'UPLOAD_MALFORMED'],
    ['an odd name', ask(named('a b')), 400, 'UPLOAD_MALFORMED'],
    ['no name', ask(named('')), 400, 'UPLOAD_MALFORMED'],
    ['no place in frames', ask({ 'tailcast-offset': '5' }), 400, 'UPLOAD_MALFORMED'],
    [
      'a middle that is not here',
      ask({ 'tailcast-offset': '5', 'tailcast-frames': '5' }),
      409,
      'UPLOAD_CONFLICT',
    ],
  ])('with %s is refused like any other request', async (_, request, status, code) => {
    await using rig = await createRig();
    const socket = await dial(rig);
    socket.write(request);
    const answer = await receiveAll(socket);
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} .+\\r\\n`));
    const [head, body] = answer.split('\r\n\r\n');
    expect(head).toContain('connection: close');
    expect(head).toContain(`content-length: ${Buffer.byteLength(body!)}`);
    expect(JSON.parse(body!)).toMatchObject({ code });
    expect((await rig.get('/healthz')).status).toBe(200);
    expect(await rig.list()).toEqual([]);
  });

  it('without an upgrade responds with a hint', async () => {
    await using rig = await createRig();
    const socket = await dial(rig);
    socket.write(ask({ Connection: 'close', Upgrade: '' }));
    expect(await receiveAll(socket)).toMatch(/^HTTP\/1\.1 400 [^]*UPLOAD_MALFORMED/);
  });

  it.each([
    ['somebody who is refused', 403, { identify: async () => ({ kind: 'refused', reason: 'no' }) as const }],
    ['somebody of whom nobody knows', 503, { identify: () => Promise.reject(new Error('no socket')) }],
    ['anybody when there is no room', 507, { limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } }],
    ['more sessions than allowed', 503, { limits: { maxSessions: 0 } }],
  ])('is refused for %s, and counted', async (_, status, options) => {
    const registry = new Registry();
    await using rig = await createRig({ ...options, registry });
    const socket = await dial(rig);
    // a peer that does not wait for the response
    socket.write(Buffer.concat([Buffer.from(ask()), frameOf(HEADER), END]));
    expect(await receiveAll(socket)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(await registry.getSingleMetricAsString('tailcast_recorder_refused_total')).toMatch(/\} 1$/m);
    expect(await rig.list()).toEqual([]);
  });

  it('identifies the uploader before the 101, and stops if the uploader disconnects', async () => {
    const asked = Promise.withResolvers<AbortSignal>();
    await using rig = await createRig({
      identify: (_from, signal) => {
        asked.resolve(signal);
        return new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new Error('gone')), { once: true });
        });
      },
    });
    const socket = await dial(rig);
    socket.write(ask());
    const signal = await asked.promise;
    socket.resetAndDestroy();
    await once(signal, 'abort');
    expect((await rig.get('/healthz')).status).toBe(200);
  });
});

describe('an upgraded upload', () => {
  it('accepts data that was sent before the 101, in one segment or byte by byte', async () => {
    await using rig = await createRig();
    const bytes = (): Buffer => Buffer.concat([Buffer.from(ask()), frameOf(HEADER + LINE), END]);
    const quick = await dial(rig);
    quick.write(bytes());
    expect(await receiveAll(quick)).toMatch(/^HTTP\/1\.1 101 [^]*\0\0\0\0$/);
    const slow = await dial(rig);
    for (const byte of bytes()) slow.write(Uint8Array.of(byte));
    expect(await receiveAll(slow)).toMatch(/^HTTP\/1\.1 101 [^]*\0\0\0\0$/);
    expect(await states(rig)).toEqual(['completed', 'completed']);
  });

  it.each(['end', 'resetAndDestroy'] as const)(
    'that is interrupted after any byte is incomplete: %s',
    async (how) => {
      await using rig = await createRig({ timing: { resumeGraceMs: 1 } });
      const records = Buffer.concat([frameOf(HEADER), frameOf(LINE), frameOf(LINE), END]);
      const cuts = Array.from({ length: records.length }, (_, sent) => sent).filter(
        (sent) => sent < 11 || sent > 9 + HEADER.length - 2,
      );
      const cut = async (sent: number): Promise<void> => {
        const upload = await dial(rig);
        upload.write(ask());
        await once(upload, 'data');
        upload.resume();
        if (sent > 0) await new Promise((resolve) => upload.write(records.subarray(0, sent), resolve));
        if (how === 'end') upload.end();
        else upload.resetAndDestroy();
        if (!upload.closed) await once(upload, 'close');
      };
      for (let start = 0; start < cuts.length; start += 20)
        await Promise.all(cuts.slice(start, start + 20).map(cut));
      const whole = how === 'end' ? cuts.filter((sent) => sent >= 9 + HEADER.length).length : undefined;
      await until(async () => {
        const found = await states(rig);
        const settled = found.every((state) => state === 'interrupted');
        // a reset may discard sent bytes
        return settled && (whole === undefined || found.length === whole) ? true : undefined;
      });
      expect(await states(rig)).not.toContain('completed');
    },
  );

  it('is interrupted if the connection ends, even if its session was complete', async () => {
    await using rig = await createRig({ timing: { resumeGraceMs: 60_000 } });
    const upload = openUpload(rig.recorder, named('s'));
    upload.write(HEADER + LINE);
    await upload.ack(({ ack }) => ack === HEADER.length + LINE.length);
    upload.close();
    await upload.over;
    expect(await states(rig)).toEqual(['running']);
    const again = openUpload(rig.recorder, { ...named('s'), 'tailcast-offset': String(HEADER.length) });
    expect((await again.headers)['tailcast-offset']).toBe(String(HEADER.length + LINE.length));
    again.write(LINE);
    again.end();
    await again.over;
    expect(await states(rig)).toEqual(['completed']);
  });

  it.each([
    ['a record that is too long', Buffer.from([0, 0x40, 0, 1]), 'too long'],
    ['bytes behind the end', Buffer.concat([END, Buffer.from('x')]), 'bytes follow the end'],
  ])('with %s ends with an error message, and earlier data stays', async (_, bytes, words) => {
    const registry = new Registry();
    await using rig = await createRig({ registry, timing: { resumeGraceMs: 1 } });
    const socket = await dial(rig);
    socket.write(ask());
    await once(socket, 'data');
    socket.write(Buffer.concat([frameOf(HEADER), frameOf(LINE), bytes]));
    const received = await receiveAll(socket);
    expect(received).toContain(words);
    expect(received).not.toMatch(/\0\0\0\0$/);
    const recording = await until(async () => (await rig.list()).find(({ state }) => state !== 'running'));
    expect((await rig.get(`/api/v1/recordings/${recording.id}/cast`)).body).toBe(STORED_HEADER + LINE);
    expect(await registry.getSingleMetricAsString('tailcast_recorder_uploads_failed_total')).toContain(
      'UPLOAD_MALFORMED',
    );
  });

  it('accepts a record of 4 MiB', async () => {
    await using rig = await createRig();
    const socket = await dial(rig);
    socket.write(ask());
    await once(socket, 'data');
    const line = `[1,"o","${'x'.repeat(1_000_000)}"]\n`;
    const lines = HEADER + line.repeat(4);
    const body = lines + `[2,"o","${'y'.repeat(4 * 1024 * 1024 - 5 - lines.length - 11)}"]\n`;
    expect(body).toHaveLength(4 * 1024 * 1024 - 5);
    socket.write(Buffer.concat([frameOf(body), END]));
    expect(await receiveAll(socket)).toMatch(/\0\0\0\0$/);
    expect(await states(rig)).toEqual(['completed']);
  });

  it('that has ended and closes its direction as well is stored normally', async () => {
    await using rig = await createRig();
    const socket = await dial(rig, true);
    socket.write(ask());
    await once(socket, 'data');
    socket.end(Buffer.concat([frameOf(HEADER + LINE), END]));
    await receiveAll(socket);
    await expect.poll(() => states(rig)).toEqual(['completed']);
  });

  it('whose connection ends before the 101 leaves no resources open', async () => {
    const go = Promise.withResolvers<void>();
    await using rig = await createRig({
      identify: async () => {
        await go.promise;
        return UPLOADER;
      },
    });
    const sockets = [true, false].map(async (withBody) => {
      const socket = await dial(rig, true);
      socket.end(Buffer.concat([Buffer.from(ask()), ...(withBody ? [frameOf(HEADER + LINE)] : [])]));
      return receiveAll(socket);
    });
    await until(async () => ((await rig.get('/healthz')).status === 200 ? true : undefined));
    go.resolve();
    await Promise.all(sockets);
    await expect.poll(() => states(rig)).not.toContain('running');
  });

  it('continues next to a hundred silent uploads, and all end when the recorder stops', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry, timing: { idleAckMs: 20, headTimeoutMs: 100 } });
    const silent = await Promise.all(Array.from({ length: 100 }, () => dial(rig, true)));
    await Promise.all(
      silent.map((socket) => {
        socket.write(ask());
        return once(socket, 'data');
      }),
    );
    const upload = openUpload(rig.recorder, another());
    upload.write(HEADER + LINE);
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + LINE.length });
    const open = async (): Promise<number | undefined> =>
      (await registry.getSingleMetric('tailcast_recorder_connections')!.get()).values[0]?.value;
    await until(async () => ((await open()) === 100 ? true : undefined));
    const gone = silent.map((socket) => receiveAll(socket));
    await rig.recorder.close();
    expect((await Promise.all(gone)).every((text) => text.includes('shutting down'))).toBe(true);
    expect(await open()).toBe(0);
  });
});

describe('the acknowledgements of an upgraded upload', () => {
  it('are not queued while the client does not read, and the last one arrives later', async () => {
    let events: UploadEvents | undefined;
    let release: (() => void) | undefined;
    const written: string[] = [];
    const socket = new Duplex({
      writableHighWaterMark: 200,
      read: () => undefined,
      write(chunk: Buffer, _encoding, done) {
        written.push(chunk.toString('latin1'));
        if (written.length === 1) done();
        else release = done;
      },
    });
    const { metrics } = metricsOf();
    await takeRecording(
      {
        metrics,
        idleAckMs: 600_000,
        ingest: {
          begin: async (_origin, _at, told) => {
            events = told;
            return {
              durableBytes: 0,
              acknowledged: { ack: 0 },
              push: () => true,
              end: async () => true,
              cut: () => undefined,
            };
          },
        },
      },
      { ...UPLOADER, address: '192.0.2.1' },
      overUpgrade(socket, Buffer.alloc(0)),
      { session: 's', at: { offset: 0, frames: 0, number: 1, preambleBytes: 0 }, waits: false },
    );
    for (let ack = 1; ack <= 10_000; ack += 1) events!.durable({ ack });
    expect(socket.writableLength).toBeLessThan(300);
    while (socket.writableLength > 0) {
      release?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(written.at(-1)).toBe(recordOf('{"ack":10000}\n').toString('latin1'));
    expect(written.length).toBeLessThan(20);
    events!.failed(new TailcastError('STORE_FULL', 'x'.repeat(100_000)));
    expect(socket.writableEnded).toBe(true);
    socket.destroy();
  });
});

function metricsOf(): { readonly metrics: ReturnType<typeof createRecorderMetrics> } {
  return {
    metrics: createRecorderMetrics(new Registry(), () => ({
      ...spoolStatus([], 0, 0),
      waitingBytes: 0,
      unpublishedEntries: 0,
    })),
  };
}
