import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { engineSuite, doc, moment, query, type TestedEngine } from './engine-suite.ts';
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
      await rm(directory, { recursive: true, force: true });
    },
  };
}

describe('the embedded index', () => {
  engineSuite(openEngine);
});

/** What can be asked of an index, and what it holds. */
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

/** Works in a process of its own. @param kill it dies before this step. @returns the steps that it came to */
async function workInProcess(
  directory: string,
  kill: number,
): Promise<{ readonly steps: readonly string[]; readonly signal: NodeJS.Signals | null }> {
  const child = fork(join(import.meta.dirname, 'index-writer-process.ts'), [directory, String(kill)], {
    execPath: process.execPath,
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const [steps] = await Promise.all([text(child.stdout!), once(child, 'exit')]);
  return { steps: steps.split('\n').filter((step) => step !== ''), signal: child.signalCode };
}

describe('an index whose process is killed', () => {
  it(
    'is, after the next one, what it had been without that, whichever step it was killed at',
    { timeout: 300_000 },
    () =>
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

describe('the counts of the embedded index', () => {
  it('are those of its sessions, also after it was opened again', () =>
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
  it('hold no byte of what was removed, and none that others may read', () =>
    withDirectory(async (directory) => {
      const writer = new IndexWriter(directory);
      const listing = {
        order: '2026-02-01T00:01:00.000000000Z n',
        version: 'v',
        recording: '{"command":"canaryword of someuser"}',
        searched: 'canaryword\nsomeuser',
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
