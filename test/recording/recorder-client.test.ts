import { createHash, randomBytes } from 'node:crypto';
import { afterEach, describe, expect, it } from 'vitest';
import { createLogger, createSilentLogger } from '../../src/observe/logger.ts';
import {
  createRecorderClient,
  type RecorderClientDeps,
  type RecorderClientLimits,
} from '../../src/recording/recorder-client.ts';
import type { DialRecorder } from '../../src/recording/recorder-connection.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';
import { dialBlackHole, dialLoopback } from '../support/recorder-dial.ts';
import {
  framed,
  startRecorderDouble,
  type RecorderBehaviour,
  type RecorderDouble,
} from '../support/recorder-double.ts';
import { until } from '../support/until.ts';

const closers: (() => Promise<void>)[] = [];
const never = new AbortController().signal;

afterEach(async () => {
  await Promise.all(closers.splice(0).map((close) => close()));
});

async function recorder(behaviour: RecorderBehaviour = {}, port = 0): Promise<RecorderDouble> {
  const double = await startRecorderDouble(behaviour, port);
  closers.push(() => double.close());
  return double;
}

function client(limits: Partial<RecorderClientLimits> = {}, deps: Partial<RecorderClientDeps> = {}) {
  return createRecorderClient({
    dial: dialLoopback,
    nowMs: () => performance.now(),
    log: createSilentLogger(),
    limits,
    ...deps,
  });
}

/** Opens an upload at the first of these recorders that accepts it. */
function open(
  recorders: readonly (RecorderDouble | string)[],
  ...options: Parameters<typeof client>
): Promise<RecorderUpload> {
  const addresses = recorders.map((each) => (typeof each === 'string' ? each : each.address));
  return client(...options).open({ recorders: addresses, sessionId: 's1' }, never);
}

/** A mebibyte of hex digits without a newline, because uploads must not depend on lines. */
const MEBIBYTE = randomBytes(512 * 1024).toString('hex');
const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');

