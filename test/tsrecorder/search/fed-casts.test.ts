/** The index process reads casts in arbitrary pieces: from bytes to search results. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { FoundSession } from '../../../src/search/search-index.ts';
import { createIndexHandlers } from '../../../src/tsrecorder/search/index-operations.ts';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { castFixture } from '../../support/search-text.ts';
import { doc, query } from './engine-suite.ts';

interface FedIndex {
  feed(id: string, pieces: readonly Uint8Array[]): Promise<void>;
  find(text: string): readonly FoundSession[];
}

async function openIndex(): Promise<FedIndex> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-fed-'));
  const index = createIndexHandlers();
  await index.open({ directory, mayWrite: true });
  const reader = new IndexReader(directory);
  onTestFinished(() => {
    reader.close();
  });
  let key = 0;
  return {
    async feed(id, pieces) {
      key += 1;
      await index.begin({ key, doc: doc(id), isLive: false, effort: 'full' });
      for (const bytes of pieces) await index.feed({ key, bytes });
      await index.finish({ key });
      await index.flush(null);
    },
    find: (text) => reader.find(query(text), 'everything', { limit: 1000 }).sessions,
  };
}

it.each(['käferß 日本語 👍', 'kaefer ASCII'])(
  'a cast gives the same results wherever its bytes are split, even inside a character: %s',
  async (words) => {
    const index = await openIndex();
    const events = [
      [1, 'o', 'store_fa'],
      [1.5, 'o', 'iled \x1b[3'],
      [2, 'o', `1m${words} end`],
    ];
    const cast = ['{"version":2,"width":80,"height":24}', ...events.map((event) => JSON.stringify(event))];
    const bytes = Buffer.from(cast.join('\n'));
    for (let at = 0; at <= bytes.length; at += 1)
      await index.feed(`n_${at}`, [bytes.subarray(0, at), bytes.subarray(at)]);
    await index.feed(
      `n_${bytes.length + 1}`,
      Array.from(bytes, (byte) => Uint8Array.of(byte)),
    );
    const sessions = index.find(`"store_failed ${words} end"`);
    expect(new Set(sessions.map(({ id }) => id)).size).toBe(bytes.length + 2);
    for (const { id, hits, partial } of sessions)
      expect([hits.map(({ at, text }) => [at, text]), partial], id).toEqual([
        [[2, `store_failed ${words} end`]],
        false,
      ]);
  },
);

it('finds a word that was visible for 50 ms at its time, and a command as typed and as executed', async () => {
  const index = await openIndex();
  await index.feed('n_1', [Buffer.from(castFixture('shell').join('\n'))]);
  const events = castFixture('shell')
    .slice(1)
    .map((line) => JSON.parse(line) as [number, string, string]);
  const shownAt = events.findIndex(([, , text]) => text.includes('secret-in-a-blink'));
  const [shown] = events[shownAt]!;
  const [gone] = events.slice(shownAt).find(([, , text]) => /\[[0-3]?[JK]/.test(text))!;
  expect(gone - shown).toBeLessThan(0.2);
  const [blink] = index.find('"secret-in-a-blink"');
  expect(Math.abs(blink!.hits[0]!.at - shown)).toBeLessThan(0.5);
  const [run] = index.find('cmd:"kubectl get pods"');
  expect(run?.hits[0]).toMatchObject({ text: 'kubectl get pods', isCommand: true });
  expect(index.find('cmd:kubectll')).toEqual([]);
  const [typed] = index.find('kubectll');
  expect(typed?.hits[0]?.text).toContain('kubectll');
  expect(typed!.hits[0]!.at).toBeLessThan(run!.hits[0]!.at);
});
