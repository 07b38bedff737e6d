import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { createRig, HEADER, openUpload, STORED_HEADER, until, uploadWhole } from '../recorder-rig.ts';

const BODY = `${HEADER}[1,"o","x"]\n`;

describe('storing finished recordings', () => {
  it('is retried until it works, while the recording is served from the spool', async () => {
    const registry = new Registry();
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-store-'));
    const disk = await createDiskStore(directory);
    let failures = 3;
    const finish: typeof disk.finish = async (upload) => {
      failures -= 1;
      if (failures >= 0) throw new TailcastError('STORE_FAILED', 'EIO');
      await disk.finish(upload);
    };
    const timing = { storeRetryMs: 10, maxStoreRetryMs: 15, listRefreshMs: 0 };
    await using rig = await createRig({ store: { ...disk, finish }, registry, timing }, directory);
    const upload = await uploadWhole(rig.recorder, BODY);
    expect(upload.acks.at(-1)).toEqual({ ack: BODY.length });
    const [waiting, ...others] = await rig.list();
    expect(others).toEqual([]);
    expect(waiting?.state).toBe('completed');
    const path = `/api/v1/recordings/${waiting!.id}/cast`;
    expect((await rig.get(path)).body).toBe(`${STORED_HEADER}[1,"o","x"]\n`);
    await until(async () =>
      (await readdir(`${directory}.spool`)).some((name) => name.endsWith('.notes')) ? undefined : true,
    );
    // the file disappears before the recorder gets the result
    await until(async () => ((await rig.list())[0]?.durationSeconds === undefined ? undefined : true));
    expect(await rig.list()).toEqual([{ ...waiting, durationSeconds: 1, trust: 'verified' }]);
    expect((await rig.get(path)).body).toBe(`${STORED_HEADER}[1,"o","x"]\n`);
    const retries = await registry.getSingleMetricAsString('tailcast_recorder_store_retries_total');
    expect(retries).toContain(' 3');
  });

  it('never overwrites a recording: its key stays with its owner', async () => {
    await using rig = await createRig({
      clock: { now: () => 1_785_325_858_000, monotonic: () => performance.now() },
    });
    const store = await createDiskStore(rig.directory);
    const key = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T11:50:58.000000000Z' };
    // stores another recording under the key that the next upload would get
    await using other = await createRig();
    await uploadWhole(other.recorder, HEADER.replace('sh -i', 'older'));
    const [older] = await other.list();
    const castPath = join(other.directory, older!.key);
    await store.finish({
      key,
      castPath,
      castBytes: older!.bytes,
      notesPath: undefined,
      notesBytes: 0,
      sessionMark: undefined,
      sidecar: '{}',
    });
    await uploadWhole(rig.recorder, BODY);
    const ids = (await rig.list()).map(({ id, command }) => [id, command]);
    expect(ids).toEqual([
      ['nGATE1CNTRL_2026-07-29T11:50:58.000000001Z', 'sh -i'],
      ['nGATE1CNTRL_2026-07-29T11:50:58.000000000Z', 'older'],
    ]);
  });

  it('finds a free key soon if an attacker has occupied the next million keys', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-store-'));
    const disk = await createDiskStore(directory);
    const clock = { now: () => 1_785_325_858_000, monotonic: () => performance.now() };
    const tried: string[] = [];
    const finish: typeof disk.finish = async (upload) => {
      tried.push(upload.key.time);
      if (tried.length > 1000) throw new TailcastError('STORE_FAILED', 'too many attempts');
      if (upload.key.time < '2026-07-29T11:50:58.001Z') throw new TailcastError('UPLOAD_CONFLICT');
      await disk.finish(upload);
    };
    await using rig = await createRig({ store: { ...disk, finish }, clock }, directory);
    await uploadWhole(rig.recorder, BODY);
    expect(await rig.list()).toMatchObject([{ state: 'completed', trust: 'verified' }]);
    expect(tried.length).toBeLessThan(1000);
    expect(new Set(tried).size).toBe(tried.length);
  });

  it('keeps the key if an earlier attempt stored the recording with another sidecar', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-store-'));
    const disk = await createDiskStore(directory);
    const keys: string[] = [];
    const finish: typeof disk.finish = async (upload) => {
      keys.push(upload.key.time);
      if (keys.length > 1) return disk.finish({ ...upload, sidecar: '{"endedAt":"later"}' });
      await disk.finish(upload);
      throw new TailcastError('STORE_FAILED', 'EIO');
    };
    const timing = { storeRetryMs: 10, maxStoreRetryMs: 15, listRefreshMs: 0 };
    await using rig = await createRig({ store: { ...disk, finish }, timing }, directory);
    await uploadWhole(rig.recorder, BODY);
    await until(async () =>
      (await readdir(`${directory}.spool`)).some((name) => name.endsWith('.notes')) ? undefined : true,
    );
    expect(keys).toEqual([keys[0], keys[0]]);
    expect(await rig.list()).toMatchObject([{ trust: 'verified' }]);
  });

  it('keeps the key if the recorder restarts before it has removed the spool', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-store-'));
    const disk = await createDiskStore(directory);
    const body = `${HEADER}{"kind":"raw","base64":"MQ=="}\n[1,"o","x"]\n{"kind":"raw","base64":"MQ=="}\n`;
    const finished = Promise.withResolvers<void>();
    const finish: typeof disk.finish = async (upload) => {
      await disk.finish(upload);
      finished.resolve();
      throw new TailcastError('STORE_FAILED', 'EIO');
    };
    const killed = await createRig({ store: { ...disk, finish } }, directory);
    await uploadWhole(killed.recorder, body);
    await finished.promise;
    await killed.recorder.close();
    const names = (await readdir(join(directory, 'nGATE1CNTRL'))).toSorted();
    expect(names).toHaveLength(3);
    expect((await readdir(`${directory}.spool`)).some((name) => name.endsWith('.notes'))).toBe(true);
    await using rig = await createRig({ timing: { listRefreshMs: 0 } }, directory);
    await until(async () =>
      (await readdir(`${directory}.spool`)).some((name) => name.endsWith('.notes')) ? undefined : true,
    );
    expect((await readdir(join(directory, 'nGATE1CNTRL'))).toSorted()).toEqual(names);
    expect(await rig.list()).toMatchObject([{ trust: 'verified' }]);
  });

  it.each([
    ['sidecar', 'json', '{"forged":true}'],
    ['cast without a sidecar', 'cast', `${STORED_HEADER}[1,"o","x"]\n`],
  ])(
    'stores its own sidecar if another program has written a %s with its key',
    async (_, suffix, content) => {
      await using rig = await createRig({
        clock: { now: () => 1_785_325_858_000, monotonic: () => performance.now() },
      });
      const folder = join(rig.directory, 'nGATE1CNTRL');
      await mkdir(folder, { recursive: true });
      await writeFile(join(folder, `2026-07-29T11:50:58.000000000Z.${suffix}`), content);
      await uploadWhole(rig.recorder, BODY);
      expect((await rig.list()).filter(({ trust }) => trust === 'verified')).toMatchObject([
        { state: 'completed', bytes: STORED_HEADER.length + '[1,"o","x"]\n'.length },
      ]);
    },
  );

  it('works from a spool on another file system', async (context) => {
    const spoolDirectory = await mkdtemp('/dev/shm/tsrecorder-').catch(() => undefined);
    const here = await stat(tmpdir());
    if (spoolDirectory === undefined || (await stat(spoolDirectory)).dev === here.dev) {
      context.skip('no second file system here');
      return;
    }
    await using rig = await createRig({ spoolDirectory });
    await uploadWhole(rig.recorder, BODY);
    const [recording] = await rig.list();
    expect((await rig.get(`/api/v1/recordings/${recording!.id}/cast`)).body).toBe(
      `${STORED_HEADER}[1,"o","x"]\n`,
    );
    expect((await readdir(join(rig.directory, 'nGATE1CNTRL'))).toSorted()).toEqual(
      ['.cast', '.json'].map((suffix) => recording!.id.slice('nGATE1CNTRL_'.length) + suffix),
    );
    expect(await readdir(spoolDirectory)).toEqual(['events', 'evidence', 'format.json', 'owner']);
    await rm(spoolDirectory, { recursive: true });
  });

  it('is refused for more sessions than allowed', async () => {
    await using rig = await createRig({ limits: { maxSessions: 1 } });
    const first = openUpload(rig.recorder);
    expect((await first.headers)[':status']).toBe(200);
    const second = openUpload(rig.recorder);
    expect((await second.headers)[':status']).toBe(503);
    second.close();
    first.write(BODY);
    first.end();
    await first.over;
    const third = await uploadWhole(rig.recorder, BODY);
    expect(third.acks.at(-1)).toEqual({ ack: BODY.length });
  });
});
