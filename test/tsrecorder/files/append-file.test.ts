import { mkdtemp, open, readFile, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AppendFile, cutFile } from '../../../src/tsrecorder/files/append-file.ts';

let path = '';
let prototype: FileHandle;
beforeEach(async () => {
  path = join(await mkdtemp(join(tmpdir(), 'tsrecorder-append-')), 'file');
  const handle = await open(path, 'w');
  prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
});
afterEach(() => {
  vi.restoreAllMocks();
});

const bytes = (text: string): Buffer => Buffer.from(text);
const content = (): Promise<string> => readFile(path, 'utf8');

describe('a file to which data is only appended', () => {
  it('is new, or continues after its content', async () => {
    await expect(AppendFile.open(path, 'new')).rejects.toMatchObject({ code: 'EEXIST' });
    const first = await AppendFile.open(`${path}.new`, 'new');
    await first.append([bytes('one '), bytes(''), bytes('two ')]);
    await first.close();
    const second = await AppendFile.open(`${path}.new`, 8);
    await second.append([bytes('three')]);
    expect(second.bytes).toBe(13);
    await second.close();
    expect(await readFile(`${path}.new`, 'utf8')).toBe('one two three');
  });

  it('is synced before its length counts, and reports the duration of the sync', async () => {
    const file = await AppendFile.open(path, 0);
    const sync = Promise.withResolvers<void>();
    const synced = vi.spyOn(prototype, 'datasync').mockReturnValue(sync.promise);
    const onSync = vi.fn<(durationMs: number) => void>();
    const appended = file.append([bytes('line\n')], onSync);
    await vi.waitUntil(() => synced.mock.calls.length > 0);
    expect([file.bytes, onSync.mock.calls.length, await content()]).toEqual([0, 0, 'line\n']);
    sync.resolve();
    await appended;
    expect([file.bytes, onSync.mock.calls.length]).toEqual([5, 1]);
    await file.close();
  });

  it.each(['writev', 'datasync'] as const)(
    'removes the remains of a failed %s at the next attempt',
    async (step) => {
      const file = await AppendFile.open(path, 0);
      await file.append([bytes('kept\n')]);
      vi.spyOn(prototype, step).mockImplementationOnce(async function half(this: FileHandle) {
        if (step === 'writev') await this.write('ha');
        throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
      });
      await expect(file.append([bytes('half\n')])).rejects.toMatchObject({ code: 'ENOSPC' });
      expect(file.bytes).toBe(5);
      expect(await content()).toBe(step === 'writev' ? 'kept\nha' : 'kept\nhalf\n');
      await file.append([bytes('whole\n')]);
      expect(file.bytes).toBe(11);
      expect(await content()).toBe('kept\nwhole\n');
      await file.close();
    },
  );

  it('stays unchanged if nothing failed', async () => {
    const file = await AppendFile.open(path, 0);
    const cut = vi.spyOn(prototype, 'truncate');
    await file.append([bytes('a')]);
    await file.append([bytes('b')]);
    expect(cut).not.toHaveBeenCalled();
    await file.close();
  });
});

describe('truncating a file', () => {
  it('makes it shorter, durably, and never longer', async () => {
    await writeFile(path, 'line\nhalf');
    const synced = vi.spyOn(prototype, 'datasync');
    await cutFile(path, 20);
    expect([await content(), synced.mock.calls.length]).toEqual(['line\nhalf', 0]);
    await cutFile(path, 5);
    expect([await content(), synced.mock.calls.length]).toEqual(['line\n', 1]);
  });
});