describe('recorder client', () => {
  it('uploads a mebibyte to a recorder that supports only v1', async () => {
    const double = await recorder({ v2: false });
    const upload = await open([double]);
    expect([upload.protocol, upload.createBatch().annotations]).toEqual(['v1', false]);
    await upload.write(MEBIBYTE);
    await upload.end();
    expect(double.uploads).toHaveLength(1);
    expect(sha256(double.uploads[0]!.body)).toBe(sha256(MEBIBYTE));
    expect(double.uploads[0]!.headers).toMatchObject({
      expect: '100-continue',
      'transfer-encoding': 'chunked',
    });
  });

  it('uploads a mebibyte over v2 on one connection and never calls v1', async () => {
    const double = await recorder({ upgradeOffered: false });
    const upload = await open([double]);
    expect([upload.protocol, upload.createBatch().annotations]).toEqual(['v2', false]);
    await upload.write(MEBIBYTE);
    await upload.end();
    expect(double.uploads.map(({ protocol }) => protocol)).toEqual(['v2']);
    expect(sha256(double.uploads[0]!.body)).toBe(sha256(MEBIBYTE));
    expect(double.connections).toBe(1);
    expect(upload.pendingBytes).toBe(0);
  });

  it('leaves memory for the output of another user if one user uses much', async () => {
    const double = await recorder({ acks: 'alive' });
    const { open } = client({ maxPendingBytes: 0 });
    const write = async (user: string): Promise<RecorderUpload> => {
      const request = { recorders: [double.address], sessionId: 's1', about: { user } };
      const upload = await open(request, never);
      for (let count = 0; count < 3; count += 1) void upload.write(`${MEBIBYTE}\n`);
      return upload;
    };
    const greedy = await Promise.all(Array.from({ length: 10 }, () => write('greedy')));
    const calm = await write('calm');
    expect([greedy.at(-1)?.acceptsMore, calm.acceptsMore]).toEqual([false, true]);
    for (const upload of [...greedy, calm]) upload.abort();
  });

  it('sends nothing before the first write, so that an aborted session stores nothing', async () => {
    const double = await recorder();
    const upload = await open([double]);
    upload.abort();
    await double.until(() => double.uploads[0]?.aborted === true);
    expect(double.uploads[0]!.body).toHaveLength(0);
    expect(double.uploads[0]!.ended).toBe(false);
  });

  it('loses a recorder that does not acknowledge within the window, after all data arrived', async () => {
    const double = await recorder({ acks: 'none', upgradeOffered: false });
    const upload = await open([double], { ackWindowMs: 2000 });
    // two seconds are enough for all bytes to arrive, even on a busy machine
    void upload.write(MEBIBYTE);
    const lost = await upload.lost;
    expect(lost.message).toContain('no acknowledgement for 2000 ms');
    expect(sha256(double.uploads[0]!.body)).toBe(sha256(MEBIBYTE));
    await expect(upload.end()).rejects.toMatchObject({ code: 'RECORDER_LOST' });
    expect(() => upload.write('more\n')).toThrow(/recorder was lost/);
  });

  it('keeps a silent session longer than the window if the recorder sends empty acknowledgements', async () => {
    const double = await recorder({ acks: 'alive' });
    const upload = await open([double], { ackWindowMs: 1_000 });
    let lost = false;
    void upload.lost.then(() => (lost = true));
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(lost).toBe(false);
    upload.abort();
  });

  it('makes the writer wait while too many bytes are unacknowledged', async () => {
    const double = await recorder({ acks: 'alive', upgradeOffered: false });
    const upload = await open([double], { maxPendingBytes: 1000 });
    expect(upload.write('x'.repeat(1000))).toBeUndefined();
    const room = upload.write('y'.repeat(10));
    expect(room).toBeInstanceOf(Promise);
    let resolved = false;
    void (room as Promise<void>).then(() => (resolved = true));
    await double.until(() => double.uploads[0]?.body.length === 1010);
    double.uploads[0]!.ack(9);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(resolved).toBe(false);
    double.uploads[0]!.ack(10);
    await room;
    expect(upload.pendingBytes).toBe(1000);
    expect(upload.write('')).toBeUndefined();
    upload.abort();
  });

  it('without a window makes each writer wait for its own acknowledgement, and tells the recorder', async () => {
    const double = await recorder({ acks: 'alive' });
    const upload = await open([double], { maxPendingBytes: 0 });
    expect(upload.policy).toBe('window0');
    expect(upload.whenShown()).toBeUndefined();
    const room = upload.write('one\n');
    expect(room).toBeInstanceOf(Promise);
    await double.until(() => double.uploads[0]?.body.length === 9);
    expect(double.uploads[0]!.headers).toMatchObject({ 'tailcast-waits': '1' });
    let resolved = false;
    void Promise.resolve(room).then(() => (resolved = true));
    double.uploads[0]!.ack(8);
    await expect.poll(() => upload.pendingBytes).toBe(1);
    expect(resolved).toBe(false);
    expect(upload.whenShown()).toBeInstanceOf(Promise);
    double.uploads[0]!.ack(9);
    await room;
    expect(upload.whenShown()).toBeUndefined();
    upload.abort();
    expect(() => upload.whenShown()).toThrow(/recorder was lost/);
  });

  it.each([
    ['acknowledges what need not be durable', { acks: 'alive', upgradeOffered: false }],
    ['acknowledges nothing', { v2: false }],
  ] as const)('without a window does not wait for a recorder that %s', async (_, behaviour) => {
    const double = await recorder(behaviour);
    const upload = await open([double], { maxPendingBytes: 0 });
    expect(upload.policy).toBe('bestEffort');
    expect(upload.write(MEBIBYTE)).toBeUndefined();
    upload.abort();
  });

  it('with a window does not tell the recorder that somebody waits', async () => {
    const double = await recorder();
    const upload = await open([double]);
    await upload.end();
    expect(double.uploads[0]!.headers).not.toHaveProperty('tailcast-waits');
  });

  it('loses a recorder that sends empty acknowledgements but makes no progress with a full queue', async () => {
    const double = await recorder({ acks: 'alive', upgradeOffered: false });
    const upload = await open([double], { maxPendingBytes: 10, stallWindowMs: 80 });
    const room = upload.write('x'.repeat(11));
    await expect(room).rejects.toMatchObject({ code: 'RECORDER_LOST' });
    expect((await upload.lost).message).toContain('nothing was acknowledged for 80 ms');
  });

  it('treats an error frame, and an early end without one, as a loss', async () => {
    for (const [act, words] of [
      ['fail', 'no space left on device'],
      ['endEarly', 'ended the upload before the session'],
      ['cut', 'closed'],
    ] as const) {
      const double = await recorder({ upgradeOffered: false });
      const upload = await client().open({ recorders: [double.address], sessionId: act }, never);
      void upload.write('line\n');
      await double.until(() => double.uploads[0]?.body.length === 5);
      double.uploads[0]![act]('no space left on device');
      const lost = await upload.lost;
      expect(lost.message).toContain(words);
      expect(lost).toMatchObject({ code: 'RECORDER_LOST' });
    }
  });

  it('treats a v1 recorder that closes the connection as lost', async () => {
    const double = await recorder({ v2: false });
    const upload = await open([double]);
    void upload.write('line\n');
    await double.until(() => double.uploads[0]?.body.length === 5);
    double.uploads[0]!.cut();
    expect(await upload.lost).toMatchObject({ code: 'RECORDER_LOST' });
  });

  it('fails the end of a v1 upload that is not confirmed with 200', async () => {
    const double = await recorder({ v2: false });
    const upload = await open([double]);
    void upload.write('line\n');
    await double.until(() => double.uploads[0]?.body.length === 5);
    double.uploads[0]!.fail('');
    await expect(upload.end()).rejects.toMatchObject({ code: 'RECORDER_LOST' });
  });
});

