import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { formatCheck } from '../../src/doctor/format-check.ts';
import { checkFormat, SPOOL_FORMAT } from '../../src/folder-format.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'doctor-format-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function examine(named: string | undefined = folder): Promise<CheckFinding | undefined> {
  const read = (place: string): Promise<boolean> => checkFormat(place, SPOOL_FORMAT);
  const check = formatCheck({ id: 'spool', title: 'spool', folder: named, read });
  const [finding] = await runChecks([check], new AbortController().signal);
  return finding;
}

const mark = (value: object): void => writeFileSync(join(folder, 'format.json'), JSON.stringify(value));

describe('the check of a folder’s format', () => {
  it('takes what this version and those before it wrote', async () => {
    expect(await examine()).toMatchObject({ id: 'spool-format', status: 'ok' });
    mark({ kind: 'spool', format: 1, version: '0.1.0' });
    expect(await examine()).toMatchObject({ status: 'ok', summary: expect.stringContaining(folder) });
  });

  it('names the version that wrote what this one does not know', async () => {
    mark({ kind: 'spool', format: 2, version: '9.9.9' });
    expect(await examine()).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('was written by tailcast 9.9.9'),
      remedy: expect.stringContaining('use another directory'),
    });
  });

  it('says when the files are of another kind', async () => {
    mark({ kind: 'gateway state', format: 1, version: '0.1.0' });
    expect(await examine()).toMatchObject({ status: 'failed', summary: expect.stringContaining('no spool') });
  });
});
