import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
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
