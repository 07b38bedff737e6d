import { mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { AlertJournal } from '../../../../src/tsrecorder/search/alerts/alert-journal.ts';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcalerts-'));
});

const alert = { id: 'a', rule: 'r', query: 'q', webhook: 'hook', session: 's', firedAtMs: 1, marks: [] };

it('a journal of alerts accepts each alert once, pending or settled', async () => {
  const journal = await AlertJournal.open({ directory, rules: ['r'], nowMs: 1 });
  expect(await journal.add([alert])).toEqual([alert]);
  expect(await journal.add([alert])).toEqual([]);
  expect([await journal.settle(alert), await journal.settle(alert)]).toEqual([true, false]);
  expect(await journal.add([alert])).toEqual([]);
  await journal.close();
});

it('a closed journal of alerts rejects all alerts with an error', async () => {
  const journal = await AlertJournal.open({ directory, rules: ['r'], nowMs: 1 });
  expect(await journal.add([alert])).toEqual([alert]);
  await journal.close();
  await expect(journal.add([{ ...alert, id: 'b' }])).rejects.toThrow('the journal of alerts is closed');
  await expect(journal.settle(alert)).rejects.toThrow('the journal of alerts is closed');
  const again = await AlertJournal.open({ directory, rules: ['r'], nowMs: 2 });
  expect(again.pending).toEqual([alert]);
  await again.close();
});

it.each([
  ['the beginning', (text: string) => `x${text.slice(1)}`, 1],
  ['a line between others', (text: string) => text.replace('"rule"', '"role"'), 1],
  ['all of it', () => 'zzzz', 1],
])('a journal of alerts that is damaged in %s is kept, and counted', async (_place, damage, lines) => {
  const path = join(directory, 'alerts.journal');
  const journal = await AlertJournal.open({ directory, rules: ['r'], nowMs: 1 });
  await journal.add([alert]);
  await journal.close();
  const damaged = damage(await readFile(path, 'utf8'));
  await writeFile(path, damaged);
  const again = await AlertJournal.open({ directory, rules: ['r'], nowMs: 2 });
  await again.close();
  expect(again.damaged).toBe(lines);
  expect(await readFile(`${path}.damaged`, 'utf8')).toBe(damaged);
  const third = await AlertJournal.open({ directory, rules: ['r'], nowMs: 3 });
  await third.close();
  expect([third.damaged, await readdir(directory)]).toEqual([
    0,
    ['alerts.journal', 'alerts.journal.damaged'],
  ]);
});
