import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { createElasticBuffers } from '../../../src/proxy/session/elastic-buffers.ts';
import { startRelay } from '../../../src/proxy/session/relay.ts';
import { createSpdyTap } from '../../../src/recording/tap-spdy.ts';
import { createWebSocketTap } from '../../../src/recording/tap-websocket.ts';
import { createSpdyPeer, serverMessage } from '../../support/stream-peers.ts';
import { SeenSession } from '../../support/tapped-session.ts';
import { closeRelays, NOTHING, openPair, relayed, tap } from '../../support/relay-rig.ts';
import { until } from '../../support/until.ts';

afterEach(closeRelays);

/** Starts a relay whose tap delays all output until the test resolves `gate`. */
async function heldBack() {
  const gate = Promise.withResolvers<void>();
  const slow = tap(() => gate.promise);
  return { ...(await relayed({ tap: slow })), gate, slow };
}

describe('relay', () => {
  it('transfers bytes in both directions, heads first', async () => {
    const { client, upstream, fromClient, fromUpstream, relay } = await relayed({
      clientHead: Buffer.from('c1'),
      upstreamHead: Buffer.from('u1'),
    });
    client.write('c2');
    upstream.write('u2');
    expect((await fromClient.take(4)).toString()).toBe('c1c2');
    expect((await fromUpstream.take(4)).toString()).toBe('u1u2');
    expect(relay.totals).toEqual({ fromClient: 4, fromUpstream: 4 });
  });

  it('forwards a half-close, and the other direction continues', async () => {
    const { client, upstream, fromClient, fromUpstream, relay } = await relayed();
    client.end('bye');
    await fromClient.until(() => fromClient.ended);
    expect(fromClient.bytes.toString()).toBe('bye');
    upstream.write('still ');
    upstream.end('here');
    await fromUpstream.untilClosed();
    expect(fromUpstream.bytes.toString()).toBe('still here');
    expect(await relay.done).toEqual({ kind: 'closed', first: 'client' });
  });

  it('closes the other side when one side is closed', async () => {
    const { upstream, client, fromUpstream, relay } = await relayed();
    upstream.destroy();
    await fromUpstream.until(() => fromUpstream.ended);
    client.end();
    expect(await relay.done).toEqual({ kind: 'closed', first: 'upstream' });
  });

  it('waits only for a limited time until the other side closes', async () => {
    const { inner, relay } = await relayed({ lingerMs: 30 });
    inner.upstream.destroy();
    expect(await relay.done).toMatchObject({ kind: 'closed' });
    expect(inner.client.destroyed).toBe(true);
  });

  it('names the side that broke, and closes the other side', async () => {
    const { client, upstream, inner, fromClient, relay } = await relayed();
    client.write('x');
    await once(inner.client, 'data');
    client.resetAndDestroy();
    await fromClient.until(() => fromClient.ended);
    upstream.end();
    expect(await relay.done).toMatchObject({ kind: 'broken', side: 'client', error: { code: 'ECONNRESET' } });
  });

  it('delivers the data that a side sent before it broke', async () => {
    const { gate, upstream, client, inner, fromUpstream, relay } = await heldBack();
    upstream.write('last words');
    await until(() => relay.totals.fromUpstream === 10);
    const closed = Promise.withResolvers<void>();
    inner.upstream.once('close', () => closed.resolve());
    inner.upstream.destroy(new Error('reset'));
    await closed.promise;
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe('last words');
    client.end();
    expect(await relay.done).toMatchObject({ kind: 'broken', side: 'upstream' });
  });

  it('delivers a chunk that a tap holds when its source ends', async () => {
    const { gate, upstream, client, inner, fromUpstream, relay } = await heldBack();
    upstream.end('the end');
    client.end();
    await once(inner.upstream, 'close');
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe('the end');
    expect(await relay.done).toMatchObject({ kind: 'closed' });
  });

  it('gives a slow reader unlimited time after the other side has closed', async () => {
    const { upstream, client, inner, fromUpstream, relay } = await relayed({ lingerMs: 20 });
    fromUpstream.stream.pause();
    const total = 16 * 1024 * 1024;
    upstream.end(Buffer.alloc(total, 1));
    await new Promise((resolve) => setTimeout(resolve, 150));
    client.resume();
    await fromUpstream.until(() => fromUpstream.size === total);
    client.end();
    expect(await relay.done).toMatchObject({ kind: 'closed', first: 'upstream' });
    expect(inner.upstream.destroyed).toBe(true);
  });

  it('detects a side that was closed before the relay started', async () => {
    const client = await openPair();
    const upstream = await openPair();
    upstream.far.destroy();
    const relay = startRelay({
      client: client.far,
      upstream: upstream.far,
      clientHead: NOTHING,
      upstreamHead: NOTHING,
      lingerMs: 50,
      signal: new AbortController().signal,
    });
    expect(await relay.done).toEqual({ kind: 'closed', first: 'upstream' });
  });

  it('destroys both sides when its signal aborts', async () => {
    const { abort, inner, relay } = await relayed();
    abort.abort();
    expect(await relay.done).toEqual({ kind: 'stopped' });
    expect(inner.client.destroyed && inner.upstream.destroyed).toBe(true);
  });

  it('pauses a source whose destination is full, and loses nothing', async () => {
    const { client, relay, upstream, fromClient, inner } = await relayed();
    fromClient.stream.pause();
    const total = 32 * 1024 * 1024;
    const block = Buffer.alloc(1024 * 1024, 7);
    for (let sent = 0; sent < total; sent += block.length) client.write(block);
    await until(() => inner.client.isPaused());
    const taken = relay.totals.fromClient;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(relay.totals.fromClient).toBe(taken);
    expect(taken).toBeLessThan(total / 2);
    expect(inner.upstream.writableLength).toBeLessThan(1024 * 1024);
    upstream.resume();
    await fromClient.until(() => fromClient.size === total);
  });
});

