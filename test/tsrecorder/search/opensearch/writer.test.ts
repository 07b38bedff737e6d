/** What the writer does when OpenSearch has no room, takes some and not others, or when somebody else writes. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSearchServer } from '../../../../src/tsrecorder/search/opensearch/client.ts';
import type { ServerIndex } from '../../../../src/tsrecorder/search/opensearch/server-index.ts';
import {
  openServerWriter,
  type ServerIndexWriter,
  type ServerWriterOptions,
} from '../../../../src/tsrecorder/search/opensearch/writer.ts';
import { doc, moment, names } from '../engine-suite.ts';
import { ServerDouble } from './server-double.ts';

async function open(): Promise<{
  readonly double: ServerDouble;
  readonly writer: (
    options?: ServerWriterOptions,
    index?: Partial<ServerIndex>,
  ) => Promise<ServerIndexWriter>;
}> {
  const double = new ServerDouble();
  const url = await double.listen();
  onTestFinished(() => double.close());
  return {
    double,
    async writer(options = {}, index = {}) {
      const server = createSearchServer({ url });
      onTestFinished(() => server.close());
      return openServerWriter(
        server,
        { url, name: 't', which: 'current', shards: 1, owner: 'me', ...index },
        { refreshMs: 1e9, ...options },
      );
    },
  };
}

const moments = (count: number, word = 'word') =>
  Array.from({ length: count }, (_, at) => moment(at, `${word} ${at}`));
const whole = (id: string, count: number, version = '1') => ({
  doc: doc(id, {}, version),
  moments: moments(count),
  partial: false,
});

describe('the writer of an index at OpenSearch', () => {
  it('asks again, for as long as there is no room, and leaves nothing twice and nothing out', async () => {
    const { double, writer } = await open();
    const index = await writer();
    let odd = false;
    double.faults.push(
      { status: 429 },
      { status: 503 },
      // every second document of the next ones
      { status: 429, of: () => (odd = !odd) },
      { status: 429, of: (id) => id === 'n_2#1' },
    );
    expect(await index.putAll([whole('n_1', 3), whole('n_2', 2)])).toBe(2);
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#1', 'n_1#2', 'n_2#', 'n_2#0', 'n_2#1']);
    expect(double.documents.get('n_2#')?.source).toMatchObject({ version: '1', reach: 2, partial: false });
    expect(double.requests.at(-1)).toBe('POST /t-v2/_refresh');
    expect(double.faults).toEqual([]);
  });

  it('gives up when there is no room for too long, and is not found to have written it', async () => {
    const { double, writer } = await open();
    const index = await writer({ patienceMs: 0 });
    double.faults.push({ status: 200, of: () => false }, { status: 429 });
    await expect(index.putAll([whole('n_1', 1)])).rejects.toMatchObject({ status: 429 });
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '' });
    expect(await index.putAll([whole('n_1', 1)])).toBe(1);
    expect(await index.version('n_1')).toBe('1');
  });

  it('leaves out a document that cannot be taken, says so, and writes the others', async () => {
    const { double, writer } = await open();
    const index = await writer();
    double.faults.push({ status: 200, of: () => false }, { status: 400, of: (id) => id === 'n_1#1' });
    await index.putAll([whole('n_1', 3), whole('n_2', 1)]);
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#2', 'n_2#', 'n_2#0']);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '1', partial: true });
    expect(double.documents.get('n_2#')?.source).toMatchObject({ version: '1', partial: false });
  });

  it('says that a session itself is not taken: nothing may be thought to be there that is not', async () => {
    for (const before of [0, 2]) {
      const { double, writer } = await open();
      const index = await writer();
      for (let count = 0; count < before; count += 1) double.faults.push({ status: 200, of: () => false });
      double.faults.push({ status: 400, of: (id) => id === 'n_1#' });
      await expect(index.putAll([whole('n_1', 1)])).rejects.toThrow('a session with status 400');
      expect(await index.version('n_1')).not.toBe('1');
    }
  });

  it('lets of two recorders the one win that began to read later, whichever writes last', async () => {
    const { double, writer } = await open();
    let nowMs = 1000;
    const slow = await writer({ nowMs: () => nowMs });
    const quick = await writer({ nowMs: () => nowMs });
    await slow.version('n_1');
    nowMs += 10;
    await quick.version('n_1');
    await quick.putAll([whole('n_1', 2, 'new')]);
    expect(await slow.putAll([whole('n_1', 3, 'old')])).toBe(1);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: 'new', reach: 2 });
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#1']);
    // whose clock is behind writes all the same
    nowMs = 1;
    await slow.version('n_1');
    await slow.putAll([whole('n_1', 1, 'newest')]);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: 'newest', reach: 1 });
    expect(double.ids()).toEqual(['n_1#', 'n_1#0']);
  });

  it('stops adding to a running session that somebody has put', async () => {
    const { double, writer } = await open();
    let nowMs = 1000;
    const index = await writer({ nowMs: () => nowMs });
    const running = names('n_1', { state: 'running' });
    await index.append(running, moments(2), true, false);
    await index.append(running, moments(1), false, false);
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#1', 'n_1#2']);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '', owner: 'me', reach: 3 });
    nowMs += 1000;
    const other = await writer({ nowMs: () => nowMs });
    await other.putAll([whole('n_1', 1)]);
    nowMs -= 500;
    await index.append(running, moments(1), false, false);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '1', reach: 1 });
    expect(double.ids()).toEqual(['n_1#', 'n_1#0']);
  });

  it('leaves nothing of a session that is removed or begun anew, wherever the process before it ended', async () => {
    for (const step of ['begun', 'moments', 'finished', 'refreshed']) {
      const { double, writer } = await open();
      const first = await writer();
      await first.putAll([whole('n_1', 5)]);
      const dying = await writer({
        onStep: (now) => {
          if (now === step) throw new Error('killed');
        },
      });
      await expect(dying.putAll([whole('n_1', 2, '2')]), step).rejects.toThrow('killed');
      const isWhole = step === 'finished' || step === 'refreshed';
      const next = await writer();
      expect(await next.version('n_1'), step).toBe(isWhole ? '2' : '');
      await next.putAll([whole('n_1', 2, '2')]);
      expect(double.ids(), step).toEqual(['n_1#', 'n_1#0', 'n_1#1']);
      await dying.putAll([whole('n_1', 4, '3')]).catch(() => undefined);
      await next.remove('n_1');
      expect(double.ids(), step).toEqual([]);
    }
  });

  it('writes into no index but the one that it was opened with', async () => {
    const { double, writer } = await open();
    const index = await writer();
    await index.check();
    double.aliases.set('t-v2', 't-v2-000002');
    await expect(index.check()).rejects.toThrow('t-v2-000001 is not the index any more');
    await expect(index.putAll([whole('n_1', 1)])).rejects.toThrow('is not the index any more');
    expect(
      double.requests
        .filter((asked) => asked.includes('_bulk'))
        .every((asked) => asked.includes('require_alias=true')),
    ).toBe(true);
  });

  it('sends much in several requests, none of which is larger than a server takes', async () => {
    const { double, writer } = await open();
    const index = await writer();
    const sizes: number[] = [];
    double.onBulk = (ids) => void sizes.push(ids.length);
    await index.putAll([whole('n_1', 4500)]);
    expect(sizes).toEqual([1, 2000, 2000, 500, 1]);
    sizes.length = 0;
    const row = 'wide '.repeat(100_000);
    await index.putAll([
      { doc: doc('n_2'), moments: Array.from({ length: 9 }, (_, at) => moment(at, row)), partial: false },
    ]);
    expect(sizes.length).toBeGreaterThan(4);
  });
});
