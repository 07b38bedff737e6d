/** Uploads over upgraded connections: recorders that accept upgrades, recorders that do not, and broken connections. */
import { createHash, randomBytes } from 'node:crypto';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import {
  createRecorderClient,
  type RecorderClient,
  type RecorderClientDeps,
} from '../../src/recording/recorder-client.ts';
import type { RecorderConnection } from '../../src/recording/recorder-connection.ts';
import { NotUpgradedError, openUpgraded, UploadRefusedError } from '../../src/recording/recorder-upgrade.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';
import { FrameBatch } from '../../src/wire/recorder-api/upload-frame.ts';
import { dialBlackHole, dialLoopback } from '../support/recorder-dial.ts';
import {
  recordOf,
  startRecorderDouble,
  type RecorderBehaviour,
  type RecorderDouble,
} from '../support/recorder-double.ts';
import { listenOn } from '../support/listen.ts';

const YES = Buffer.from(
  'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tailcast-record/1\r\n\r\n',
);

const closers: (() => Promise<void> | void)[] = [];
const never = new AbortController().signal;

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Behaviour of Tailscale's recorder (*the reference*). */
const REFERENCE: RecorderBehaviour = { upgradeOffered: false };

async function recorder(behaviour: RecorderBehaviour = {}, port = 0): Promise<RecorderDouble> {
  const double = await startRecorderDouble(behaviour, port);
  closers.push(() => double.close());
  return double;
}

function client({ limits, ...deps }: Partial<RecorderClientDeps> = {}): RecorderClient {
  const made = createRecorderClient({
    dial: dialLoopback,
    nowMs: () => performance.now(),
    log: createSilentLogger(),
    ...deps,
    limits: { moveRetryMs: 5, suspectMs: 0, ...limits },
  });
  closers.push(() => made.close());
  return made;
}

const open = (from: RecorderClient, ...doubles: readonly RecorderDouble[]): Promise<RecorderUpload> =>
  from.open({ recorders: doubles.map(({ address }) => address), sessionId: 's1' }, never);

/** Returns one frame with that many bytes of output. */
function frame(bytes: number): Uint8Array {
  const batch = new FrameBatch();
  batch.output(1, randomBytes(bytes), 'exact');
  return batch.take().slice();
}

const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex');
const roads = ({ uploads }: RecorderDouble): readonly string[] => uploads.map(({ protocol }) => protocol);

