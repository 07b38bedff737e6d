/**
 * Requests with headers of any size. Headers within the limit must arrive complete. Requests with larger headers must
 * be refused with a Status, logged and counted.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  ALICE,
  connectAs,
  GATEWAY_HOST,
  openArena,
  sendHttp1,
  sendHttp2,
  type Arena,
  type Outcome,
} from './arena.ts';
import { valuesOf } from './echo-api-server.ts';
import { encodeBlock, encodeFrame, FLAG, FRAME, PREFACE, readFrames, type Field } from './raw-http2.ts';
import { EXEC, LIST, WEBSOCKET } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena({ mode: 'noauth' });
});
afterAll(() => arena.close());

const groups = (count: number): readonly Field[] => [
  ['Impersonate-User', 'alice'],
  ...Array.from({ length: count }, (_, index): Field => ['Impersonate-Group', `team-${index}`]),
];

function overHttp1(fields: readonly Field[], target = LIST): Promise<Outcome> {
  const lines = [['Host', GATEWAY_HOST], ...fields].map(([name, value]) => `${name}: ${value}\r\n`);
  return sendHttp1(arena, ALICE, `GET ${target} HTTP/1.1\r\n${lines.join('')}\r\n`);
}

function pseudo(target: string): readonly Field[] {
  return [
    [':method', 'GET'],
    [':scheme', 'https'],
    [':path', target],
    [':authority', GATEWAY_HOST],
  ];
}
const lower = (fields: readonly Field[]): readonly Field[] =>
  fields.map(([name, value]): Field => [name.toLowerCase(), value]);
const overHttp2 = (fields: readonly Field[], target = LIST): Promise<Outcome> =>
  sendHttp2(arena, ALICE, [...pseudo(target), ...lower(fields)]);

/**
 * Sends long headers as Go's client does: waits for the server's SETTINGS, and then sends frames of the maximum size in
 * these SETTINGS.
 */
async function overHttp2InLargeFrames(fields: readonly Field[], target = LIST): Promise<Outcome> {
  const socket = await connectAs(arena, ALICE, 'h2');
  const { promise, resolve } = Promise.withResolvers<Outcome>();
  socket.on('close', () => resolve({ kind: 'closed' }));
  let status = 0;
  readFrames(socket, ({ type, flags, streamId, payload }) => {
    if (type === FRAME.settings && (flags & FLAG.ack) === 0) {
      let maxFrame = 16_384;
      for (let at = 0; at < payload.length; at += 6)
        if (payload.readUInt16BE(at) === 5) maxFrame = payload.readUInt32BE(at + 2);
      for (const frame of encodeBlock([...pseudo(target), ...lower(fields)], FLAG.endStream, 1, maxFrame))
        socket.write(frame);
    }
    if (streamId === 1 && type === FRAME.headers) status = (payload[0] ?? 0) === 0x88 ? 200 : 400;
    if (streamId === 1 && type === FRAME.data) {
      const body = payload.toString('latin1');
      resolve({ kind: 'response', status: status === 200 ? 200 : codeOf(body), head: '', body });
    }
    if (type === FRAME.reset || type === FRAME.goaway) resolve({ kind: 'closed' });
  });
  socket.write(PREFACE);
  socket.write(encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0)));
  const outcome = await promise;
  socket.destroy();
  return outcome;
}

function codeOf(body: string): number {
  return (JSON.parse(body) as { code: number }).code;
}

/** Polls the gateway's log, because the gateway notices later than the client that a connection was closed. */
async function untilLogged(line: RegExp): Promise<void> {
  await expect.poll(() => line.test(arena.logged()), { timeout: 10_000 }).toBe(true);
}

describe.each([
  ['HTTP/1.1', overHttp1],
  ['HTTP/2', overHttp2],
  ['HTTP/2 in large frames', overHttp2InLargeFrames],
] as const)('over %s', (_protocol, ask) => {
  it.each([92, 93, 120, 130, 1000])('%i groups arrive', async (count) => {
    const before = arena.apiServer.requests.length;
    expect(await ask(groups(count))).toMatchObject({ kind: 'response', status: 200 });
    const [request] = arena.apiServer.requests.slice(before);
    expect(valuesOf(request!, 'impersonate-group')).toEqual(
      groups(count)
        .slice(1)
        .map(([, value]) => value),
    );
  });

  // Node's HTTP/2 client sends at most 64 KiB of headers
  const most = ask === overHttp2 ? 2000 : 4000;
  it(`${most} groups arrive`, async () => {
    const before = arena.apiServer.requests.length;
    expect(await ask(groups(most))).toMatchObject({ kind: 'response', status: 200 });
    expect(valuesOf(arena.apiServer.requests[before]!, 'impersonate-group')).toHaveLength(most);
  });

  it('a target of 60 KiB arrives', async () => {
    const outcome = await ask([], `${LIST}?labelSelector=${'x'.repeat(60 * 1024)}`);
    expect(outcome).toMatchObject({ kind: 'response', status: 200 });
  });
});

