import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { RECHECK_MS, createReloadedFile } from '../../src/kube/token.ts';

let directory: string;
let path: string;
let nowMs: number;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-token-'));
  path = join(directory, 'token');
  nowMs = 1000;
});

function open(): () => Promise<string> {
  return createReloadedFile({ path, what: 'the token', now: () => nowMs });
}

describe('createReloadedFile', () => {
  it('reads the file again when the last look is old enough', async () => {
    writeFileSync(path, 'one\n');
    const token = open();
    expect(await token()).toBe('one');
    writeFileSync(path, ' two ');
    nowMs += RECHECK_MS - 1;
    expect(await token()).toBe('one');
    nowMs += 1;
    expect(await token()).toBe('two');
  });

  it('keeps the last good text while the file is gone or empty', async () => {
    writeFileSync(path, 'one');
    const token = open();
    await token();
    rmSync(path);
    nowMs += RECHECK_MS;
    expect(await token()).toBe('one');
    writeFileSync(path, '\n');
    nowMs += RECHECK_MS;
    expect(await token()).toBe('one');
    writeFileSync(path, 'three');
    nowMs += RECHECK_MS;
    expect(await token()).toBe('three');
  });

  it('says which file cannot be read, and recovers', async () => {
    const token = open();
    await expect(token()).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining(`cannot read the token ${path}: there is no such file`) as string,
    });
    writeFileSync(path, '');
    await expect(token()).rejects.toThrow(/the file is empty/);
    writeFileSync(path, 'x'.repeat(300 * 1024));
    await expect(token()).rejects.toThrow(/larger than/);
    writeFileSync(path, 'one');
    expect(await token()).toBe('one');
  });

  it('reads once for all who wait', async () => {
    writeFileSync(path, 'one');
    const token = open();
    const [first, second] = [token(), token()];
    expect(await first).toBe('one');
    expect(await second).toBe('one');
  });
});
