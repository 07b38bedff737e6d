/** A relay whose tap may accept more output before the recorder has acknowledged earlier output. */
import { tmpdir } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { createElasticBuffers } from '../../../src/proxy/session/elastic-buffers.ts';
import type { OutputMark } from '../../../src/recording/tap.ts';
import { closeRelays, relayed, tap } from '../../support/relay-rig.ts';
import { until } from '../../support/until.ts';

afterEach(closeRelays);

const buffers = createElasticBuffers({
  memoryBytes: 1024 * 1024,
  diskBytes: 0,
  totalMemoryBytes: 32 * 1024 * 1024,
  totalDiskBytes: 0,
  directory: tmpdir(),
});

const CHUNK = Buffer.alloc(128 * 1024, 'x');

describe('a tap that accepts output early', () => {
  /**
   * Creates a tap that accepts more data while earlier output is unacknowledged. The test acknowledges output with
   * `answers`.
   */
  function gatheringTap() {
    const state = { gathers: true, seen: [] as string[], answers: [] as PromiseWithResolvers<void>[] };
    const gathering = tap((chunk) => {
      state.seen.push(Buffer.from(chunk).toString());
      if (chunk.length === 1) return undefined;
      const answer = Promise.withResolvers<void>();
      state.answers.push(answer);
      return answer.promise;
    });
    return { state, options: { tap: gathering, mayReadAhead: () => state.gathers } };
  }

  /** Opens a relay with a gathering tap. */
  async function gatheringRelay({ state, options } = gatheringTap()) {
    const session = await relayed({
      ...options,
      openBuffer: (events) => buffers.open('deep', 'alice', events),
    });
    /** Passes output of the server to the relay, and waits until the tap has received each part. */
    const show = async (...texts: readonly string[]): Promise<void> => {
      for (const text of texts) {
        session.inner.upstream.emit('data', Buffer.from(text));
        await until(() => state.seen.includes(text));
      }
    };
    return { ...session, state, show };
  }

  /** Opens a relay with a client that does not read, and a tap that collects data. */
  async function relayedSlowly() {
    const { state, ...session } = await gatheringRelay();
    session.client.pause();
    /** Passes output of the server to the relay. @returns true if the tap has received it */
    const push = async (): Promise<boolean> => {
      const before = state.seen.length;
      session.inner.upstream.emit('data', CHUNK);
      for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      return state.seen.length > before;
    };
    return { ...session, state, push };
  }

  it('gets output that arrives while it waits, and the relay delivers only acknowledged output', async () => {
    const { state, show, upstream, fromUpstream, inner } = await gatheringRelay();
    await show('one', '2', 'three');
    expect(state.answers).toHaveLength(2);
    await new Promise((resolve) => setImmediate(resolve));
    expect(inner.client.bytesWritten).toBe(0);
    state.answers[0]!.resolve();
    expect((await fromUpstream.take(4)).toString()).toBe('one2');
    state.gathers = false;
    inner.upstream.emit('data', Buffer.from('four'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(state.seen).toEqual(['one', '2', 'three']);
    state.answers[1]!.resolve();
    await until(() => state.seen.length === 4);
    expect((await fromUpstream.take(5)).toString()).toBe('three');
    upstream.end();
    await new Promise((resolve) => setImmediate(resolve));
    expect(fromUpstream.ended).toBe(false);
    state.answers[2]!.resolve();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe('four');
  });

  it('may collect output up to a limit while the client does not read, and other taps may not', async () => {
    const { state, push, client, fromUpstream, inner, relay } = await relayedSlowly();
    let rounds = 0;
    while (await push()) {
      state.answers.splice(0).forEach(({ resolve }) => resolve());
      rounds += 1;
    }
    expect(rounds * CHUNK.length).toBeGreaterThan(4 * 1024 * 1024);
    expect(rounds * CHUNK.length).toBeLessThan(11 * 1024 * 1024);
    expect(buffers.memory.bytes).toBeGreaterThan(4 * 1024 * 1024);
    expect(inner.client.writableLength).toBeLessThan(512 * 1024);
    state.gathers = false;
    client.resume();
    await until(() => fromUpstream.size === rounds * CHUNK.length);
    relay.stop();
    expect(buffers.memory.bytes).toBe(0);
  });

  it('keeps little output for a slow client while the sessions of its user keep much', async () => {
    const others = 16 * 1024 * 1024;
    buffers.memory.keep('alice', others);
    const { state, push, relay } = await relayedSlowly();
    while (await push()) state.answers.splice(0).forEach(({ resolve }) => resolve());
    expect(buffers.memory.bytes - others).toBeLessThan(1024 * 1024);
    relay.stop();
    expect(buffers.memory.bytes).toBe(others);
    buffers.memory.give('alice', others);
  });

  it('delivers all acknowledged output to a slow client before the message about the end', async () => {
    const { state, push, client, fromUpstream, inner, relay } = await relayedSlowly();
    for (let count = 0; count < 60; count += 1) await push();
    const taken = state.seen.reduce((sum, { length }) => sum + length, 0);
    expect(taken).toBeGreaterThan(4 * 1024 * 1024);
    state.answers.splice(0).forEach(({ resolve }) => resolve());
    await until(() => inner.client.bytesWritten > 0);
    expect(inner.client.writableLength).toBeLessThan(512 * 1024);
    relay.stop();
    inner.client.end('farewell');
    client.resume();
    await fromUpstream.until(() => fromUpstream.ended);
    expect(fromUpstream.bytes.toString()).toBe(`${'x'.repeat(taken)}farewell`);
  });

  it('delivers earlier output with a later acknowledgement, and only once', async () => {
    const { state, show, fromUpstream } = await gatheringRelay();
    await show('one', 'two', 'three');
    state.answers[1]!.resolve();
    expect((await fromUpstream.take(6)).toString()).toBe('onetwo');
    state.answers[0]!.resolve();
    state.answers[2]!.resolve();
    expect((await fromUpstream.take(5)).toString()).toBe('three');
  });

  it('learns how much was delivered, and keeps back the rest', async () => {
    const tapped = gatheringTap();
    const { state } = tapped;
    const deliveries: unknown[] = [];
    const markOf = (seen: number): OutputMark => ({
      heldBytes: seen % 2,
      heldBytesBackpressured: seen % 2,
      delivered: (heldBytes) => deliveries.push([seen, heldBytes]) > 0,
    });
    tapped.options.tap.mark = () => markOf(state.seen.length);
    const { show, fromUpstream } = await gatheringRelay(tapped);
    await show('one', 'two');
    state.answers[0]!.resolve();
    expect((await fromUpstream.take(2)).toString()).toBe('on');
    state.answers[1]!.resolve();
    expect((await fromUpstream.take(4)).toString()).toBe('etwo');
    expect(deliveries).toEqual([
      [1, 1],
      [2, 0],
    ]);
  });

  it('delivers nothing from the first refused chunk on', async () => {
    const { state, show, relay, inner, fromUpstream } = await gatheringRelay();
    await show('one', 'two', 'three');
    state.answers[0]!.resolve();
    expect((await fromUpstream.take(3)).toString()).toBe('one');
    state.answers[1]!.reject(new Error('lost'));
    expect(await relay.done).toMatchObject({ kind: 'refused', error: { message: 'lost' } });
    state.answers[2]!.resolve();
    await new Promise((resolve) => setImmediate(resolve));
    expect(inner.client.bytesWritten).toBe(3);
  });
});
