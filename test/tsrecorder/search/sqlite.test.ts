import { appendFile, cp, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { takeProperClose } from '../../../src/tsrecorder/search/sqlite/proper-close.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { engineSuite, doc, moment, names, query, type TestedEngine } from './engine-suite.ts';
import { engineTextSuite } from './engine-text-suite.ts';
import { work } from './index-work.ts';

async function withDirectory(act: (directory: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-index-'));
  try {
    await act(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function openEngine(): Promise<TestedEngine> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-index-'));
  const writer = new IndexWriter(directory);
  const reader = new IndexReader(directory);
  return {
    writer,
    reader,
    settled: () => undefined,
    async close() {
      reader.close();
      writer.close();
    },
  };
}

describe('the embedded index', () => {
  engineSuite(openEngine);
  engineTextSuite(openEngine);
});

/** Returns the responses of an index to all queries, and its content. */
function answersOf(directory: string): unknown {
  const reader = new IndexReader(directory);
  try {
    const queries = ['alpha', 'beta', 'old', 'gone', 'ns:prod', '', 'state:running', 'month*', 'other'];
    return {
      found: queries.map((text) => reader.find(query(text), 'everything', { limit: 50 })),
      listed: ['', 'prod', 'gone'].map((text) =>
        reader.list({ query: query(''), may: 'everything', text, limit: 50 }),
      ),
      facets: reader.facets(query(''), 'everything'),
      versions: reader.versions('', 50),
    };
  } finally {
    reader.close();
  }
}

/** Writes in another process. @param kill step before which the process is killed @returns the completed steps */
async function workInProcess(
  directory: string,
  kill: number,
  task: 'work' | 'tidy' = 'work',
): Promise<{ readonly steps: readonly string[]; readonly signal: NodeJS.Signals | null }> {
  const child = fork(join(import.meta.dirname, 'index-writer-process.ts'), [directory, String(kill), task], {
    execPath: process.execPath,
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const [steps] = await Promise.all([text(child.stdout!), once(child, 'exit')]);
  return { steps: steps.split('\n').filter((step) => step !== ''), signal: child.signalCode };
}

describe('an index whose process was killed', () => {
  it('equals, after the next process, an index without the kill, at every step', { timeout: 300_000 }, () =>
    withDirectory(async (fresh) => {
      const { steps, signal } = await workInProcess(fresh, -1);
      expect(signal).toBe(null);
      expect(new Set(steps)).toEqual(
        new Set(['begun', 'moments', 'finished', 'appended', 'marked', 'cleared', 'removed', 'compacted']),
      );
      const wanted = answersOf(fresh);
      expect(JSON.stringify(wanted)).toContain('month two');
      for (const [kill, step] of steps.entries()) {
        await withDirectory(async (directory) => {
          const died = await workInProcess(directory, kill);
          expect([died.signal, died.steps], step).toEqual(['SIGKILL', steps.slice(0, kill)]);
          const writer = new IndexWriter(directory);
          work(writer);
          writer.close();
          expect(answersOf(directory), `${kill} ${step}`).toEqual(wanted);
        });
      }
    }),
  );
});

/** Returns the number of FTS5 segments of a month. */
function piecesOf(directory: string, month: string): number {
  using database = new DatabaseSync(join(directory, `${month}.db`), { readOnly: true });
  return Number(database.prepare('SELECT count(DISTINCT segid) AS pieces FROM m_idx').get()?.['pieces']);
}

/** Fills two months with the same number of commits each. */
function fillMonths(directory: string, commits: number): void {
  const writer = new IndexWriter(directory);
  for (let at = 0; at < commits; at += 1) {
    for (const [month, from] of [Date.parse('2026-01-05'), Date.parse('2026-02-05')].entries()) {
      const names = { startedAtMs: from + at * 1000, namespace: 'prod' };
      writer.put(
        doc(`n_${month}${at}`, names),
        [moment(1, `alpha word${at} ${'other '.repeat(200)}`)],
        false,
      );
    }
  }
  writer.remove('n_01');
  writer.close();
}

describe('a month of the embedded index', () => {
  it('is merged after it has ended and was written often; the newest month is not merged', () =>
    withDirectory(async (directory) => {
      fillMonths(directory, 17);
      const before = answersOf(directory);
      const pieces = piecesOf(directory, '2026-02');
      expect(piecesOf(directory, '2026-01')).toBeGreaterThan(1);
      const writer = new IndexWriter(directory);
      while (writer.tidy());
      expect([piecesOf(directory, '2026-01'), piecesOf(directory, '2026-02')]).toEqual([1, pieces]);
      expect(answersOf(directory)).toEqual(before);
      // one more session of a merged month does not cause another merge
      writer.put(doc('n_0late', { startedAtMs: Date.parse('2026-01-06') }), [moment(1, 'late')], false);
      while (writer.tidy());
      writer.close();
      expect(piecesOf(directory, '2026-01')).toBe(2);
    }));

  it('gives the same results if its process is killed during the merge, and is merged by the next process', () =>
    withDirectory(async (fresh) => {
      fillMonths(fresh, 17);
      const wanted = answersOf(fresh);
      let isOver = false;
      for (let kill = 0; !isOver; kill += 1) {
        await withDirectory(async (directory) => {
          await cp(fresh, directory, { recursive: true });
          const { signal, steps } = await workInProcess(directory, kill, 'tidy');
          isOver = signal === null;
          expect(new Set(steps)).toEqual(new Set(kill === 0 ? [] : ['tidied']));
          expect(answersOf(directory), `${kill}`).toEqual(wanted);
          const writer = new IndexWriter(directory);
          while (writer.tidy());
          writer.close();
          expect([piecesOf(directory, '2026-01'), answersOf(directory)], `${kill}`).toEqual([1, wanted]);
        });
      }
    }));
});

it('the embedded index finds a running session by its current fields, in all of its text', () =>
  withDirectory(async (directory) => {
    const writer = new IndexWriter(directory);
    const known = { state: 'running', durationSeconds: 3 };
    writer.append(names('n_1', known), [moment(1, 'alpha')], true, false);
    writer.append(
      names('n_1', { ...known, durationSeconds: 7200, result: '77' }),
      [moment(2, 'beta')],
      false,
      false,
    );
    writer.close();
    const reader = new IndexReader(directory);
    const isFound = (text: string): boolean =>
      reader.find(query(text), 'everything', { limit: 5 }).sessions.length === 1;
    const asked = [
      'alpha duration:>1h',
      'duration:>1h',
      'alpha exit:77',
      'beta exit:!=0',
      'alpha duration:<=3',
    ];
    expect(asked.map(isFound)).toEqual([true, true, true, true, false]);
    reader.close();
  }));

it('the embedded index orders sessions of one millisecond by time, in any order of writing', async () => {
  const ids = ['n_a', 'n_b', 'n_c'];
  const began = (id: string): number => Date.parse('2026-02-01T00:00:00.116Z') + ids.indexOf(id) * 0.3;
  for (const order of [ids, ids.toReversed()]) {
    await withDirectory(async (directory) => {
      const writer = new IndexWriter(directory);
      for (const id of order) writer.put(doc(id, { startedAtMs: began(id) }), [moment(1, 'word')], false);
      writer.close();
      const reader = new IndexReader(directory);
      const { sessions } = reader.find(query('word'), 'everything', { limit: 5 });
      reader.close();
      expect(sessions.map(({ id }) => id)).toEqual(ids.toReversed());
    });
  }
});

it('the embedded index has a separate list for words of commands, even if these words are often on screens', () =>
  withDirectory(async (directory) => {
    const writer = new IndexWriter(directory);
    const command = { text: 'kubectl get pods', isGuessed: false };
    writer.put(
      doc('n_1'),
      [{ ...moment(1, 'kubectl'), command }, moment(2, 'kubectl'), moment(3, 'kubectl')],
      false,
    );
    writer.close();
    using database = new DatabaseSync(join(directory, '2026-02.db'));
    database.exec('CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, m, row)');
    const lists = database.prepare(`SELECT term, doc FROM temp.words WHERE term LIKE '%kubectl'`).all();
    expect(lists.map(({ term, doc: rows }) => [term, rows])).toEqual([
      ['kubectl', 3],
      ['§kubectl', 1],
    ]);
  }));

describe('the counts of the embedded index', () => {
  it('equal those of its sessions, also after it was opened again', () =>
    withDirectory(async (directory) => {
      const writer = new IndexWriter(directory);
      work(writer);
      const { sessions, partial } = writer.status();
      expect([sessions, partial]).toEqual([writer.ids('', 100).length, 1]);
      writer.close();
      const again = new IndexWriter(directory);
      expect(again.status()).toMatchObject({ sessions, partial });
      again.remove('n_4');
      again.remove('n_4');
      expect(again.status()).toMatchObject({ sessions: sessions - 1, partial: 0 });
      again.close();
    }));
});

describe('the files of the embedded index', () => {
  it('contain no byte of removed sessions, and other users cannot read them', () =>
    withDirectory(async (directory) => {
      const writer = new IndexWriter(directory);
      const listing = {
        order: '2026-02-01T00:01:00.000000000Z n',
        version: 'v',
        recording: '{"command":"canaryword of someuser"}',
        searched: 'canaryword\nsomeuser',
        bytes: 1,
      };
      writer.put(
        { ...doc('n_1', { user: 'someuser', command: 'canaryword' }), listing },
        [moment(1, 'canaryword stays not')],
        false,
      );
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

  it('are reported if they are damaged', () =>
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

  it('are known to be unchanged since they were closed, once, and only after a normal close', () =>
    withDirectory(async (directory) => {
      const isAsLeft = (): boolean => takeProperClose(directory, ['sessions.db', '2026-02.db']);
      const write = (name: string): IndexWriter => {
        const writer = new IndexWriter(directory);
        writer.put(doc(name), [moment(1, 'word')], false);
        return writer;
      };
      write('n_1').close();
      expect([isAsLeft(), isAsLeft()]).toEqual([true, false]);
      for (const name of ['sessions.db', '2026-02.db', '2026-02.db-wal']) {
        write('n_2').close();
        await appendFile(join(directory, name), 'x');
        expect(isAsLeft(), name).toBe(false);
        await rm(directory, { recursive: true });
      }
      const first = write('n_4');
      expect(isAsLeft(), 'while it is open').toBe(false);
      first.close();
      // a process that was killed cannot mark the index as closed
      const killed = write('n_5');
      expect(isAsLeft()).toBe(false);
      killed.close();
    }));

  it('are detected as empty before the first write', () =>
    withDirectory(async (directory) => {
      const reader = new IndexReader(join(directory));
      expect(reader.find(query('word'), 'everything', { limit: 5 })).toEqual({ sessions: [] });
      reader.close();
    }));
});
