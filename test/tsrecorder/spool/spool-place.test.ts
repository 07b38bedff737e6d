/** The spool directory of a recorder without `--spool`. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { placeSpool, defaultSpoolOf, spoolInside } from '../../../src/tsrecorder/spool/spool-place.ts';

const log = createSilentLogger();

let root: string;
let store: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'tsrecorder-place-'));
  store = join(root, 'recordings');
});

const exists = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined)) !== undefined;

describe('the default directory of the spool', () => {
  it('is next to the store', async () => {
    await expect(placeSpool(store, log)).resolves.toBe(`${store}.spool`);
    await expect(placeSpool(`${store}/`, log)).resolves.toBe(`${store}.spool`);
    expect(await readdir(store)).toEqual([]);
  });

  it('is inside a store that is a separate volume, and its content is kept', async (context) => {
    await mkdir(store);
    try {
      execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', store], { stdio: 'ignore' });
    } catch {
      context.skip('a file system cannot be mounted here');
    }
    try {
      await mkdir(spoolInside(store));
      await expect(placeSpool(store, log)).resolves.toBe(spoolInside(store));
      expect(await exists(defaultSpoolOf(store))).toBe(false);
    } finally {
      execFileSync('umount', [store]);
    }
  });
});