it.each([
  ['HTTP/1.1', overHttp1],
  ['HTTP/2 in large frames', overHttp2InLargeFrames],
] as const)('headers over 256 KiB are refused over %s by a Status that says so', async (_protocol, ask) => {
  const before = arena.apiServer.receivedBytes;
  const outcome = await ask(groups(4600));
  expect(outcome).toMatchObject({ kind: 'response', status: 431 });
  expect(JSON.stringify(outcome)).toContain('over 256 KiB');
  expect(arena.apiServer.receivedBytes).toBe(before);
  expect(arena.logged()).toMatch(/"code":"HEADERS_TOO_LARGE"[^\n]*over 256 KiB/);
});

it('a target of 256 KiB and more is 414', async () => {
  const length = 256 * 1024;
  const outcome = await overHttp1([], `${LIST}?labelSelector=${'x'.repeat(length)}`);
  expect(outcome).toMatchObject({ kind: 'response', status: 414 });
  expect(JSON.stringify(outcome)).toContain('TARGET_TOO_LONG');
});

it('a target over 64 KiB ends an HTTP/2 connection, and is logged', async () => {
  const outcome = await overHttp2InLargeFrames([], `${LIST}?labelSelector=${'x'.repeat(100 * 1024)}`);
  expect(outcome).toEqual({ kind: 'closed' });
  await untilLogged(/"code":"REQUEST_MALFORMED"[^\n]*the HTTP\/2 connection failed[^\n]*"protocol":"h2"/);
});

it('headers in more frames than nghttp2 accepts end an HTTP/2 connection, and are logged', async () => {
  expect(await overHttp2(groups(6000))).toEqual({ kind: 'closed' });
  await untilLogged(/"code":"HEADERS_TOO_LARGE"[^\n]*CONTINUATION[^\n]*"protocol":"h2"/);
});

it('an upgrade with 130 groups arrives', async () => {
  expect(await overHttp1([...WEBSOCKET, ...groups(130)], EXEC)).toMatchObject({ status: 101 });
});

it.each([
  [
    'a head over every limit',
    `GET /api HTTP/1.1\r\nHost: a\r\nA: ${'x'.repeat(1_400_000)}\r\n\r\n`,
    431,
    'HEADERS_TOO_LARGE',
  ],
  ['malformed bytes', 'GET /api HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n', 400, 'REQUEST_MALFORMED'],
  ['CONNECT', 'CONNECT kubernetes:443 HTTP/1.1\r\nHost: a\r\n\r\n', 405, 'METHOD_REFUSED'],
])('%s is a Status, and is logged', async (_name, bytes, status, code) => {
  const before = arena.logged().split(`"code":"${code}"`).length;
  expect(await sendHttp1(arena, ALICE, bytes)).toMatchObject({ status });
  expect(arena.logged().split(`"code":"${code}"`).length).toBe(before + 1);
});

it('a stream that nghttp2 resets is logged with the next one, or when the connection ends', async () => {
  const socket = await connectAs(arena, ALICE, 'h2');
  const answered = Promise.withResolvers<void>();
  const reset = Promise.withResolvers<void>();
  readFrames(socket, ({ type, streamId }) => {
    if (type === FRAME.reset && streamId === 1) reset.resolve();
    if (type === FRAME.headers && streamId === 3) answered.resolve();
  });
  const block = (streamId: number, fields: readonly Field[]): Buffer =>
    Buffer.concat(encodeBlock([...pseudo(LIST), ...fields], FLAG.endStream, streamId));
  socket.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0))]));
  socket.write(block(1, [['connection', 'close']]));
  await reset.promise;
  socket.write(block(3, []));
  await answered.promise;
  expect(arena.logged()).toMatch(/"code":"REQUEST_MALFORMED"[^\n]*1 HTTP\/2 streams were reset/);
  socket.destroy();

  const alone = await connectAs(arena, ALICE, 'h2');
  const isReset = Promise.withResolvers<void>();
  readFrames(alone, ({ type }) => {
    if (type === FRAME.reset) isReset.resolve();
  });
  alone.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0))]));
  alone.write(
    block(1, [
      ['x-a', 'v'.repeat(2000)],
      ['connection', 'close'],
    ]),
  );
  await isReset.promise;
  alone.end();
  await untilLogged(/ended without a readable request/);
});
