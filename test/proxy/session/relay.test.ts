import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { startRelay, type RelayOptions, type RelayTap } from '../../../src/proxy/session/relay.ts';
import { ByteReader } from '../../support/byte-reader.ts';
import { socketPair, type SocketPair } from '../../support/socket-pair.ts';

const pairs: SocketPair[] = [];
const NOTHING = new Uint8Array(0);

afterEach(() => {
  for (const { near, far } of pairs.splice(0)) {
    near.destroy();
    far.destroy();
  }
});

/** client ═ relay ═ upstream; the test holds the outer ends. */
async function relayed(options: Partial<RelayOptions> = {}) {
  const client = await socketPair();
  const upstream = await socketPair();
  pairs.push(client, upstream);
  const abort = new AbortController();
  const relay = startRelay({
    client: client.far,
    upstream: upstream.far,
    clientHead: NOTHING,
    upstreamHead: NOTHING,
    lingerMs: 100,
    signal: abort.signal,
    ...options,
  });
  return {
    relay,
    abort,
    inner: { client: client.far, upstream: upstream.far },
    client: client.near,
    upstream: upstream.near,
    fromClient: new ByteReader(upstream.near),
    fromUpstream: new ByteReader(client.near),
  };
}

function tap(push: (chunk: Uint8Array) => void | Promise<void>): RelayTap & { deliveries: number } {
  return {
    deliveries: 0,
    push,
    delivered() {
      this.deliveries += 1;
    },
  };
}

const idle = tap(() => undefined);

