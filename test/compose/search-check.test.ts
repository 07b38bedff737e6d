import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { checkIndexDirectory } from '../../src/compose/check-index.ts';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { searchCheck } from '../../src/doctor/search-check.ts';
import { IndexWriter } from '../../src/tsrecorder/search/sqlite/writer.ts';
import { doc } from '../tsrecorder/search/engine-suite.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'doctor-search-'));
});

async function examine(directory: string | undefined = folder): Promise<CheckFinding | undefined> {
  const check = searchCheck({ place: directory, read: checkIndexDirectory });
  const [finding] = await runChecks([check], new AbortController().signal);
  return finding;
}

describe('the check of the search index', () => {
  it('reads an index, also one that is being written, and one that is not there yet', async () => {
    const children = (): number =>
      process.getActiveResourcesInfo().filter((name) => name === 'ProcessWrap').length;
    const before = children();
    expect(await examine(join(folder, 'later'))).toMatchObject({
      id: 'search',
      status: 'ok',
      summary: expect.stringContaining('no session yet'),
    });
    const writer = new IndexWriter(folder);
    writer.put(doc('n_1'), [], false);
    expect(await examine()).toMatchObject({ status: 'ok', summary: `${folder} is readable` });
    writer.close();
    // the process that the check started has exited
    await expect.poll(children).toBe(before);
  });

  it('says that an index is damaged, and what to do', async () => {
    writeFileSync(join(folder, 'sessions.db'), 'this is no database '.repeat(1000));
    expect(await examine()).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('not a database'),
      remedy: expect.stringContaining('delete a damaged index'),
    });
  });

  it('is skipped where sessions are not searched', async () => {
    const check = searchCheck({ place: undefined, read: checkIndexDirectory });
    expect(await runChecks([check], new AbortController().signal)).toMatchObject([{ status: 'skipped' }]);
  });
});
