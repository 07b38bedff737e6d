import { mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { GATEWAY_STATE_FORMAT, SPOOL_FORMAT, checkFormat, markFormat } from '../src/folder-format.ts';
import { VERSION } from '../src/version.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tcformat-'));
});
const write = (text: string): void => writeFileSync(join(folder, 'format.json'), text);
const mark = (more: object): void =>
  write(JSON.stringify({ kind: 'spool', format: 1, version: '0.1.0', ...more }));

describe('the format of a folder', () => {
  it('is written once, whoever starts at the same moment', async () => {
    expect(await checkFormat(folder, SPOOL_FORMAT)).toBe(false);
    await Promise.all([1, 2, 3].map(() => markFormat(folder, SPOOL_FORMAT)));
    expect(readdirSync(folder)).toEqual(['format.json']);
    const text = readFileSync(join(folder, 'format.json'), 'utf8');
    expect(JSON.parse(text)).toEqual({ kind: 'spool', format: 1, version: VERSION });
    expect(await checkFormat(folder, SPOOL_FORMAT)).toBe(true);
    await markFormat(folder, SPOOL_FORMAT);
    expect(readFileSync(join(folder, 'format.json'), 'utf8')).toBe(text);
  });

  it('may be that of an earlier version', async () => {
    mark({ format: 1 });
    await expect(checkFormat(folder, { kind: 'spool', format: 2 })).resolves.toBe(true);
  });

  it.each([
    [
      'a newer one',
      { format: 2, version: '9.1.0' },
      /written by tailcast 9\.1\.0 \(spool format 2\).*start tailcast 9\.1\.0/,
    ],
    ['another kind', { kind: GATEWAY_STATE_FORMAT.kind }, /holds a gateway state, and no spool/],
    ['no number', { format: '1' }, /format\.json does not contain the format/],
    ['an unknown kind', { kind: 'cache' }, /format\.json does not contain the format/],
    ['no version', { version: 1 }, /format\.json does not contain the format/],
  ])('is refused with a sentence when it is %s', async (_, more, sentence) => {
    mark(more);
    await expect(checkFormat(folder, SPOOL_FORMAT)).rejects.toThrow(sentence);
    await expect(markFormat(folder, SPOOL_FORMAT)).rejects.toThrow(sentence);
  });

  it('is refused when it cannot be read', async () => {
    write('{');
    await expect(checkFormat(folder, SPOOL_FORMAT)).rejects.toThrow(/does not contain the format/);
    const other = join(folder, 'other');
    mkdirSync(join(other, 'format.json'), { recursive: true });
    await expect(checkFormat(other, SPOOL_FORMAT)).rejects.toThrow(/cannot be read: it is a folder/);
  });

  it('is nothing to say of a folder that is not there', async () => {
    await expect(checkFormat(join(folder, 'none'), SPOOL_FORMAT)).resolves.toBe(false);
    writeFileSync(join(folder, 'file'), '');
    await expect(checkFormat(join(folder, 'file'), SPOOL_FORMAT)).resolves.toBe(false);
  });
});