describe('relay with taps', () => {
  it('delivers a chunk only after the tap has accepted it', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: string[] = [];
    const slow = tap(undefined, (chunk) => {
      seen.push(Buffer.from(chunk).toString());
      return seen.length === 1 ? gate.promise : undefined;
    });
    const { client, fromClient } = await relayed({ tap: slow });
    client.write('first');
    await until(() => seen.length === 1);
    client.end('second');
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(fromClient.size).toBe(0);
    expect(seen).toEqual(['first']);
    gate.resolve();
    await fromClient.until(() => fromClient.ended);
    expect(fromClient.bytes.toString()).toBe('firstsecond');
    expect(seen).toEqual(['first', 'second']);
  });

  it('passes data that arrived while the tap held a chunk to the tap in one piece', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: string[] = [];
    const slow = tap(undefined, (chunk) => {
      seen.push(Buffer.from(chunk).toString());
      return gate.promise;
    });
    const { client, inner, fromClient } = await relayed({ tap: slow });
    client.write('first');
    await until(() => seen.length === 1);
    for (const [index, word] of ['a', 'b', 'c'].entries()) {
      client.write(word);
      await until(() => inner.client.readableLength === index + 1);
    }
    gate.resolve();
    expect((await fromClient.take(8)).toString()).toBe('firstabc');
    expect(seen).toEqual(['first', 'abc']);
    client.end('later');
    await fromClient.until(() => fromClient.ended);
    expect(fromClient.bytes.toString()).toBe('later');
    expect(seen).toEqual(['first', 'abc', 'later']);
  });

  it('delivers nothing from a refused chunk on, and leaves both sides open', async () => {
    for (const late of [false, true]) {
      const refusing = tap((chunk) => {
        if (!Buffer.from(chunk).toString().includes('bad')) return undefined;
        const error = new Error('refused');
        if (late) return Promise.reject(error);
        throw error;
      });
      const { upstream, fromUpstream, relay, inner } = await relayed({ tap: refusing });
      upstream.write('good');
      await fromUpstream.take(4);
      upstream.write('bad');
      expect(await relay.done).toMatchObject({ kind: 'refused', error: { message: 'refused' } });
      upstream.write('more');
      inner.client.write('told why');
      expect((await fromUpstream.take(8)).toString()).toBe('told why');
      expect(inner.client.destroyed).toBe(false);
      expect(refusing.deliveries).toBe(1);
    }
  });

  it('delivers nothing after it was stopped, including data that a tap holds', async () => {
    const { gate, slow, upstream, fromUpstream, relay, inner } = await heldBack();
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    relay.stop();
    gate.resolve();
    expect(await relay.done).toEqual({ kind: 'stopped' });
    inner.client.write('last words');
    expect((await fromUpstream.take(10)).toString()).toBe('last words');
    expect(slow.deliveries).toBe(0);
  });

  it('replies to a heartbeat while server output is pending, at the next boundary between frames', async () => {
    const gate = Promise.withResolvers<void>();
    const both = tap(() => gate.promise);
    both.inputIs = { kind: 'heartbeat', responses: [Buffer.from('pong')] };
    const { client, upstream, fromClient, fromUpstream, relay } = await relayed({ tap: both });
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    client.write('beat');
    expect((await fromUpstream.take(4)).toString()).toBe('pong');
    both.betweenFrames = false;
    gate.resolve();
    expect((await fromUpstream.take(4)).toString()).toBe('held');
    client.write('beat');
    await until(() => relay.totals.fromClient === 8);
    for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(fromUpstream.size).toBe(0);
    both.betweenFrames = true;
    upstream.write('more');
    expect((await fromUpstream.take(8)).toString()).toBe('morepong');
    expect(fromClient.size).toBe(0);
    relay.stop();
  });

  it('replies to heartbeats after the server has closed, while its output is pending', async () => {
    const gate = Promise.withResolvers<void>();
    let broken = false;
    const both = tap(
      () => gate.promise,
      () => {
        if (broken) throw new Error('not understood');
      },
    );
    both.inputIs = { kind: 'heartbeat', responses: [Buffer.from('pong')] };
    const { client, upstream, inner, fromUpstream, relay } = await relayed({ tap: both });
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    const closed = once(inner.upstream, 'close');
    inner.upstream.destroy();
    await closed;
    for (let count = 0; count < 2; count += 1) {
      client.write('beat');
      expect((await fromUpstream.take(4)).toString()).toBe('pong');
    }
    // the server is gone, so the relay ignores invalid messages of the client
    broken = true;
    client.write('beat');
    await until(() => relay.totals.fromClient === 12);
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe('held');
    client.end();
    expect(await relay.done).toEqual({ kind: 'closed', first: 'upstream' });
  });

  it.each([[[1]], [[2, 4, 8]], [[5]], [[11]]])(
    'replies to a heartbeat in pieces cut at %j, and forwards none of them',
    async (cuts) => {
      const peer = createSpdyPeer();
      const { input } = createSpdyTap(new SeenSession(), 4);
      const { client, fromClient, fromUpstream, relay } = await relayed({
        tap: { ...tap(), input },
      });
      const ping = Buffer.from('800300060000000400000001', 'hex');
      let sent = 0;
      const send = async (bytes: Uint8Array): Promise<void> => {
        client.write(bytes);
        sent += bytes.length;
        await until(() => relay.totals.fromClient === sent);
      };
      const open = Buffer.concat([peer.open(1, 'error'), peer.open(3, 'stdin')]);
      await send(open);
      let from = 0;
      for (const to of [...cuts, ping.length]) {
        await send(ping.subarray(from, to));
        from = to;
      }
      expect((await fromUpstream.take(ping.length)).equals(ping)).toBe(true);
      const key = peer.data(3, Buffer.from('x'));
      await send(Buffer.concat([key, ping.subarray(0, 6)]));
      await send(ping.subarray(6));
      await send(key);
      expect((await fromUpstream.take(ping.length)).equals(ping)).toBe(true);
      const gone = await fromClient.take(open.length + 2 * key.length);
      expect(gone.equals(Buffer.concat([open, key, key]))).toBe(true);
      expect(fromClient.size).toBe(0);
      relay.stop();
    },
  );

  it('sends urgent input in order, between pieces of heartbeats', async () => {
    const peer = createSpdyPeer();
    const { input } = createSpdyTap(new SeenSession(), 4);
    const { client, fromClient, relay } = await relayed({ tap: { ...tap(), input } });
    const ping = Buffer.from('800300060000000400000001', 'hex');
    const key = peer.data(3, Buffer.from('x'));
    const open = Buffer.concat([peer.open(1, 'error'), peer.open(3, 'stdin')]);
    let sent = 0;
    // each chunk ends with the start of a ping, and the next chunk contains the rest
    for (const chunk of [
      Buffer.concat([open, ping.subarray(0, 5)]),
      Buffer.concat([ping.subarray(5), key, ping.subarray(0, 5)]),
      Buffer.concat([ping.subarray(5), key]),
    ]) {
      client.write(chunk);
      sent += chunk.length;
      await until(() => relay.totals.fromClient === sent);
    }
    const all = Buffer.concat([open, ping, key, ping, key]);
    expect((await fromClient.take(all.length)).equals(all)).toBe(true);
    relay.stop();
  });

  it('forwards a heartbeat to a silent server', async () => {
    const both = tap();
    both.inputIs = { kind: 'heartbeat', responses: [Buffer.from('pong')], atBoundary: true };
    const { client, upstream, fromClient, fromUpstream, relay } = await relayed({
      tap: both,
      silentMs: 20,
    });
    upstream.write('said');
    await fromUpstream.take(4);
    client.write('one');
    expect((await fromUpstream.take(4)).toString()).toBe('pong');
    await until(() => fromClient.size > 0 || (client.write('two'), false), 100);
    expect((await fromClient.take(3)).toString()).toBe('two');
    relay.stop();
  });

  it('keeps input that is not urgent until all output is delivered, and sends it before urgent input', async () => {
    for (const goes of [false, true]) {
      const gate = Promise.withResolvers<void>();
      const both = tap(() => gate.promise);
      both.inputIs = { kind: 'delayable', atBoundary: true };
      const { client, upstream, fromClient, relay } = await relayed({ tap: both });
      upstream.write('held');
      await until(() => relay.totals.fromUpstream === 4);
      client.write('size');
      await until(() => relay.totals.fromClient === 4);
      await new Promise((resolve) => setImmediate(resolve));
      expect(fromClient.size).toBe(0);
      both.inputIs = { atBoundary: true };
      if (goes) client.write('key');
      else gate.resolve();
      expect((await fromClient.take(goes ? 7 : 4)).toString()).toBe(goes ? 'sizekey' : 'size');
      relay.stop();
      gate.resolve();
    }
  });

  it('sends the client a final message after all output, for each kind of end', async () => {
    for (const how of ['end', 'break'] as const) {
      const gate = Promise.withResolvers<void>();
      const { upstream, client, inner, fromUpstream, relay } = await relayed({
        tap: tap(() => gate.promise),
        lastWords: () => Buffer.from(', she wrote'),
      });
      upstream.write('the end');
      await until(() => relay.totals.fromUpstream === 7);
      if (how === 'end') upstream.end();
      else inner.upstream.destroy(new Error('reset'));
      gate.resolve();
      await fromUpstream.until(() => fromUpstream.ended);
      expect(fromUpstream.bytes.toString()).toBe('the end, she wrote');
      client.end();
      await relay.done;
    }
  });

  it('also passes the bytes after the heads to the taps', async () => {
    const seen: string[] = [];
    const note = tap(undefined, (chunk) => void seen.push(Buffer.from(chunk).toString()));
    const { fromClient } = await relayed({
      clientHead: Buffer.from('head'),
      tap: note,
    });
    await fromClient.take(4);
    expect(seen).toEqual(['head']);
  });
});

