/** Links, named pipes and folders that another program put into the directory of a store. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { lstat, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { createDiskFiles } from '../../../src/tsrecorder/store/disk-files.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { FinishedUpload, RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { createRig, HEADER, openUpload, until, uploadWhole } from '../recorder-rig.ts';
import { alertsFor, openReceiver } from '../search/alerts/webhook-receiver.ts';

const TIME = '2026-11-27T00:00:00.000000000Z';
const KEY = { nodeId: 'nEVIL', time: TIME };
const SECRET = 'a secret outside the store';

interface Bench {
  readonly root: string;
  readonly directory: string;
  readonly outside: string;
  readonly store: RecordingStore;
  readonly refused: readonly string[];
  upload(): Promise<FinishedUpload>;
}

async function createBench(): Promise<Bench> {
  const root = await mkdtemp(join(tmpdir(), 'tsrecorder-special-'));
  const [directory, outside] = [join(root, 'store'), join(root, 'outside')];
  await mkdir(join(directory, KEY.nodeId), { recursive: true });
  await mkdir(outside);
  await writeFile(join(outside, 'secret'), SECRET);
  const refused: string[] = [];
  const store = await createDiskStore(directory, { onRefused: (name) => refused.push(name) });
  const upload = async (): Promise<FinishedUpload> => {
    const castPath = join(root, 'spooled.cast');
    await writeFile(castPath, HEADER);
    const castBytes = HEADER.length;
    return {
      key: KEY,
      castPath,
      castBytes,
      notesPath: undefined,
      notesBytes: 0,
      sidecar: '{}',
      sessionMark: undefined,
    };
  };
  return { root, directory, outside, store, refused, upload };
}

async function special(path: string, kind: string, target: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  if (kind === 'a link') await symlink(target, path);
  else if (kind === 'a pipe') execFileSync('mkfifo', [path]);
  else await mkdir(join(path, 'inside'), { recursive: true });
}

const read = async (store: RecordingStore): Promise<string> =>
  Buffer.concat(await Array.fromAsync(store.read(KEY, 'cast'))).toString();

describe.each(['a link', 'a pipe', 'a folder'])('%s in a store directory', (kind) => {
  it('is no recording', async () => {
    const { directory, outside, store, refused } = await createBench();
    await special(join(directory, KEY.nodeId, `${TIME}.cast`), kind, join(outside, 'secret'));
    expect(await store.stat(KEY, 'cast')).toBeUndefined();
    await expect(read(store)).rejects.toMatchObject({ code: 'RECORDING_UNKNOWN' });
    expect(refused).toEqual([`nEVIL/${TIME}.cast`]);
  });

  it('is no document, and is set aside when one is written', async () => {
    const { directory, outside, store, refused } = await createBench();
    for (const name of ['.alerts/put', '.alerts/claim', '.alerts/replace']) {
      await special(join(directory, name), kind, join(outside, 'secret'));
      expect(await store.readDocument(name)).toBeUndefined();
    }
    expect(await store.listDocuments('.alerts/')).toEqual([]);
    expect(refused).toEqual(['.alerts/put', '.alerts/claim', '.alerts/replace']);
    await store.putDocument('.alerts/put', Buffer.from('1'));
    expect(await store.claimDocument('.alerts/claim', Buffer.from('2'))).toBe(true);
    await store.replaceDocument('.alerts/replace', Buffer.from('3'));
    const names = await store.listDocuments('.alerts/');
    expect(names).toEqual(['.alerts/claim', '.alerts/put', '.alerts/replace']);
    const contents = await Promise.all(names.map((name) => store.readDocument(name)));
    expect(contents.map(String)).toEqual(['2', '1', '3']);
    expect(await readFile(join(outside, 'secret'), 'utf8')).toBe(SECRET);
  });

  it('does not prevent a recording from being stored', async () => {
    const { directory, outside, store, upload } = await createBench();
    for (const suffix of ['cast', 'json'])
      await special(join(directory, KEY.nodeId, `${TIME}.${suffix}`), kind, join(outside, 'secret'));
    await store.finish(await upload());
    expect(await read(store)).toBe(HEADER);
    expect(await store.stat(KEY, 'sidecar')).toMatchObject({ bytes: 2 });
    expect(await readFile(join(outside, 'secret'), 'utf8')).toBe(SECRET);
  });
});

describe('a linked folder in a store directory', () => {
  it('is not listed, read, written or removed from', async () => {
    const { directory, outside, store, refused, upload } = await createBench();
    await rm(join(directory, KEY.nodeId), { recursive: true });
    await writeFile(join(outside, `${TIME}.cast`), HEADER);
    await symlink(outside, join(directory, KEY.nodeId));
    await symlink(outside, join(directory, '.alerts'));
    await symlink(outside, join(directory, '.sessions'));
    expect(await store.list()).toEqual([]);
    expect(await store.stat(KEY, 'cast')).toBeUndefined();
    await expect(read(store)).rejects.toMatchObject({ code: 'RECORDING_UNKNOWN' });
    await expect(store.finish(await upload())).rejects.toMatchObject({ code: 'STORE_FAILED' });
    await store.remove(KEY);
    expect(await store.readDocument('.alerts/secret')).toBeUndefined();
    expect(await store.listDocuments('.alerts/')).toEqual([]);
    await expect(store.putDocument('.alerts/new', Buffer.from(''))).rejects.toMatchObject({
      code: 'STORE_FAILED',
    });
    await store.removeDocument('.alerts/secret');
    expect((await readdir(outside)).toSorted()).toEqual([`${TIME}.cast`, 'secret'].toSorted());
    expect(refused).toContain(KEY.nodeId);
    expect(refused).toContain('.alerts');
    expect(new Set(refused).size).toBe(refused.length);
  });

  it('may be the store directory itself', async () => {
    const { root, directory, upload } = await createBench();
    await symlink(directory, join(root, 'linked'));
    const store = await createDiskStore(join(root, 'linked'));
    await store.finish(await upload());
    expect(await read(store)).toBe(HEADER);
    expect(await store.list()).toHaveLength(1);
  });
});

describe('a recorder', () => {
  it('does not serve its private key through a link', async () => {
    await using rig = await createRig({ timing: { listRefreshMs: 0 } });
    await mkdir(join(rig.directory, 'nEVIL'), { recursive: true });
    const link = join(rig.directory, 'nEVIL', `${TIME}.cast`);
    await symlink(join(rig.spool, 'evidence', 'key.pem'), link);
    expect(await readFile(link, 'utf8')).toContain('PRIVATE KEY');
    expect(await rig.list()).toEqual([]);
    const { status, body } = await rig.get(`/api/v1/recordings/nEVIL_${TIME}/cast`);
    expect(status).toBe(404);
    expect(body).not.toContain('PRIVATE KEY');
  });

  it('lists and records while the store contains named pipes', async () => {
    await using rig = await createRig({ timing: { listRefreshMs: 0 } });
    await mkdir(join(rig.directory, 'nEVIL'), { recursive: true });
    for (let second = 0; second < 6; second += 1) {
      const path = join(rig.directory, 'nEVIL', TIME.replace('00.0', `0${second}.0`));
      await writeFile(`${path}.cast`, HEADER);
      execFileSync('mkfifo', [`${path}.json`]);
    }
    expect(await rig.list()).toHaveLength(6);
    await uploadWhole(rig.recorder, HEADER);
    expect(await rig.list()).toHaveLength(7);
  });

  it('delivers an alert although a named pipe has the name of its mark', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    await using rig = await createRig({ searchText: 'all', alerts: alertsFor(receiver.url, 'needle') });
    const upload = openUpload(rig.recorder);
    upload.write(`${HEADER}[1,"o","needle\\r\\n"]\n`);
    const { data } = await until(async () => receiver.received[0]);
    const path = join(rig.directory, '.alerts', `${String(data.recording['id'])}.${data.id}.told`);
    await mkdir(dirname(path), { recursive: true });
    execFileSync('mkfifo', [path]);
    receiver.answer = 204;
    const mark = await until(async () => {
      const found = await lstat(path).catch(() => undefined);
      return found?.isFile() === true ? found : undefined;
    });
    expect(mark.size).toBeGreaterThan(0);
    upload.close();
  });
});

describe('a folder that another program replaces by a link', () => {
  it('while a file is written gets nothing, and nothing is removed there', async () => {
    const { root, directory, outside } = await createBench();
    const folder = join(directory, KEY.nodeId);
    const files = createDiskFiles(directory, () => undefined);
    await writeFile(join(folder, 'old'), 'inside');
    await writeFile(join(outside, 'old'), 'outside');
    await files.inFolder(folder, async (held) => {
      await rename(folder, join(root, 'moved'));
      await symlink(outside, folder);
      await writeFile(join(held, 'new'), 'x');
      await rm(join(held, 'old'));
    });
    expect((await readdir(outside)).toSorted()).toEqual(['old', 'secret']);
    expect(await readdir(join(root, 'moved'))).toEqual(['new']);
    await expect(files.inFolder(folder, () => Promise.resolve())).rejects.toThrow('not a directory');
  });

  it('again and again never shows a file from outside the store', async () => {
    const { root, directory, outside, store } = await createBench();
    const stop = new Int32Array(new SharedArrayBuffer(4));
    const name = `${TIME}.cast`;
    await writeFile(join(directory, KEY.nodeId, name), 'inside');
    await writeFile(join(outside, name), SECRET);
    await symlink(outside, join(root, 'link'));
    const swapping = new Worker(
      `const { renameSync } = require('node:fs');
       const { folder, link, aside, flag } = require('node:worker_threads').workerData;
       while (Atomics.load(flag, 0) === 0) {
         renameSync(folder, aside); renameSync(link, folder);
         renameSync(folder, link); renameSync(aside, folder);
       }`,
      {
        eval: true,
        workerData: {
          folder: join(directory, KEY.nodeId),
          link: join(root, 'link'),
          aside: join(root, 'aside'),
          flag: stop,
        },
      },
    );
    const seen = new Set<string>();
    try {
      for (let count = 0; count < 3000; count++) seen.add(await read(store).catch(() => 'nothing'));
    } finally {
      Atomics.store(stop, 0, 1);
      await once(swapping, 'exit');
    }
    expect(seen).toContain('inside');
    expect(seen).not.toContain(SECRET);
  });
});