describe('selecting a recorder', () => {
  it('tries in order: a closed port, a recorder that responds with 500, a good one', async () => {
    const closed = await recorder();
    await closed.close();
    closers.pop();
    const refusing = await recorder({ upgrade: 500 });
    const good = await recorder();
    const upload = await open([closed, refusing, good]);
    expect(upload.address).toBe(good.address);
    expect(refusing.uploads).toHaveLength(0);
    upload.abort();
  });

  it('reports for every recorder why it did not accept', async () => {
    const refusing = await recorder({ upgrade: 507 });
    const h1 = await recorder({ v2: false, uploadStatus: 403 });
    const opened = open([refusing, h1]);
    await expect(opened).rejects.toMatchObject({ code: 'RECORDER_UNAVAILABLE' });
    await expect(opened).rejects.toThrow(new RegExp(`${refusing.address}: .*507; ${h1.address}: .*403`));
  });

  it('reports a missing recorder if the list is empty', async () => {
    await expect(open([])).rejects.toMatchObject({
      code: 'RECORDER_UNAVAILABLE',
      detail: 'no recorder is named',
    });
  });

  it('gives up on a recorder that accepts connections and sends nothing, within its time limits', async () => {
    const silent = await recorder({ silent: true });
    const good = await recorder();
    const upload = await open([silent, good], { probeTimeoutMs: 1000 });
    expect(upload.address).toBe(good.address);
    expect(silent.connections).toBe(2); // v2, then v1
    upload.abort();
  });

  it('tries a recorder that has failed last in the next session', async () => {
    const good = await recorder();
    const dialled: string[] = [];
    const dead = '192.0.2.1:80';
    const dial: DialRecorder = (address, signal) => {
      dialled.push(address);
      return address === dead ? dialBlackHole(address, signal) : dialLoopback(address, signal);
    };
    const recorders = client({ dialTimeoutMs: 60 }, { dial });
    const request = { recorders: [dead, good.address], sessionId: 's1' };
    (await recorders.open(request, never)).abort();
    (await recorders.open(request, never)).abort();
    expect(dialled).toEqual([dead, good.address, good.address, good.address]);
  });

  it('still tries a failed recorder if there is no other, and trusts it again after a response', async () => {
    const double = await recorder({ upgrade: 503 });
    const recorders = client();
    const request = { recorders: [double.address], sessionId: 's1' };
    await expect(recorders.open(request, never)).rejects.toMatchObject({ code: 'RECORDER_UNAVAILABLE' });
    double.set({});
    const upload = await recorders.open(request, never);
    expect(upload.address).toBe(double.address);
    upload.abort();
  });

  it('tries the addresses of one node concurrently, so that a dead address does not cost a full timeout', async () => {
    const good = await recorder();
    const dead = '192.0.2.1:80';
    const dial: DialRecorder = (address, signal) =>
      address === dead ? dialBlackHole(address, signal) : dialLoopback(address, signal);
    const started = performance.now();
    const upload = await open([dead, good], { dialTimeoutMs: 60_000 }, { dial, nodeOf: () => 'node-1' });
    expect(upload.address).toBe(good.address);
    expect(performance.now() - started).toBeLessThan(30_000);
    upload.abort();
  });

  it('spends at most its total time on dead recorders', async () => {
    const recorders = Array.from({ length: 10 }, (_, index) => `192.0.2.${index}:80`);
    const started = performance.now();
    const opened = client({ openTimeoutMs: 150, dialTimeoutMs: 6_000 }, { dial: dialBlackHole }).open(
      { recorders, sessionId: 's1' },
      never,
    );
    await expect(opened).rejects.toMatchObject({ code: 'RECORDER_UNAVAILABLE' });
    expect(performance.now() - started).toBeLessThan(30_000);
  });

  it('stops immediately when the client disconnects', async () => {
    const gone = new AbortController();
    const opened = client({}, { dial: dialBlackHole }).open(
      { recorders: ['192.0.2.1:80'], sessionId: 's1' },
      gone.signal,
    );
    gone.abort(new Error('the client left'));
    await expect(opened).rejects.toThrow('the client left');
  });
});

