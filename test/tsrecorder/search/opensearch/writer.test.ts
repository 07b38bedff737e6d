/** The writer with an OpenSearch whose disk is full, that rejects some documents, or that another writer changes. */
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSearchServer } from '../../../../src/tsrecorder/search/opensearch/client.ts';
import type { ServerIndex } from '../../../../src/tsrecorder/search/opensearch/server-index.ts';
import {
  openServerWriter,
  type ServerIndexWriter,
  type ServerWriterOptions,
} from '../../../../src/tsrecorder/search/opensearch/writer.ts';
import { until } from '../../recorder-rig.ts';
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
  it('repeats writes while there is no space, and writes everything exactly once', async () => {
    const { double, writer } = await open();
    const index = await writer();
    let odd = false;
    double.faults.push(
      { status: 429 },
      { status: 503 },
      // the third write gets an error for every second document
      { status: 429, of: () => (odd = !odd) },
      { status: 429, of: (id) => id === 'n_2#1' },
    );
    expect(await index.putAll([whole('n_1', 3), whole('n_2', 2)])).toBe(2);
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#1', 'n_1#2', 'n_2#', 'n_2#0', 'n_2#1']);
    expect(double.documents.get('n_2#')?.source).toMatchObject({ version: '1', reach: 2, partial: false });
    expect(double.requests.at(-1)).toBe('POST /t-v5/_refresh');
    expect(double.faults).toEqual([]);
  });

  it('fails if there is no space for too long, and does not report the documents as written', async () => {
    const { double, writer } = await open();
    const index = await writer({ patienceMs: 0 });
    double.faults.push({ status: 200, of: () => false }, { status: 429 });
    await expect(index.putAll([whole('n_1', 1)])).rejects.toMatchObject({ status: 429 });
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '' });
    expect(await index.putAll([whole('n_1', 1)])).toBe(1);
    expect(await index.version('n_1')).toBe('1');
  });

  it('omits a document that is rejected, reports it, and writes the others', async () => {
    const { double, writer } = await open();
    const index = await writer();
    double.faults.push({ status: 200, of: () => false }, { status: 400, of: (id) => id === 'n_1#1' });
    await index.putAll([whole('n_1', 3), whole('n_2', 1)]);
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#2', 'n_2#', 'n_2#0']);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '1', partial: true });
    expect(double.documents.get('n_2#')?.source).toMatchObject({ version: '1', partial: false });
  });

  it('reports that the document of a session is rejected, so that the session does not count as indexed', async () => {
    for (const before of [0, 2]) {
      const { double, writer } = await open();
      const index = await writer();
      for (let count = 0; count < before; count += 1) double.faults.push({ status: 200, of: () => false });
      double.faults.push({ status: 400, of: (id) => id === 'n_1#' });
      await expect(index.putAll([whole('n_1', 1)])).rejects.toThrow('a session with status 400');
      expect(await index.version('n_1')).not.toBe('1');
    }
  });

  it('of two recorders, the one that started to read later wins, whichever writes last', async () => {
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
    // a recorder whose clock is behind can still write
    nowMs = 1;
    await slow.version('n_1');
    await slow.putAll([whole('n_1', 1, 'newest')]);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ version: 'newest', reach: 1 });
    expect(double.ids()).toEqual(['n_1#', 'n_1#0']);
  });

  it('stops adding to a running session that another writer has replaced', async () => {
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

  it('leaves nothing of a session that is removed or restarted, wherever the earlier process stopped', async () => {
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

  it('writes only to the index for which it was opened', async () => {
    const { double, writer } = await open();
    const index = await writer();
    await index.check();
    double.aliases.set('t-v5', 't-v5-000002');
    await expect(index.check()).rejects.toThrow('t-v5-000001 is not the index any more');
    await expect(index.putAll([whole('n_1', 1)])).rejects.toThrow('is not the index any more');
    expect(
      double.requests
        .filter((asked) => asked.includes('_bulk'))
        .every((asked) => asked.includes('require_alias=true')),
    ).toBe(true);
  });

  it('splits large writes into requests within the size limit of the server', async () => {
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

  it.each([403, 500])(
    'does not treat a server that rejects everything (%i) as a rejected document',
    async (status) => {
      const { double, writer } = await open();
      const index = await writer();
      double.faults.push({ status: 200, of: () => false }, { status, of: (id) => id === 'n_1#1' });
      await expect(index.putAll([whole('n_1', 3)])).rejects.toThrow(`with status ${status}`);
      expect(await index.version('n_1')).toBe('');
      await index.putAll([whole('n_1', 3)]);
      expect(double.documents.get('n_1#')?.source).toMatchObject({ version: '1', partial: false });
      expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#1', 'n_1#2']);
    },
  );

  it.each([
    ['the session', [{ status: 403, of: (id: string) => id === 'n_1#' }]],
    [
      'a moment',
      [
        { status: 200, of: () => false },
        { status: 403, of: (id: string) => id === 'n_1#1' },
      ],
    ],
  ])('reports that an addition to a running session is rejected: %s', async (_what, faults) => {
    const { double, writer } = await open();
    const index = await writer();
    const running = names('n_1', { state: 'running' });
    double.faults.push(...faults);
    await expect(index.append(running, moments(2), true, false)).rejects.toThrow('with status 403');
  });

  it('marks a running session as partial if a moment of it is rejected, whatever it contains', async () => {
    const { double, writer } = await open();
    const index = await writer();
    const running = names('n_1', { state: 'running' });
    double.faults.push({ status: 200, of: () => false }, { status: 400, of: (id) => id === 'n_1#1' });
    await index.append(running, moments(2), true, false);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ partial: true });
    await index.append(running, moments(1), false, false);
    expect(double.documents.get('n_1#')?.source).toMatchObject({ partial: true, reach: 3 });
    expect(double.ids()).toEqual(['n_1#', 'n_1#0', 'n_1#2']);
  });

  it.each([
    ['a moment', 'n_1#1', 0],
    ['the session', 'n_1#', 1],
  ])(
    'reports a failed removal, and leaves nothing after the repetition: %s',
    async (_what, refused, before) => {
      const { double, writer } = await open();
      const index = await writer();
      await index.putAll([whole('n_1', 3)]);
      for (let count = 0; count < before; count += 1) double.faults.push({ status: 200, of: () => false });
      double.faults.push({ status: 403, of: (id) => id === refused });
      await expect(index.remove('n_1')).rejects.toThrow('with status 403');
      expect(double.ids()).toContain('n_1#');
      await index.remove('n_1');
      expect(double.ids()).toEqual([]);
    },
  );

  it('makes additions to a running session searchable, even after several failed refreshes', async () => {
    const { double, writer } = await open();
    let nowMs = 1000;
    const index = await writer({ refreshMs: 1, nowMs: () => nowMs });
    double.requests.length = 0;
    double.unavailable.set('_refresh', 3);
    await index.append(names('n_1', { state: 'running' }), moments(2), true, false);
    await until(async () => (double.unavailable.get('_refresh') === 0 ? true : undefined));
    await until(async () =>
      double.requests.filter((asked) => asked.includes('_refresh')).length > 3 ? true : undefined,
    );
    await index.check();
    double.unavailable.set('_refresh', 1e9);
    await index.append(names('n_1', { state: 'running' }), moments(1), false, false);
    // repeats the check until the failed refresh has reached the index
    await until(async () =>
      index.check().then(
        () => undefined,
        () => true,
      ),
    );
    // two seconds later, results may be missing, so the index must leave the state `ready`
    nowMs += 1999;
    expect(index.tidy()).toBe(false);
    nowMs += 1;
    expect(() => index.tidy()).toThrow('503');
    await expect(index.check()).rejects.toMatchObject({ status: 503 });
  });

  it('makes earlier writes searchable before it starts with others', async () => {
    const { double, writer } = await open();
    const index = await writer();
    double.unavailable.set('_refresh', 2);
    expect(await index.putAll([whole('n_1', 3)])).toBe(1);
    expect(double.unavailable.get('_refresh')).toBe(0);
    expect(index.tidy()).toBe(false);
  });

  it('removes text from the files later if it is not possible immediately', async () => {
    const { double, writer } = await open();
    double.unavailable.set('_forcemerge', 2);
    const index = await writer({ expungeMs: 1 });
    const asked = (): number => double.requests.filter((request) => request.includes('_forcemerge')).length;
    await until(async () => (asked() > 2 ? true : undefined));
    index.close();
    expect(double.unavailable.get('_forcemerge')).toBe(0);
  });
});
