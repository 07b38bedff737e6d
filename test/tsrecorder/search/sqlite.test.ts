import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { indexTests, doc, moment, names, query, type TestedIndex } from './index-contract.ts';

async function withDirectory(act: (directory: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-index-'));
  try {
    await act(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function expectOfIndex(act: (index: TestedIndex) => Promise<void>): Promise<void> {
  await withDirectory(async (directory) => {
    const writer = new IndexWriter(directory);
    const reader = new IndexReader(directory);
    try {
      await act({
        put: async (session, moments, partial) => writer.put(session, moments, partial),
        append: async (session, moments, fresh) => writer.append(session, moments, fresh, false),
        remove: async (id) => writer.remove(id),
        ids: async () => writer.ids('', 100).map(({ id }) => id),
        find: async (text, may = 'everything', limit = 50, cursor) =>
          reader.find(query(text), may, cursor === undefined ? { limit } : { limit, cursor }),
        facets: async (text, may = 'everything') => reader.facets(query(text), may),
      });
    } finally {
      reader.close();
      writer.close();
    }
  });
}

describe('the embedded index', () => {
  it.each(indexTests())('%s', (_what, act) => expectOfIndex(act));
});

/** Stands for the death of the process: nothing after it runs. */
class Killed extends Error {}

describe('an index whose process is killed', () => {
  it('loses nothing and has nothing twice, whichever step it was killed at', async () => {
    const steps: string[] = [];
    await withDirectory(async (directory) => {
      const writer = new IndexWriter(directory, (step) => steps.push(step));
      work(writer);
      writer.close();
    });
    expect(steps.length).toBeGreaterThan(8);
    for (let kill = 0; kill < steps.length; kill += 1) {
      await withDirectory(async (directory) => {
        let left = kill;
        const killed = new IndexWriter(directory, () => {
          left -= 1;
          if (left < 0) throw new Killed();
        });
        expect(() => work(killed)).toThrow(Killed);
        killed.close();
        const writer = new IndexWriter(directory);
        work(writer);
        const reader = new IndexReader(directory);
        const found = (text: string) =>
          reader
            .find(query(text), 'everything', { limit: 10 })
            .sessions.map(({ id, hits }) => [id, hits.length]);
        expect(found('alpha'), steps[kill]).toEqual([['n_1', 1]]);
        expect(found('beta'), steps[kill]).toEqual([['n_2', 2]]);
        expect(found('old'), steps[kill]).toEqual([]);
        expect(found('gone'), steps[kill]).toEqual([]);
        expect(writer.ids('', 10).map(({ id }) => id)).toEqual(['n_1', 'n_2']);
        reader.close();
        writer.close();
      });
    }
  });
});

function work(writer: IndexWriter): void {
  writer.put(doc('n_1', {}, '1'), [moment(1, 'old')], false);
  writer.put(doc('n_1', {}, '2'), [moment(1, 'alpha')], false);
  writer.append(names('n_2', { state: 'running' }), [moment(1, 'beta one')], true, false);
  writer.append(names('n_2', { state: 'running' }), [moment(2, 'old beta')], false, false);
  writer.put(doc('n_2'), [moment(1, 'beta one'), moment(2, 'beta two')], false);
  writer.put(doc('n_3'), [moment(1, 'gone')], false);
  writer.remove('n_3');
}

describe('the files of the embedded index', () => {
  it('hold no byte of what was removed, and none that others may read', () =>
    withDirectory(async (directory) => {
      const writer = new IndexWriter(directory);
      writer.put(doc('n_1', { user: 'someuser' }), [moment(1, 'canaryword stays not')], false);
      writer.put(doc('n_2'), [moment(1, 'stays')], false);
      writer.put(doc('n_3', { startedAtMs: 0 }), [moment(1, 'canaryword')], false);
      writer.remove('n_1');
      writer.remove('n_3');
      writer.compact();
      writer.close();
      const files = await readdir(directory);
      expect(files).not.toContain('1970-01.db');
      for (const name of files) {
        const bytes = await readFile(join(directory, name), 'latin1');
        for (const word of ['canaryword', 'someuser']) expect(bytes, name).not.toContain(word);
      }
    }));

  it('that are damaged are said to be', () =>
    withDirectory(async (directory) => {
      await writeFile(
        join(directory, 'sessions.db'),
        'this is no database, whatever its name says'.repeat(500),
      );
      expect(() => new IndexWriter(directory)).toThrow('not a database');
      await rm(join(directory, 'sessions.db'));
      const writer = new IndexWriter(directory);
      for (let number = 0; number < 200; number += 1)
        writer.put(doc(`n_${number}`), [moment(1, `word${number} `.repeat(50))], false);
      writer.compact();
      writer.close();
      await truncate(join(directory, '2026-02.db'), 40_000);
      expect(() => new IndexWriter(directory)).toThrow(/damaged|malformed/);
    }));

  it('are found empty before anything was written', () =>
    withDirectory(async (directory) => {
      const reader = new IndexReader(join(directory));
      expect(reader.find(query('word'), 'everything', { limit: 5 })).toEqual({ sessions: [] });
      reader.close();
    }));
});
