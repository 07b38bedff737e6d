import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { AlertJournal } from '../../../../src/tsrecorder/search/alerts/alert-journal.ts';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcalerts-'));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const alert = { id: 'a', rule: 'r', query: 'q', webhook: 'hook', session: 's', firedAtMs: 1 };

it('a journal of alerts that is closed takes nothing any more, and says so', async () => {
  const journal = await AlertJournal.open({ directory, rules: ['r'], nowMs: 1 });
  expect(await journal.add([alert])).toEqual([alert]);
  await journal.close();
  await expect(journal.add([{ ...alert, id: 'b' }])).rejects.toThrow('the journal of alerts is closed');
  await expect(journal.settle(alert)).rejects.toThrow('the journal of alerts is closed');
  const again = await AlertJournal.open({ directory, rules: ['r'], nowMs: 2 });
  expect(again.pending).toEqual([alert]);
  await again.close();
});
