/** Where the spool is when nobody says so, and what becomes of one that an earlier version left inside the store. */
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { describeProcess } from '../../../src/process-identity.ts';
import { placeSpool, spoolBeside, spoolInside } from '../../../src/tsrecorder/spool/spool-place.ts';
import { createRig, HEADER, openUpload, until, type Rig } from '../recorder-rig.ts';

const log = createSilentLogger();

let root: string;
let store: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'tsrecorder-place-'));
  store = join(root, 'recordings');
});
afterEach(() => rm(root, { recursive: true, force: true }));

const exists = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined)) !== undefined;

/** A session that is open when its recorder ends. */
async function leaveSession(rig: Rig, name: string): Promise<void> {
  const upload = openUpload(rig.recorder, { 'tailcast-session': name });
  upload.stream.on('error', () => undefined);
  const body = `${HEADER.replace('sh -i', name)}[0,"o","${name}"]\n`;
  upload.write(body);
  await upload.ack(({ ack }) => ack === body.length);
  await rig.recorder.close();
}

describe('the place of the spool', () => {
  it('is beside the store', async () => {
    await expect(placeSpool(store, log)).resolves.toEqual({ directory: `${store}.spool`, left: undefined });
    await expect(placeSpool(`${store}/`, log)).resolves.toMatchObject({ directory: `${store}.spool` });
    expect(await readdir(store)).toEqual([]);
  });

  it('is inside of a store that is a volume of its own, and what is there stays', async (context) => {
    await mkdir(store);
    try {
      execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', store], { stdio: 'ignore' });
    } catch {
      context.skip('a file system cannot be mounted here');
    }
    try {
      await mkdir(spoolInside(store));
      await expect(placeSpool(store, log)).resolves.toEqual({
        directory: spoolInside(store),
        left: undefined,
      });
      expect(await exists(spoolBeside(store))).toBe(false);
    } finally {
      execFileSync('umount', [store]);
    }
  });

  it('is not taken from a process that lives', async () => {
    const worker = join(spoolInside(store), 'worker-1');
    await mkdir(worker, { recursive: true });
    await writeFile(join(worker, 'owner'), await describeProcess(process.pid));
    await expect(placeSpool(store, log)).rejects.toThrow(/in use by process/);
    expect(await exists(spoolBeside(store))).toBe(false);
  });

  it('is one place for processes that start at once', async () => {
    await mkdir(join(spoolInside(store), 'evidence'), { recursive: true });
    const places = await Promise.all([1, 2, 3].map(() => placeSpool(store, log)));
    expect(new Set(places.map(({ directory }) => directory))).toEqual(new Set([spoolBeside(store)]));
    expect(await readdir(spoolBeside(store))).toEqual(['evidence']);
    expect(await exists(spoolInside(store))).toBe(false);
  });
});

describe('a spool that an earlier version left inside the store', () => {
  it('is taken over at the start, with its sessions, its log and its key', async () => {
    const before = await createRig({ spoolDirectory: spoolInside(store) }, store);
    await leaveSession(before, 'one');
    const files = await readdir(spoolInside(store), { recursive: true });
    await using after = await createRig({ timing: { resumeGraceMs: 60_000, listRefreshMs: 0 } }, store);
    expect(await after.list()).toMatchObject([{ command: 'one', state: 'open' }]);
    expect(await exists(spoolInside(store))).toBe(false);
    const taken = await readdir(spoolBeside(store), { recursive: true });
    expect(taken).toEqual(expect.arrayContaining(files.filter((name) => name !== 'owner')));
    expect(await readdir(join(store, '.evidence', 'logs'))).toHaveLength(1);
  });

  it('is settled when there is one beside as well', async () => {
    const before = await createRig({}, store);
    await leaveSession(before, 'beside');
    await rename(spoolBeside(store), join(root, 'kept'));
    const older = await createRig({ spoolDirectory: spoolInside(store) }, store);
    await leaveSession(older, 'inside');
    await rename(join(root, 'kept'), spoolBeside(store));
    await using after = await createRig({ timing: { resumeGraceMs: 60_000, listRefreshMs: 0 } }, store);
    await until(async () => ((await exists(spoolInside(store))) ? undefined : true));
    const sessions = (await after.list()).map(({ command, state }) => `${command} ${state}`);
    expect(sessions.toSorted()).toEqual(['beside open', 'inside interrupted']);
  });
});
