import { mkdtemp, open, readdir, readFile, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  parseSegmentName,
  logSegmentName,
  type LogEvent,
} from '../../../src/tsrecorder/evidence/log-entry.ts';
import { LogJournal } from '../../../src/tsrecorder/evidence/log-journal.ts';

const LOG = '0123456789abcdef0123456789abcdef';
const TIME = '2026-07-29T10:44:42.000Z';
const event = (name: string): LogEvent => ({ kind: 'documentRemoved', name, reason: 'test' });

async function createPath(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'log-journal-'));
  return join(directory, 'log');
}

async function journalAt(path: string): Promise<LogJournal> {
  const { journal } = await LogJournal.open(path, LOG);
  onTestFinished(() => journal.close());
  return journal;
}

async function journalWith(path: string, names: readonly string[]): Promise<LogJournal> {
  const journal = await journalAt(path);
  for (const name of names) journal.append(TIME, event(name));
  await journal.sync();
  return journal;
}

const namesIn = (journal: LogJournal): string[] =>
  journal.unpublished(100).map((entry) => (entry.event.kind === 'documentRemoved' ? entry.event.name : '?'));

describe('the journal of an evidence log', () => {
  it('removes published entries from the disk, and continues after them', async () => {
    const path = await createPath();
    const journal = await journalWith(path, ['a', 'b', 'c']);
    const last = journal.unpublished(2)[1]!;
    await journal.published(2);
    const again = await journalAt(path);
    expect(namesIn(again)).toEqual(['c']);
    expect(again.base).toMatchObject({ n: 2, hash: last.hash });
    expect(again.append(TIME, event('d'))).toBe(3);
  });

  it('ends before a line that does not continue the previous one', async () => {
    const path = await createPath();
    await journalWith(path, ['a', 'b', 'c']);
    const [base, first, second, third] = (await readFile(path, 'utf8')).split('\n');
    await writeFile(path, [base, first, second!.replace('"b"', '"x"'), third, ''].join('\n'));
    const cut = await journalAt(path);
    expect(namesIn(cut)).toEqual(['a', 'x']);
    await writeFile(path, [base, first, third, ''].join('\n'));
    expect(namesIn(await journalAt(path))).toEqual(['a']);
  });

  it('keeps a copy of a file that is damaged before its end, and no copy of a file that a crash has cut', async () => {
    const path = await createPath();
    await (await journalWith(path, ['a', 'b', 'c'])).close();
    const whole = await readFile(path, 'utf8');
    const opened = async (): Promise<readonly [boolean, boolean, readonly string[]]> => {
      const { journal, damaged, isNew } = await LogJournal.open(path, LOG);
      const names = namesIn(journal);
      await journal.close();
      return [damaged, isNew, names];
    };
    await writeFile(path, whole.slice(0, -5));
    expect(await opened()).toEqual([false, false, ['a', 'b']]);
    const copies = async (): Promise<readonly string[]> =>
      (await readdir(join(path, '..'))).filter((name) => name.includes('damaged')).toSorted();
    expect(await copies()).toEqual([]);
    const changed = whole.replace('"b"', '"x"');
    for (const content of [changed, `${changed}\n`]) {
      await writeFile(path, content);
      expect(await opened()).toEqual([true, false, ['a', 'x']]);
    }
    expect(await copies()).toEqual(['log.damaged', 'log.damaged-2']);
    expect(await readFile(`${path}.damaged`, 'utf8')).toBe(changed);
    expect(await opened()).toEqual([false, false, ['a', 'x']]);
  });

  it('is synced, and so is its folder', async () => {
    const path = await createPath();
    const handle = await open(join(path, '..'));
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const syncs = vi.spyOn(prototype, 'sync');
    onTestFinished(() => syncs.mockRestore());
    // each write needs one sync for the file and one for its directory
    const journal = await journalWith(path, ['a']);
    expect(syncs.mock.calls.length).toBe(2);
    await journal.published(1);
    expect(syncs.mock.calls.length).toBe(4);
  });

  it('reports why it cannot be opened, and sets an unreadable file aside', async () => {
    const path = await createPath();
    await writeFile(path, 'no journal\n');
    const { journal, damaged, isNew } = await LogJournal.open(path, LOG);
    await journal.close();
    expect({ damaged, isNew }).toEqual({ damaged: true, isNew: true });
    expect(await readFile(`${path}.damaged`, 'utf8')).toBe('no journal\n');
    await expect(LogJournal.open(join(path, 'below'), LOG)).rejects.toMatchObject({ code: 'ENOTDIR' });
  });
});

it('the name of a segment contains its log and its first entry, and other names are ignored', () => {
  expect(parseSegmentName(logSegmentName(LOG, 42))).toEqual({ log: LOG, first: 42 });
  for (const name of ['', `.evidence/logs/${LOG}/tail`, `.evidence/logs/${LOG}/42.ndjson`, 'x.ndjson'])
    expect(parseSegmentName(name)).toBeUndefined();
});