describe('a recorder that supports upgrades', () => {
  it('is checked over HTTP/2 first, and then gets the frames over an upgraded connection', async () => {
    const double = await recorder();
    const upload = await open(client(), double);
    expect(upload.protocol).toBe('v2');
    expect(upload.createBatch().annotations).toBe(true);
    const frames = Buffer.concat(Array.from({ length: 40 }, () => frame(20_000)));
    await upload.write(frames);
    expect(await upload.end()).toBe('confirmed');
    expect(upload.pendingBytes).toBe(0);
    expect(roads(double)).toEqual(['upgraded']);
    const [got] = double.uploads;
    expect(sha256(got!.body)).toBe(sha256(frames));
    expect(got!.ended).toBe(true);
    expect(got!.records!.at(-1)).toBe(0);
    expect(got!.headers).toMatchObject({
      'tailcast-session': 's1',
      'tailcast-frames': '0',
      'tailcast-part': '1',
      connection: 'Upgrade',
    });
    expect(double.probes).toEqual(['v2', 'upgrade']);
    expect(double.connections).toBe(2);
  });

  it('gets the upgrade request immediately for later sessions', async () => {
    const double = await recorder();
    const from = client();
    for (let round = 0; round < 3; round += 1) await (await open(from, double)).end();
    expect(double.probes).toEqual(['v2', 'upgrade', 'upgrade', 'upgrade']);
    expect(double.connections).toBe(4);
    expect(roads(double)).toEqual(['upgraded', 'upgraded', 'upgraded']);
  });

  it('gets the writes of one turn as one record, without delay', async () => {
    const double = await recorder();
    const upload = await open(client(), double);
    const pieces = [frame(2000), frame(30), frame(5000)];
    void upload.write(pieces);
    const [got] = double.uploads;
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    await double.until(() => got!.size === bytes);
    expect(got!.records).toEqual([bytes]);
    void upload.write(frame(10));
    await double.until(() => got!.records!.length === 2);
    await upload.end();
  });

  it('gets records of 4 MiB at most', async () => {
    const double = await recorder({ acks: 'alive' });
    const upload = await open(client({ limits: { maxPendingBytes: 64 * 1024 ** 2 } }), double);
    const frames = Buffer.concat(Array.from({ length: 10 }, () => frame(1024 ** 2)));
    await upload.write(frames);
    const [got] = double.uploads;
    await double.until(() => got!.size === frames.length);
    expect(Math.max(...got!.records!)).toBe(4 * 1024 * 1024);
    expect(sha256(got!.body)).toBe(sha256(frames));
    upload.abort();
  });

  it('gets an interruption, not an end, if the session is aborted', async () => {
    const double = await recorder();
    const upload = await open(client(), double);
    void upload.write(frame(100));
    await double.until(() => double.uploads[0]!.size > 0);
    void upload.write(frame(100));
    upload.abort();
    await double.until(() => double.uploads[0]!.aborted);
    expect(double.uploads[0]!.ended).toBe(false);
    expect(double.uploads[0]!.records).not.toContain(0);
  });

  it('continues a session after an interruption, and gets the start of the session again', async () => {
    const first = await recorder({ acks: 'alive' });
    const second = await recorder();
    const upload = await open(client(), first, second);
    const [one, two, three] = [frame(50), frame(60), frame(70)];
    const header = new FrameBatch();
    header.text('{"version":2}\n');
    const begin = header.take().slice();
    void upload.write([begin, one]);
    void upload.write(two);
    await first.until(() => first.uploads[0]!.size === begin.length + one.length + two.length);
    first.uploads[0]!.ack(begin.length + one.length);
    await expect.poll(() => upload.pendingBytes).toBe(two.length);
    await first.close();
    closers.splice(0, 1);
    void upload.write(three);
    await second.until(() => second.uploads[0]?.ended === false && second.uploads[0].size > 100);
    expect(await upload.end()).toBe('confirmed');
    const [got] = second.uploads;
    const preamble = Number(got!.headers['tailcast-preamble']);
    expect(got!.body.subarray(0, preamble).toString()).toBe('{"version":2}\n');
    expect(sha256(got!.body.subarray(preamble))).toBe(sha256(Buffer.concat([two, three])));
    expect(got!.headers).toMatchObject({
      'tailcast-frames': String(begin.length + one.length),
      'tailcast-part': '2',
      'tailcast-before': first.address,
    });
    expect(roads(second)).toEqual(['upgraded']);
  });

  it.each([
    ['fail', /no space left on device/],
    ['endEarly', /ended the upload before the session/],
    ['cut', /closed|reset/],
  ] as const)('is lost if it does this: %s', async (act, words) => {
    const double = await recorder({ acks: 'alive' });
    const upload = await open(client({ limits: { maxFruitlessMoves: 0 } }), double);
    void upload.write(frame(5));
    await double.until(() => double.uploads[0]!.size > 0);
    double.uploads[0]![act]('no space left on device');
    expect((await upload.lost).message).toMatch(words);
  });

  it.each([
    ['a record that is too long', Buffer.from([0, 1, 0, 2]), 'records that cannot be read'],
    ['what is no acknowledgement', recordOf('no'), 'acknowledgements that cannot be read'],
    ['bytes behind its end', Buffer.from([0, 0, 0, 0, 7]), 'records that cannot be read'],
  ])('is lost if it sends %s', async (_, bytes, words) => {
    const double = await recorder({ acks: 'alive' });
    const upload = await open(client({ limits: { maxFruitlessMoves: 0 } }), double);
    double.uploads[0]!.say!(bytes);
    expect((await upload.lost).message).toContain(words);
    await double.until(() => double.uploads[0]!.aborted);
  });

  it('is lost if it stops responding', async () => {
    const double = await recorder({ acks: 'none' });
    const upload = await open(client({ limits: { ackWindowMs: 60, maxFruitlessMoves: 0 } }), double);
    expect((await upload.lost).message).toContain('no acknowledgement for 60 ms');
  });
});

