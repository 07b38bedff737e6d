/** Rules that match words also check the text of a long session that the index omits. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseQuery } from '../../../src/search/query.ts';
import { createIndexHandlers } from '../../../src/tsrecorder/search/index-operations.ts';
import { doc, names } from './engine-suite.ts';

const HEADER = '{"version":2,"width":80,"height":24}\n';

function event(at: number, text: string): string {
  return `${JSON.stringify([at, 'o', text])}\n`;
}

/** Returns different rows. */
function output(from: number, count: number): string {
  return Array.from(
    { length: count },
    (_, at) => `${(from + at).toString(36).padStart(8, '0')} ${'log line of a build '.repeat(3)}\r\n`,
  ).join('');
}

it('in the middle of a long session', async () => {
  const index = createIndexHandlers();
  await index.open({ directory: await mkdtemp(join(tmpdir(), 'rules-')), mayWrite: true });
  const rule = { query: parseQuery('"delete secret"', 0), may: 'everything' as const, sinceMs: 0 };
  await index.watch([{ id: 'deletes', ...rule }]);
  // The index contains the first 3 MiB and the last MiB.
  const parts = [
    HEADER + event(1, output(0, 48_000)),
    event(50, '$ kubectl delete secret db\r\nsecret "db" deleted\r\n'),
    event(60, output(100_000, 18_000)),
  ].map((text) => Buffer.from(text));
  await index.begin({ key: 1, doc: doc('n_1'), isLive: true, effort: 'quick' });
  const live: number[] = [];
  for (const bytes of parts)
    live.push((await index.commit({ key: 1, names: names('n_1'), bytes })).matches.length);
  expect(live).toEqual([0, 1, 0]);
  await index.drop({ key: 1 });
  await index.begin({ key: 2, doc: doc('n_1'), isLive: true, effort: 'quick' });
  for (const bytes of parts) await index.feed({ key: 2, bytes });
  const empty = new Uint8Array(0);
  expect((await index.commit({ key: 2, names: names('n_1'), bytes: empty })).matches).toHaveLength(1);
  await index.drop({ key: 2 });
  await index.begin({ key: 3, doc: doc('n_1'), isLive: false, effort: 'full' });
  for (const bytes of parts) await index.feed({ key: 3, bytes });
  const { matches } = await index.finish({ key: 3 });
  expect(matches).toMatchObject([{ rule: 'deletes' }]);
  await index.close(null);
});
