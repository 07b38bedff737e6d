import { readFile, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { createRig, HEADER, openUpload, STORED_HEADER, until, type Rig } from './recorder-rig.ts';

const BODY = `${HEADER}[1,"o","x"]\n`;
const TIMING = { storeRetryMs: 20, maxStoreRetryMs: 40, listRefreshMs: 0, resumeGraceMs: 100 };

/** Stops a recorder while a session is open. @returns path of its spool, without suffix */
async function stopped(rig: Rig): Promise<string> {
  const upload = openUpload(rig.recorder, { 'tailcast-session': 'one' });
  upload.write(BODY);
  await upload.ack(({ ack }) => ack === BODY.length);
  const [recording] = await rig.list();
  await rig.recorder.close();
  return join(rig.spool, recording!.id);
}

describe('a spool that cannot be read', () => {
  it('stays, is listed as damaged, and is recovered as soon as it can be read', async () => {
    await using rig = await createRig({ timing: { ...TIMING, resumeGraceMs: 60_000 } });
    const spool = await stopped(rig);
    await rename(`${spool}.cast`, `${spool}.aside`);
    // a link to itself cannot be opened, not even by root
    await symlink(`${spool}.cast`, `${spool}.cast`);
    const registry = new Registry();
    await using again = await rig.restart({ registry, timing: TIMING });
    const [listed] = await again.list();
    expect(listed).toMatchObject({
      state: 'damaged',
      bytes: 0,
      problem: 'its spool cannot be read: ELOOP',
    });
    expect(await readFile(`${spool}.notes`, 'utf8')).toContain('"meta"');
    expect(await registry.getSingleMetricAsString('tailcast_recorder_sessions')).toContain(
      'state="unreadable"} 1',
    );
    // the file is replaced atomically, because the recorder must never find a spool without its cast
    await rename(`${spool}.aside`, `${spool}.cast`);
    const recovered = await until(async () =>
      (await again.list()).find(({ state }) => state === 'interrupted'),
    );
    expect((await again.get(`/api/v1/recordings/${recovered.id}/cast`)).body).toBe(
      `${STORED_HEADER}[1,"o","x"]\n`,
    );
  });

  it.each([
    [
      'journal',
      (spool: string) => writeFile(`${spool}.notes`, 'not a journal\n'),
      'the journal does not belong',
    ],
    ['empty journal', (spool: string) => writeFile(`${spool}.notes`, ''), 'the journal does not belong'],
    [
      'header',
      async (spool: string) => {
        const cast = await readFile(`${spool}.cast`, 'utf8');
        await writeFile(`${spool}.cast`, cast.replace('{"version":2', '{"version":!'));
      },
      'the header cannot be read',
    ],
    [
      'cast (overwritten with zeros)',
      async (spool: string) => {
        const cast = await readFile(`${spool}.cast`);
        await writeFile(`${spool}.cast`, cast.fill(0));
      },
      'the cast does not begin with a header',
    ],
  ])(
    'is kept if its %s is damaged, and the log does not report it as empty',
    async (_name, damage, problem) => {
      await using rig = await createRig({ timing: { ...TIMING, resumeGraceMs: 60_000 } });
      const spool = await stopped(rig);
      await damage(spool);
      const before = await readFile(`${spool}.cast`, 'utf8');
      await using again = await rig.restart({ timing: TIMING });
      const [listed] = await again.list();
      expect(listed?.state).toBe('damaged');
      expect(listed?.problem).toContain(problem);
      await again.recorder.close();
      expect(await readFile(`${spool}.cast`, 'utf8')).toBe(before);
      const store = await createDiskStore(again.directory, { readOnly: true });
      const report = await verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() + 86_400_000 });
      expect(report.unfinished).toBe(1);
    },
  );
});