describe('a recorder that does not upgrade', () => {
  it.each([
    ['answers 404', 404],
    ['answers 403', 403],
    ['answers 200', 200],
    ['answers 426', 426],
    ['closes the connection', 'close'],
    ['says nothing', 'silent'],
    ['speaks something else', Buffer.from('220 mail.example.org\r\n')],
    [
      'switches to something else',
      Buffer.from('HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n'),
    ],
    ['sends bytes before its answer', Buffer.concat([Buffer.alloc(1), YES])],
    ['breaks off in its answer', Buffer.from('HTTP/1.1 101 Switching Prot')],
  ] as const)(
    'but has offered it is skipped for the next recorder, which accepts the upload: it %s',
    async (_, upgrade) => {
      const double = await recorder({ upgrade });
      const other = await recorder();
      const from = client({ limits: { probeTimeoutMs: 300 } });
      for (let round = 1; round <= 2; round += 1) {
        const upload = await open(from, double, other);
        expect(upload.address).toBe(other.address);
        await upload.write(frame(1000));
        expect(await upload.end()).toBe('confirmed');
      }
      expect(roads(double)).toEqual([]);
      expect(double.probes).toEqual(['v2', 'upgrade', 'v2', 'upgrade']);
      await expect(open(from, double)).rejects.toMatchObject({ code: 'RECORDER_UNAVAILABLE' });
    },
  );

  it('any more, because the reference now has its address, is checked over HTTP/2 at once', async () => {
    const double = await recorder();
    const from = client();
    await (await open(from, double)).end();
    for (const upgrade of ['close', 404, Buffer.from('HTTP/1.1 403 Forbidden\r\n\r\n')] as const) {
      double.set({ ...REFERENCE, upgrade });
      (await open(from, double)).abort();
      (await open(from, double)).abort();
      double.set({});
      (await open(from, double)).abort();
    }
    await double.until(() => double.uploads.length === 10);
    expect(roads(double)).toEqual([
      'upgraded',
      ...Array.from({ length: 3 }, () => ['v2', 'v2', 'upgraded']).flat(),
    ]);
    const [, , ...asked] = double.probes;
    const round = ['upgrade', 'v2', 'v2', 'v2', 'upgrade'];
    expect(asked).toEqual([...round, ...round, ...round]);
  });

  it.each([409, 429, 500, 503, 507])(
    'and responds with %i has refused the upload: the next recorder is tried immediately',
    async (status) => {
      const double = await recorder();
      const other = await recorder();
      const from = client();
      await (await open(from, double)).end();
      double.set({ upgrade: status });
      const upload = await open(from, double, other);
      expect(upload.address).toBe(other.address);
      upload.abort();
      expect(double.probes).toEqual(['v2', 'upgrade', 'upgrade']);
      await expect(open(from, double)).rejects.toThrow(`answered ${status}`);
      // the client checks again over HTTP/2 whether the recorder supports upgrades
      expect(double.probes).toEqual(['v2', 'upgrade', 'upgrade', 'v2', 'upgrade']);
    },
  );

  it('although it offered to is reported with its status, and is checked again for the next session', async () => {
    const double = await recorder({ upgrade: 503 });
    const from = client();
    await expect(open(from, double)).rejects.toThrow('GET /v2/record answered 503');
    double.set({});
    (await open(from, double)).abort();
    expect(double.probes).toEqual(['v2', 'upgrade', 'v2', 'upgrade']);
  });

  it('and is silent gets as much time as for the check over HTTP/2', async () => {
    const double = await recorder();
    const other = await recorder();
    const from = client({ limits: { probeTimeoutMs: 100 } });
    await (await open(from, double)).end();
    double.set({ silent: true });
    const upload = await open(from, double, other);
    expect(upload.address).toBe(other.address);
    // the client opens three more connections: for the upgrade, for HTTP/2, and for the v1 protocol
    expect(double.connections).toBe(2 + 3);
    upload.abort();
  });
});

