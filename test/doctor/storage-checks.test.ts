import { mkdtemp, readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { directoryState, type DirectoryState } from '../../src/doctor/directory.ts';
import { storageChecks } from '../../src/doctor/storage-checks.ts';

const GIB = 1024 ** 3;
let scratch: string;

beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'doctor-storage-'));
});

async function examine(
  directory: string | undefined,
  state?: Partial<DirectoryState>,
): Promise<CheckFinding[]> {
  const good = { usable: true, exists: true, freeBytes: 100 * GIB, totalBytes: 200 * GIB, freeFiles: 1e6 };
  const place = {
    id: 'store',
    title: 'store',
    directory,
    flag: '--store',
    minFreeBytes: 64 * 1024 ** 2,
    wantedBytes: 16 * GIB,
  };
  const checks = storageChecks(
    place,
    state === undefined ? directoryState : () => Promise.resolve({ ...good, ...state } as DirectoryState),
  );
  return [...(await runChecks(checks, new AbortController().signal))];
}

describe('the storage checks', () => {
  it('write to the directory and leave nothing behind', async () => {
    const [store] = await examine(scratch);
    expect(store).toMatchObject({ status: 'ok', summary: `${scratch} is writable` });
    expect(await readdir(scratch)).toEqual([]);
  });

  it('do not make a directory that is missing', async () => {
    const [store] = await examine(join(scratch, 'a', 'b'));
    expect(store).toMatchObject({ status: 'ok', summary: expect.stringContaining('will be created') });
    expect(await readdir(scratch)).toEqual([]);
  });

  it('want a directory to be named', async () => {
    const [store, room] = await examine(undefined);
    expect(store).toMatchObject({ status: 'failed', remedy: expect.stringContaining('--store') });
    expect(room?.status).toBe('skipped');
  });

  it('say what to do about what is no directory', async () => {
    await writeFile(join(scratch, 'file'), '');
    const [store] = await examine(join(scratch, 'file'));
    expect(store).toMatchObject({ status: 'failed', remedy: 'use a directory' });
  });

  it.skipIf(process.getuid?.() === 0)('say whom to give a directory to', async () => {
    const [store] = await examine('/root/recordings');
    expect(store).toMatchObject({ status: 'failed', remedy: expect.stringContaining('fsGroup') });
  });

  it('fail where the recorder would take nothing', async () => {
    const [, room] = await examine('/store', { freeBytes: 1024 ** 2 });
    expect(room).toMatchObject({ status: 'failed', remedy: expect.stringContaining('larger volume') });
  });

  it('fail when no more files fit', async () => {
    const [, room] = await examine('/store', { freeFiles: 3 });
    expect(room).toMatchObject({ status: 'failed', summary: expect.stringContaining('only 3 free inodes') });
  });

  it('warn when one recording could fill the disk, or the disk is nearly full', async () => {
    const [, small] = await examine('/store', { freeBytes: 10 * GIB, totalBytes: 20 * GIB });
    expect(small).toMatchObject({ status: 'warning', summary: expect.stringContaining('16.0 GiB') });
    const [, full] = await examine('/store', { freeBytes: 40 * GIB, totalBytes: 1000 * GIB });
    expect(full?.status).toBe('warning');
  });

  it('are content with room', async () => {
    const [, room] = await examine('/store', {});
    expect(room).toMatchObject({ status: 'ok', summary: '100.0 GiB free of 200.0 GiB' });
  });
});
