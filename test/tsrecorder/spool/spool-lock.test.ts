import { mkdtemp, readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { takeSpool } from '../../../src/tsrecorder/spool/spool-lock.ts';

async function createDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'spool-lock-'));
  return directory;
}

describe('the lock of a spool', () => {
  it('is acquired once, and released', async () => {
    const directory = join(await createDirectory(), 'spool');
    const unlock = await takeSpool(directory);
    await expect(takeSpool(directory)).rejects.toMatchObject({ code: 'ALREADY_RUNNING' });
    await unlock();
    await (
      await takeSpool(directory)
    )();
  });

  it('is refused for a spool of a newer version, and leaves no file there', async () => {
    const directory = await createDirectory();
    await writeFile(
      join(directory, 'format.json'),
      JSON.stringify({ kind: 'spool', format: 99, version: '99.0.0' }),
    );
    await expect(takeSpool(directory)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    expect(await readdir(directory)).toEqual(['format.json']);
  });
});