describe('the gateway requests no upgrade', () => {
  it('from a recorder of the reference, which gets lines without fields of tailcast', async () => {
    const double = await recorder(REFERENCE);
    const from = client();
    for (let round = 0; round < 2; round += 1) {
      const upload = await open(from, double);
      expect([upload.protocol, upload.createBatch().annotations]).toEqual(['v2', false]);
      await upload.write('[1,"o","a"]\n');
      expect(await upload.end()).toBe('confirmed');
    }
    expect(double.probes).toEqual(['v2', 'v2']);
    expect(roads(double)).toEqual(['v2', 'v2']);
    for (const { headers, lines } of double.uploads) {
      expect(Object.keys(headers).filter((name) => name.startsWith('tailcast-'))).toEqual([]);
      expect(lines).toBeDefined();
    }
  });

  it('from a recorder of the reference to continue a session, which would start again there', async () => {
    const first = await recorder();
    const second = await recorder(REFERENCE);
    const upload = await open(client({ limits: { moveTimeoutMs: 100 } }), first, second);
    void upload.write(frame(100));
    await first.until(() => first.uploads[0]!.size > 0);
    await first.close();
    closers.splice(0, 1);
    expect((await upload.lost).message).toContain('finding another recorder');
    expect(second.uploads).toEqual([]);
  });

  it('after the client has disconnected', async () => {
    const gone = new AbortController();
    const double = await recorder({ upgrade: 'silent' });
    const opened = client().open({ recorders: [double.address], sessionId: 's1' }, gone.signal);
    await double.until(() => double.probes.includes('upgrade'));
    gone.abort(new Error('the client left'));
    await expect(opened).rejects.toThrow('the client left');
    expect(double.uploads).toHaveLength(0);
  });
});

/** Opens an upgraded connection to a server with this handler. */
async function upgradeAt(serve: (socket: Socket) => void): Promise<RecorderConnection> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => serve(socket));
  });
  await listenOn(server);
  closers.push(() => void server.close());
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const socket = await dialLoopback(address, never);
  const intent = { sessionId: 's', offset: 0, frames: 0, part: 1, preamble: new Uint8Array() };
  return openUpgraded(
    socket,
    { address, timeoutMs: 60_000, ackWindowMs: 60_000, waits: false, intent },
    never,
  );
}

/** Collects the events of a connection until the connection ends. */
function watch(connection: RecorderConnection): { readonly seen: unknown[]; readonly over: Promise<void> } {
  const seen: unknown[] = [];
  const over = Promise.withResolvers<void>();
  connection.attach({
    acknowledged: (bytes, lineBytes) => void seen.push([bytes, lineBytes]),
    finished() {
      seen.push('finished');
      over.resolve();
    },
    lost({ message }) {
      seen.push(message);
      over.resolve();
    },
  });
  return { seen, over: over.promise };
}