describe('relay with a buffer', () => {
  const buffers = createElasticBuffers({
    memoryBytes: 64 * 1024,
    diskBytes: 4 * 1024 * 1024,
    totalMemoryBytes: 16 * 1024 * 1024,
    totalDiskBytes: 64 * 1024 * 1024,
    directory: tmpdir(),
  });

  it('keeps input that is not urgent until a server that had to wait has had time to send the rest', async () => {
    const gate = Promise.withResolvers<void>();
    const both = tap(() => gate.promise);
    both.inputIs = { kind: 'delayable', atBoundary: true };
    const { client, upstream, inner, fromClient, fromUpstream, relay } = await relayed({
      tap: both,
      openBuffer: (events) => buffers.open('brief', 'alice', events),
    });
    upstream.write(randomBytes(100_000));
    await until(() => inner.upstream.isPaused());
    client.write('size');
    await until(() => relay.totals.fromClient === 4);
    gate.resolve();
    await until(() => fromUpstream.size === 100_000);
    // simulates a server process that gets no CPU time for some turns of the event loop
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(fromClient.size).toBe(0);
    const beforeMs = performance.now();
    upstream.write(randomBytes(100_000));
    expect((await fromClient.take(4)).toString()).toBe('size');
    await until(() => fromUpstream.size === 200_000);
    expect(performance.now() - beforeMs).toBeGreaterThan(1_500);
    relay.stop();
  });

  it('reads all output of the server, even if tap and client are slow, and delivers it in order', async () => {
    const gate = Promise.withResolvers<void>();
    const { upstream, client, fromUpstream, relay } = await relayed({
      tap: tap(() => gate.promise),
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    const all = randomBytes(3 * 1024 * 1024);
    upstream.end(all);
    await until(() => relay.totals.fromUpstream === all.length);
    expect(fromUpstream.size).toBe(0);
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.equals(all)).toBe(true);
    expect(relay.backpressured).toBe(false);
    client.end();
    await relay.done;
    expect(buffers.memory.bytes).toBe(0);
    expect(buffers.disk.bytes).toBe(0);
  });

  it('makes the server wait above the highest limit, reports it, and remembers it until the end', async () => {
    const gate = Promise.withResolvers<void>();
    let fullCount = 0;
    const words: boolean[] = [];
    const { upstream, client, inner, fromUpstream, relay } = await relayed({
      tap: tap(() => gate.promise),
      openBuffer: (events) => buffers.open('deep', 'alice', events),
      bufferFull: () => void (fullCount += 1),
      lastWords: (backpressured) => {
        words.push(backpressured);
        return undefined;
      },
    });
    const all = randomBytes(24 * 1024 * 1024);
    upstream.end(all);
    await until(() => inner.upstream.isPaused() && fullCount === 1);
    expect(relay.backpressured).toBe(true);
    expect(relay.totals.fromUpstream).toBeLessThan(8 * 1024 * 1024);
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.equals(all)).toBe(true);
    expect(words).toHaveLength(1);
    client.end();
    await relay.done;
  });

  it('does not reuse memory that the client has not received yet', async () => {
    // the tap holds back the last bytes of each chunk, as if they were the start of a frame
    const holding = tap();
    holding.heldBytes = 1000;
    const { upstream, client, fromUpstream, relay } = await relayed({
      tap: holding,
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    const all = randomBytes(24 * 1024 * 1024);
    upstream.end(all);
    // the client reads only from time to time, so that some pending output is sent and frees space
    while (!fromUpstream.ended) {
      fromUpstream.stream.pause();
      await new Promise((resolve) => setImmediate(resolve));
      fromUpstream.stream.resume();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(fromUpstream.bytes.equals(all)).toBe(true);
    client.end();
    await relay.done;
  });

  it('joins data of one turn, and passes a single small chunk on immediately', async () => {
    const seen: number[] = [];
    const { inner, relay } = await relayed({
      tap: tap((chunk) => void seen.push(chunk.length)),
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    for (let chunk = 0; chunk < 10; chunk += 1) inner.upstream.emit('data', Buffer.alloc(100));
    expect(seen).toEqual([100]);
    await until(() => seen.length > 1);
    expect(seen).toEqual([100, 900]);
    inner.upstream.emit('data', Buffer.alloc(16 * 1024));
    inner.upstream.emit('data', Buffer.alloc(16 * 1024));
    await until(() => seen.length > 2);
    expect(seen).toEqual([100, 900, 32 * 1024]);
    relay.stop();
  });

  it('records a flood of one turn once, and delivers none of it before that', async () => {
    const roomy = createElasticBuffers({
      memoryBytes: 1024 * 1024,
      diskBytes: 0,
      totalMemoryBytes: 16 * 1024 * 1024,
      totalDiskBytes: 0,
      directory: tmpdir(),
    });
    const session = new SeenSession();
    session.detailed = false;
    const webSocket = createWebSocketTap(session, { version: 5, base64: false });
    const { inner, fromUpstream, relay } = await relayed({
      tap: webSocket,
      openBuffer: (events) => roomy.open('deep', 'alice', events),
    });
    const outputs = Array.from({ length: 12 }, () => randomBytes(16 * 1024));
    const messages = outputs.map((output) => Buffer.from(serverMessage(1, output)));
    const gate = Promise.withResolvers<void>();
    session.room = gate.promise;
    for (const message of messages) inner.upstream.emit('data', message);
    await until(() => session.flushes > 0);
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(session.flushes).toBe(1);
    expect(session.outputs.stdout.equals(Buffer.concat(outputs))).toBe(true);
    expect(fromUpstream.size).toBe(0);
    session.room = undefined;
    gate.resolve();
    const all = Buffer.concat(messages);
    expect((await fromUpstream.take(all.length)).equals(all)).toBe(true);
    relay.stop();
  });

  it('delivers nothing of a turn in which a chunk is refused, and records the data before that chunk', async () => {
    const session = new SeenSession();
    session.detailed = false;
    const webSocket = createWebSocketTap(session, { version: 5, base64: false });
    const { inner, fromUpstream, relay } = await relayed({
      tap: webSocket,
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    const output = randomBytes(40 * 1024);
    inner.upstream.emit('data', Buffer.from(serverMessage(1, output)));
    inner.upstream.emit('data', Buffer.from(serverMessage(9, randomBytes(40 * 1024))));
    expect(await relay.done).toMatchObject({ kind: 'refused', error: { code: 'SESSION_VIOLATED' } });
    expect(session.flushes).toBe(1);
    expect(session.outputs.stdout.equals(output)).toBe(true);
    expect(fromUpstream.size).toBe(0);
    expect(webSocket.farewell('no', 500)).toBeDefined();
  });

  it('drops pending data when the client disconnects', async () => {
    const { upstream, client, inner, relay } = await relayed({
      tap: tap(() => new Promise(() => {})),
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    inner.client.on('error', () => {});
    upstream.write(randomBytes(2 * 1024 * 1024));
    await until(() => relay.totals.fromUpstream === 2 * 1024 * 1024);
    expect(buffers.memory.bytes).toBeGreaterThan(0);
    client.resetAndDestroy();
    await until(() => buffers.memory.bytes === 0 && buffers.disk.bytes === 0);
    upstream.destroy();
    await relay.done;
  });

  it('keeps for a terminal only the amount that its client can receive in a moment', async () => {
    const { upstream, client, inner, fromUpstream, relay } = await relayed({
      tap: tap(),
      openBuffer: (events) => buffers.open('brief', 'alice', events),
    });
    fromUpstream.stream.pause();
    upstream.write(randomBytes(16 * 1024 * 1024));
    await until(() => inner.upstream.isPaused());
    expect(buffers.memory.bytes).toBeLessThan(256 * 1024);
    expect(buffers.disk.bytes).toBe(0);
    expect(relay.backpressured).toBe(false);
    client.destroy();
    upstream.destroy();
    await relay.done;
  });
});
