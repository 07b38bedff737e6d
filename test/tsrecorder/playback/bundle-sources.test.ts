import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import { withStoredSources } from '../../../src/tsrecorder/playback/bundle-sources.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcsources-'));
  vi.stubEnv('TMPDIR', directory);
});
afterEach(async () => {
  vi.unstubAllEnvs();
});

/** Catalogue entry of a session that has just started. */
const BEGUN: CatalogEntry = {
  recording: {
    id: 'n1_2026-01-02T03:04:05Z',
    key: 'n1/2026-01-02T03:04:05Z.cast',
    state: 'running',
    startedAt: '2026-01-02T03:04:05Z',
    bytes: 0,
    width: 80,
    height: 24,
    kind: 'exec',
    source: { node: 'laptop.example.ts.net', nodeId: 'n1' },
    destination: { node: 'cluster', nodeId: 'n2' },
  },
  key: { nodeId: 'n1', time: '2026-01-02T03:04:05Z' },
  resizeOrder: 'columnsFirst',
  pieces: [],
  live: undefined,
  version: undefined,
};

const exports = async (): Promise<readonly string[]> =>
  (await readdir(directory)).filter((name) => name.startsWith('tailcast-export-'));

describe('the sources of a bundle', () => {
  it('contain no transcript if there can be none, and leave no files on disk', async () => {
    const options = {
      store: await createDiskStore(join(directory, 'store')),
      nowMs: Date.now,
      signal: new AbortController().signal,
      log: createSilentLogger(),
    };
    const found = await withStoredSources(BEGUN, options, async ({ transcript }) => {
      expect(await exports()).toHaveLength(1);
      return [await transcript()];
    });
    expect(found).toEqual([undefined]);
    expect(await exports()).toEqual([]);
    const failing = withStoredSources(BEGUN, options, () => Promise.reject(new Error('given up')));
    await expect(failing).rejects.toThrow('given up');
    expect(await exports()).toEqual([]);
  });
});
