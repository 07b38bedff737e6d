import { mkdir, mkdtemp, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { markName, SESSIONS_FOLDER } from '../../../src/tsrecorder/store/key.ts';
import { describeStore } from './store-contract.ts';

const folders: string[] = [];
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

describeStore(
  'a directory',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-disk-'));
    folders.push(folder);
    return createDiskStore(folder);
  },
  { bigBytes: 3_000_000 },
);

describe('a directory', () => {
  it('replaces notes and sidecar that another program has written without a cast', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-disk-'));
    folders.push(folder);
    const key = { nodeId: 'n1', time: '2026-07-29T11:50:50.000000001Z' };
    const [castPath, notesPath] = [join(folder, 'cast'), join(folder, 'notes')];
    await writeFile(castPath, 'cast\n');
    await writeFile(notesPath, 'notes\n');
    const store = await createDiskStore(join(folder, 'store'));
    await mkdir(join(folder, 'store', 'n1'));
    await writeFile(join(folder, 'store', 'n1', `${key.time}.json`), '{"forged":true}');
    await writeFile(join(folder, 'store', 'n1', `${key.time}.notes`), 'forged');
    const sizes = { castBytes: 5, notesBytes: 6 };
    await store.finish({ key, castPath, notesPath, ...sizes, sidecar: '{}', sessionMark: undefined });
    for (const [kind, content] of [
      ['sidecar', '{}'],
      ['notes', 'notes\n'],
    ] as const)
      expect(Buffer.concat(await Array.fromAsync(store.read(key, kind))).toString()).toBe(content);
  });
});

describe('listing documents of a directory', () => {
  it('leaves out names that no recorder writes', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-documents-'));
    const store = await createDiskStore(directory);
    await store.putDocument('.holds/a.json', Buffer.from('{}'));
    for (const name of ['a b', 'a.json~']) await writeFile(join(directory, '.holds', name), 'x');
    expect(await store.listDocuments('.holds/')).toEqual(['.holds/a.json']);
    await rm(directory, { recursive: true });
  });
});

describe('listing a directory again', () => {
  const NODE = 'nGATE1CNTRL';
  const nameAt = (second: number): string => `2026-01-02T03:04:0${second}.000000000Z.cast`;

  /** Opens a store whose folders changed long ago, with a test clock. */
  async function quiet(
    aheadMs: number,
  ): Promise<{ folder: string; store: Awaited<ReturnType<typeof createDiskStore>> }> {
    const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-disk-'));
    folders.push(folder);
    await mkdir(join(folder, NODE));
    await writeFile(join(folder, NODE, nameAt(1)), '');
    const store = await createDiskStore(folder, { readOnly: true, nowMs: () => Date.now() + aheadMs });
    return { folder, store };
  }

  it('returns the same array if nothing has changed', async () => {
    const { store } = await quiet(3_600_000);
    const first = await store.list();
    expect(first).toHaveLength(1);
    expect(await store.list()).toBe(first);
  });

  it('finds additions and removals in old and new folders and among the marks', async () => {
    const { folder, store } = await quiet(3_600_000);
    const times = async (): Promise<readonly string[]> =>
      (await store.list()).map(
        ({ key, sessionMark = '' }) => `${key.nodeId} ${key.time.slice(17, 19)} ${sessionMark}`,
      );
    const before = await times();
    expect(before).toEqual([`${NODE} 01 `]);
    await writeFile(join(folder, NODE, nameAt(2)), '');
    expect(await times()).toHaveLength(2);
    await rm(join(folder, NODE, nameAt(1)));
    expect(await times()).toEqual([`${NODE} 02 `]);
    await mkdir(join(folder, 'nOTHER'));
    await times();
    await writeFile(join(folder, 'nOTHER', nameAt(3)), '');
    expect(await times()).toHaveLength(2);
    await mkdir(join(folder, SESSIONS_FOLDER));
    await times();
    const key = { nodeId: NODE, time: nameAt(2).slice(0, -'.cast'.length) };
    await writeFile(join(folder, SESSIONS_FOLDER, markName(key, 'a'.repeat(32))), '');
    expect((await times()).some((told) => told.endsWith('a'.repeat(32)))).toBe(true);
  });

  it('returns the same array while nothing changes', async () => {
    const { folder, store } = await quiet(0);
    const first = await store.list();
    expect(await store.list()).toBe(first);
    await writeFile(join(folder, NODE, nameAt(1).replace('.cast', '.json')), '{}');
    expect(await store.list()).toEqual([{ ...first[0], hasSidecar: true }]);
  });

  it('reads only folders again that may have changed within the resolution of timestamps', async () => {
    for (const [aheadMs, found] of [
      [0, 2],
      [3_600_000, 1],
    ] as const) {
      const { folder, store } = await quiet(aheadMs);
      const node = join(folder, NODE);
      const { atime, mtime } = await stat(node);
      await utimes(node, atime, mtime);
      await store.list();
      await writeFile(join(node, nameAt(2)), '');
      // restores the times of the folder, as on a disk whose timestamps are coarse
      await utimes(node, atime, mtime);
      expect(await store.list()).toHaveLength(found);
    }
  });

  it('returns the complete list to many concurrent callers', async () => {
    const { folder, store } = await quiet(0);
    const writing = Array.from({ length: 8 }, async (_, second) => {
      await writeFile(join(folder, NODE, nameAt(second)), '');
      return (await store.list()).map(({ key }) => `${key.time}.cast`).includes(nameAt(second));
    });
    expect(await Promise.all(writing)).not.toContain(false);
    expect(await store.list()).toHaveLength(8);
  });
});