describe('relay', () => {
  it('carries bytes both ways, heads first', async () => {
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

  it('passes a half-close on and lets the other direction go on', async () => {
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

  it('ends the other side when one is gone', async () => {
    const { upstream, client, fromUpstream, relay } = await relayed();
    upstream.destroy();
    await fromUpstream.until(() => fromUpstream.ended);
    client.end();
    expect(await relay.done).toEqual({ kind: 'closed', first: 'upstream' });
  });

  it('does not wait for ever for the other side to close', async () => {
    const { inner, relay } = await relayed({ lingerMs: 30 });
    inner.upstream.destroy();
    expect(await relay.done).toMatchObject({ kind: 'closed' });
    expect(inner.client.destroyed).toBe(true);
  });

  it('names the side that broke, and ends the other', async () => {
    const { client, upstream, inner, fromClient, relay } = await relayed();
    client.write('x');
    await once(inner.client, 'data');
    client.resetAndDestroy();
    await fromClient.until(() => fromClient.ended);
    upstream.end();
    expect(await relay.done).toMatchObject({ kind: 'broken', side: 'client', error: { code: 'ECONNRESET' } });
  });

  it('delivers what an end said before it broke', async () => {
    const gate = Promise.withResolvers<void>();
    const slow = tap(() => gate.promise);
    const { upstream, client, inner, fromUpstream, relay } = await relayed({
      taps: { clientToServer: idle, serverToClient: slow },
    });
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

  it('delivers a chunk that a tap is holding when its source ends', async () => {
    const gate = Promise.withResolvers<void>();
    const slow = tap(() => gate.promise);
    const { upstream, client, inner, fromUpstream, relay } = await relayed({
      taps: { clientToServer: idle, serverToClient: slow },
    });
    upstream.end('the end');
    client.end();
    await once(inner.upstream, 'close');
    gate.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe('the end');
    expect(await relay.done).toMatchObject({ kind: 'closed' });
  });

  it('gives a slow reader all the time it needs after the other side has closed', async () => {
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

  it('notices an end that was gone before it began', async () => {
    const client = await socketPair();
    const upstream = await socketPair();
    pairs.push(client, upstream);
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

  it('destroys both ends on its signal', async () => {
    const { abort, inner, relay } = await relayed();
    abort.abort();
    expect(await relay.done).toEqual({ kind: 'stopped' });
    expect(inner.client.destroyed && inner.upstream.destroyed).toBe(true);
  });

  it('pauses a source whose sink is full, and loses nothing', async () => {
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
  it('delivers a chunk only after the tap has taken it', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: string[] = [];
    const slow = tap((chunk) => {
      seen.push(Buffer.from(chunk).toString());
      return seen.length === 1 ? gate.promise : undefined;
    });
    const { client, fromClient } = await relayed({ taps: { clientToServer: slow, serverToClient: idle } });
    client.write('first');
    await until(() => seen.length === 1);
    client.end('second');
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(fromClient.size).toBe(0);
    expect(seen).toEqual(['first']);
    gate.resolve();
    await fromClient.until(() => fromClient.ended);
    expect(fromClient.bytes.toString()).toBe('firstsecond');
    expect(slow.deliveries).toBe(2);
  });

  it('shows the tap in one piece what came while it held a chunk back', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: string[] = [];
    const slow = tap((chunk) => {
      seen.push(Buffer.from(chunk).toString());
      return gate.promise;
    });
    const { client, inner, fromClient } = await relayed({
      taps: { clientToServer: slow, serverToClient: idle },
    });
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
    expect(slow.deliveries).toBe(3);
  });

  it('delivers nothing from a refused chunk on, and leaves both ends open', async () => {
    for (const late of [false, true]) {
      const refusing = tap((chunk) => {
        if (!Buffer.from(chunk).toString().includes('bad')) return undefined;
        const error = new Error('refused');
        if (late) return Promise.reject(error);
        throw error;
      });
      const { upstream, fromUpstream, relay, inner } = await relayed({
        taps: { clientToServer: idle, serverToClient: refusing },
      });
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

  it('delivers nothing after it was stopped, not even what a tap was still holding', async () => {
    const gate = Promise.withResolvers<void>();
    const slow = tap(() => gate.promise);
    const { upstream, fromUpstream, relay, inner } = await relayed({
      taps: { clientToServer: idle, serverToClient: slow },
    });
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    relay.stop();
    gate.resolve();
    expect(await relay.done).toEqual({ kind: 'stopped' });
    inner.client.write('last words');
    expect((await fromUpstream.take(10)).toString()).toBe('last words');
    expect(slow.deliveries).toBe(0);
  });

  it('loses nothing of an end that closed behind a slow tap, while heartbeats come', async () => {
    const slow = tap(() => new Promise((resolve) => setTimeout(resolve, 1)));
    const heartbeats = { ...tap(() => undefined), patienceMs: 60_000 };
    const { client, upstream, inner, fromUpstream, relay } = await relayed({
      taps: { clientToServer: heartbeats, serverToClient: slow },
    });
    inner.upstream.on('error', () => {});
    const total = 6 * 1024 * 1024;
    upstream.end(Buffer.alloc(total, 1), () => upstream.destroy());
    const beat = setInterval(() => client.write('beat'), 20);
    await fromUpstream.until(() => fromUpstream.ended);
    clearInterval(beat);
    expect(fromUpstream.size).toBe(total);
    client.end();
    await relay.done;
  });

  it('keeps back what may wait until the other direction has caught up, and no longer than it may', async () => {
    for (const patienceMs of [60_000, 20]) {
      const gate = Promise.withResolvers<void>();
      const { client, upstream, fromClient, fromUpstream, relay } = await relayed({
        taps: { clientToServer: { ...idle, patienceMs }, serverToClient: tap(() => gate.promise) },
      });
      client.write('1');
      expect((await fromClient.take(1)).toString()).toBe('1');
      upstream.write('held');
      await until(() => relay.totals.fromUpstream === 4);
      client.write('2');
      await until(() => relay.totals.fromClient === 2);
      if (patienceMs === 20) expect((await fromClient.take(1)).toString()).toBe('2');
      else {
        await new Promise((resolve) => setTimeout(resolve, 150));
        expect(fromClient.size).toBe(0);
        gate.resolve();
        expect((await fromUpstream.take(4)).toString()).toBe('held');
        expect((await fromClient.take(1)).toString()).toBe('2');
      }
      relay.stop();
      gate.resolve();
    }
  });

  it('does not take a process that waits for its turn for a direction that has caught up', async () => {
    const gate = Promise.withResolvers<void>();
    const order: string[] = [];
    const server = tap((chunk) => {
      order.push(Buffer.from(chunk).toString());
      return order.length === 1 ? gate.promise : undefined;
    });
    const beat = { ...idle, patienceMs: 60_000, delivered: () => void order.push('heartbeat delivered') };
    const { client, upstream, fromClient, fromUpstream, relay } = await relayed({
      taps: { clientToServer: beat, serverToClient: server },
    });
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    gate.resolve();
    await fromUpstream.take(4);
    // both are in the kernel when this process has its next turn
    client.write('heartbeat');
    upstream.write('more');
    const stalledMs = performance.now();
    while (performance.now() - stalledMs < 250);
    await fromUpstream.take(4);
    const moreMs = performance.now();
    expect((await fromClient.take(9)).toString()).toBe('heartbeat');
    expect(performance.now() - moreMs).toBeGreaterThan(50);
    expect(order).toEqual(['held', 'more', 'heartbeat delivered']);
    relay.stop();
  });

  it('never keeps back what must not wait', async () => {
    const gate = Promise.withResolvers<void>();
    const { client, upstream, fromClient, relay } = await relayed({
      taps: { clientToServer: { ...idle, patienceMs: 0 }, serverToClient: tap(() => gate.promise) },
    });
    upstream.write('held');
    await until(() => relay.totals.fromUpstream === 4);
    client.write('now');
    expect((await fromClient.take(3)).toString()).toBe('now');
    relay.stop();
    gate.resolve();
  });

  it('gives the client last words behind everything that came, however the other side ended', async () => {
    for (const how of ['end', 'break'] as const) {
      const gate = Promise.withResolvers<void>();
      const { upstream, client, inner, fromUpstream, relay } = await relayed({
        taps: { clientToServer: idle, serverToClient: tap(() => gate.promise) },
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

  it('taps the heads as well', async () => {
    const seen: string[] = [];
    const note = tap((chunk) => void seen.push(Buffer.from(chunk).toString()));
    const { fromClient } = await relayed({
      clientHead: Buffer.from('head'),
      taps: { clientToServer: note, serverToClient: idle },
    });
    await fromClient.take(4);
    expect(seen).toEqual(['head']);
  });
});

async function until(test: () => boolean): Promise<void> {
  while (!test()) await new Promise((resolve) => setImmediate(resolve));
}