describe('a recorder that is lost during a session', () => {
  it('is replaced by another one, which gets every unacknowledged byte exactly once', async () => {
    const first = await recorder({ acks: 'alive' });
    const second = await recorder();
    const moves: string[] = [];
    const upload = await client().open(
      {
        recorders: [first.address, second.address],
        sessionId: 's1',
        moved: (address) => moves.push(address),
      },
      never,
    );
    void upload.write('one\n');
    void upload.write('two\n');
    await double(first, 18);
    first.uploads[0]!.ack(16);
    await until(() => upload.pendingBytes === 2);
    await first.close();
    closers.splice(0, 1);
    void upload.write('three\n');
    await second.until(() => second.uploads[0]?.body.length === 13);
    expect(second.uploads[0]!.headers).toMatchObject({ 'tailcast-session': 's1', 'tailcast-offset': '16' });
    const bodies = [first.uploads[0]!.body.subarray(0, 16), second.uploads[0]!.body];
    expect(Buffer.concat(bodies)).toEqual(framed('one\n', 'two\n', 'three\n'));
    expect(moves).toEqual([second.address]);
    await upload.end();
    expect(upload.pendingBytes).toBe(0);
  });

  it('does not delay a writer forever if the recorders that take over make no progress', async () => {
    const first = await recorder({ acks: 'alive' });
    const second = await recorder({ acks: 'alive' });
    const upload = await open([first, second], {
      maxPendingBytes: 0,
      stallWindowMs: 60,
      maxFruitlessMoves: 2,
    });
    const room = upload.write('one\n');
    await double(first, 9);
    first.uploads[0]!.cut();
    await expect(room).rejects.toMatchObject({ code: 'RECORDER_LOST' });
    expect(second.uploads.length).toBeGreaterThan(0);
    expect((await upload.lost).message).toContain('nothing was acknowledged for 60 ms');
  });

  it('is used again when it is available again', async () => {
    const first = await recorder({ acks: 'alive' });
    const upload = await open([first], { moveRetryMs: 20 });
    void upload.write('one\n');
    await double(first, 9);
    await first.close();
    closers.pop();
    const back = await recorder({}, first.port);
    await upload.end();
    expect(back.uploads[0]!.body).toEqual(framed('one\n'));
  });

  it('is lost permanently if no recorder takes over in time', async () => {
    const first = await recorder({ acks: 'alive' });
    const foreign = await recorder({ upgradeOffered: false });
    const upload = await open([first, foreign], { moveTimeoutMs: 100, moveRetryMs: 10 });
    void upload.write('one\n');
    await double(first, 9);
    await first.close();
    closers.splice(0, 1);
    expect(await upload.lost).toMatchObject({ code: 'RECORDER_LOST' });
    expect(foreign.uploads).toHaveLength(0);
  });

  it('is reported once, and so is each recorder that does not take over', async () => {
    const first = await recorder({ acks: 'alive' });
    const closed = await recorder();
    await closed.close();
    closers.pop();
    const warnings: string[] = [];
    const log = createLogger({ level: 'warn', destination: { write: (line) => void warnings.push(line) } });
    let attempts = 0;
    const dial: DialRecorder = (...given) => {
      attempts += 1;
      return dialLoopback(...given);
    };
    const upload = await open([first, closed], { moveTimeoutMs: 2000, moveRetryMs: 10 }, { log, dial });
    void upload.write('one\n');
    await double(first, 9);
    await first.close();
    closers.pop();
    await upload.lost;
    expect(attempts).toBeGreaterThan(4);
    expect(warnings.map((line) => JSON.parse(line) as object)).toMatchObject([
      { sessionId: 's1', recorder: first.address },
      { recorder: [closed.address] },
    ]);
  });

  it('is not replaced if it does not support continued sessions', async () => {
    const first = await recorder({ upgradeOffered: false });
    const second = await recorder();
    const upload = await open([first, second]);
    expect(upload.createBatch().annotations).toBe(false);
    void upload.write('one\n');
    await double(first, 4);
    await first.close();
    closers.splice(0, 1);
    expect(await upload.lost).toMatchObject({ code: 'RECORDER_LOST' });
    expect(second.uploads).toHaveLength(0);
  });

  it('is given up if every connection breaks without one acknowledged byte', async () => {
    const first = await recorder({ acks: 'alive' });
    const upload = await open([first], { maxFruitlessMoves: 2, moveRetryMs: 5 });
    void upload.write('one\n');
    for (let round = 0; round < 3; round += 1) {
      await first.until(() => first.uploads[round]?.body.length === 9);
      first.uploads[round]!.cut();
    }
    expect(await upload.lost).toMatchObject({ code: 'RECORDER_LOST' });
    expect(first.uploads).toHaveLength(3);
  });
});

async function double(recorderDouble: RecorderDouble, bytes: number): Promise<void> {
  await recorderDouble.until(() => recorderDouble.uploads[0]?.body.length === bytes);
}
