/** A recorder goes on with what one of an earlier version left that ran as several processes. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { createRig, until, type Rig } from './recorder-rig.ts';

/** Two processes with three sessions each, of which one had ended, killed: a store, its spool, and what the sessions said. */
const FILES = new URL('../fixtures/spools/recorder-of-two-processes.tar', import.meta.url);

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'tsrecorder-processes-'));
  execFileSync('tar', ['-xpf', fileURLToPath(FILES), '-C', root]);
});
afterEach(() => rm(root, { recursive: true, force: true }));

async function said(): Promise<readonly string[]> {
  return JSON.parse(await readFile(join(root, 'said.json'), 'utf8')) as string[];
}

async function castsOf(rig: Rig): Promise<readonly string[]> {
  const found = (await rig.list()).map(async ({ id }) => {
    const { body } = await rig.get(`/api/v1/recordings/${encodeURIComponent(id)}/cast`);
    return body.slice(body.indexOf('\n') + 1);
  });
  return (await Promise.all(found)).toSorted();
}

describe('the spools of a recorder that was several processes', () => {
  it('are brought into the store and removed, and their evidence is whole', async () => {
    const store = join(root, 'recordings');
    const spool = `${store}.spool`;
    expect(await readdir(spool)).toContain('worker-1');
    const timing = { resumeGraceMs: 1, listRefreshMs: 0 };
    const rig = await createRig({ timing }, store);
    try {
      await until(async () => ((await readdir(spool)).includes('worker-1') ? undefined : true));
      await until(async () => ((await rig.list()).every(({ state }) => state !== 'open') ? true : undefined));
      const states = (await rig.list()).map(({ state }) => state).toSorted();
      expect(states).toEqual(['closed', 'closed', ...Array<string>(4).fill('interrupted')]);
      expect(await castsOf(rig)).toEqual(await said());
    } finally {
      await rig.recorder.close();
    }
    const { findings, recordings } = await verifyStore({
      store: await createDiskStore(store, { readOnly: true }),
      keys: [(await loadSigningKey(join(spool, 'evidence', 'key.pem'), false)).public],
      checkpoint: [],
      nowMs: Date.now(),
    });
    expect(findings).toEqual([]);
    expect(recordings.withEvidence).toBe(6);
  });
});