describe('an upgraded connection', () => {
  it.each(['end', 'resetAndDestroy'] as const)(
    'whose recorder is killed after any byte is lost: %s',
    async (how) => {
      const head = YES;
      const answer = Buffer.concat([
        head,
        recordOf('{"ack":7,"frames":5}\n'),
        recordOf('{"ack":9,"frames":7}\n'),
        Buffer.alloc(3),
      ]);
      for (let sent = 0; sent <= answer.length; sent += 1) {
        const opened = upgradeAt((socket) => {
          socket.write(answer.subarray(0, sent), () =>
            how === 'end' ? socket.end() : socket.resetAndDestroy(),
          );
        });
        if (sent < head.length) {
          await expect(opened).rejects.toBeInstanceOf(NotUpgradedError);
          continue;
        }
        // a reset may discard earlier data
        const connection = await opened.catch((error: unknown) => error);
        if (connection instanceof Error) {
          expect([how, connection]).toEqual(['resetAndDestroy', expect.any(NotUpgradedError)]);
          continue;
        }
        const { seen, over } = watch(connection as RecorderConnection);
        await over;
        expect(seen.at(-1)).toMatch(/closed|ECONNRESET/);
        expect([[5, 7]]).toEqual(
          expect.arrayContaining(seen.slice(0, 1).filter((one) => typeof one !== 'string')),
        );
      }
    },
  );

  it('delivers acknowledgements that arrived with the response head, and its end once', async () => {
    const connection = await upgradeAt((socket) => {
      socket.write(Buffer.concat([YES, recordOf('{}\n'), recordOf('{"ack":9,"frames":7}\n')]));
      socket.on('data', (chunk: Buffer) => {
        if (chunk.equals(Buffer.alloc(4))) socket.write(Buffer.alloc(4));
      });
    });
    const { seen, over } = watch(connection);
    await expect.poll(() => seen.length).toBe(2);
    connection.finish();
    await over;
    expect(seen).toEqual([[0, 0], [7, 9], 'finished']);
    connection.send(Uint8Array.of(1));
    connection.destroy();
    expect(seen).toHaveLength(3);
  });

  it('knows which bytes are unsent while the recorder does not read', async () => {
    const waiting = Promise.withResolvers<Socket>();
    const connection = await upgradeAt((socket) => {
      socket.pause();
      socket.write(YES);
      waiting.resolve(socket);
    });
    watch(connection);
    const piece = Buffer.alloc(1024 * 1024, 7);
    for (let count = 0; count < 64; count += 1) connection.send(piece);
    expect(connection.unwritten).toBe(64 * piece.length);
    const peer = await waiting.promise;
    await new Promise((resolve) => setImmediate(resolve));
    expect(connection.unwritten).toBeGreaterThan(0);
    peer.resume();
    await expect.poll(() => connection.unwritten).toBe(0);
    connection.send(new Uint8Array());
    expect(connection.unwritten).toBe(0);
    connection.destroy();
  });

  it('that is refused or unavailable is reported by the status of the response', async () => {
    const answered = (status: number): Promise<RecorderConnection> =>
      upgradeAt((socket) => socket.end(`HTTP/1.1 ${status} X\r\nContent-Length: 0\r\n\r\n`));
    for (const status of [409, 429, 500, 503, 507]) {
      await expect(answered(status)).rejects.toBeInstanceOf(UploadRefusedError);
    }
    for (const status of [200, 204, 302, 400, 401, 403, 404, 405, 426, 501, 502, 504]) {
      await expect(answered(status)).rejects.toBeInstanceOf(NotUpgradedError);
    }
  });
});

describe('recorders that support upgrades', () => {
  it('are remembered up to a maximum number', async () => {
    const double = await recorder();
    const from = client({
      dial: (address, signal) =>
        address.startsWith('dead') ? dialBlackHole(address, signal) : dialLoopback(double.address, signal),
    });
    const ask = async (name: string): Promise<void> =>
      (await from.open({ recorders: [name], sessionId: name }, never)).abort();
    for (let count = 0; count <= 256; count += 1) await ask(`recorder-${count}`);
    double.probes.splice(0);
    await ask('recorder-1');
    expect(double.probes).toEqual(['upgrade']);
    await ask('recorder-0');
    expect(double.probes).toEqual(['upgrade', 'v2', 'upgrade']);
  });
});
