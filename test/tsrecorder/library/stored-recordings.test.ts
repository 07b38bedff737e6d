/** Recordings that a recorder stores itself reach the catalogue without a list of the store. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Catalog } from '../../../src/tsrecorder/library/catalog.ts';
import { createDescriber } from '../../../src/tsrecorder/library/describe-stored.ts';
import { createArchiveStore } from '../../../src/tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { recordingId, type RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import type {
  ObjectStat,
  ReadableStore,
  RecordingStore,
  StoredRecording,
} from '../../../src/tsrecorder/store/store.ts';
import { createRig, HEADER, until, uploadWhole, type Rig } from '../recorder-rig.ts';

/** A recorder whose archive has 50 recordings. `lists` counts the lists of its store. */
async function createCounted(): Promise<{ readonly rig: Rig; readonly lists: () => number }> {
  const root = await mkdtemp(join(tmpdir(), 'stored-recordings-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const directory = join(root, 'store');
  await mkdir(join(directory, 'nOTHER'), { recursive: true });
  for (let number = 0; number < 50; number += 1) {
    const time = `2026-01-01T00:00:00.${String(number).padStart(9, '0')}Z`;
    await writeFile(join(directory, 'nOTHER', `${time}.cast`), `${HEADER}[1,"o","text"]\n`);
  }
  let lists = 0;
  const disk = await createDiskStore(directory);
  const store = {
    ...disk,
    list: () => {
      lists += 1;
      return disk.list();
    },
  };
  // listings never expire, so the recorder lists the store only for other reasons
  const timing = { listRefreshMs: 1e9, resumeGraceMs: 20 };
  const rig = await createRig({ store, searchText: 'off', timing }, directory);
  await indexed(rig, 50);
  return { rig, lists: () => lists };
}

/** Resolves when the index has exactly `count` recordings. Only the index can list the oldest recordings. */
function indexed(rig: Rig, count: number): Promise<readonly string[]> {
  return until(async () => {
    const found = await rig.list('?sort=oldest&limit=500').catch(() => []);
    const { body } = await rig.get('/api/v1/search/facets?q=');
    return found.length === count && !body.includes('building') ? found.map(({ id }) => id) : undefined;
  });
}

it('20 stored sessions are listed at once, and the store is not listed for them', async () => {
  const { rig, lists } = await createCounted();
  await using _ = rig;
  const before = lists();
  const ids: string[] = [];
  for (let number = 0; number < 20; number += 1) {
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","text"]\n`);
    const [newest] = await rig.list('?limit=1');
    expect(ids).not.toContain(newest?.id);
    expect(newest).toMatchObject({ state: 'completed', source: { user: 'a@example.com' } });
    ids.push(newest?.id ?? '');
  }
  expect((await indexed(rig, 70)).slice(50)).toEqual(ids);
  expect(lists() - before).toBe(0);
});

describe('a catalogue', () => {
  const keyAt = (number: number): RecordingKey => ({
    nodeId: 'nA',
    time: `2026-01-01T00:00:00.${String(number).padStart(9, '0')}Z`,
  });
  const open = () => {
    const stored: StoredRecording[] = [];
    let lists = 0;
    let nowMs = 0;
    const store = {
      list: async () => {
        lists += 1;
        return [...stored];
      },
      stat: async () => ({ bytes: HEADER.length, modifiedAtMs: 0 }),
      async *read() {
        yield Buffer.from(HEADER);
      },
    } satisfies ReadableStore;
    const changed: string[] = [];
    const index = {
      pending: () => undefined,
      list: () => Promise.reject(new Error('this index lists nothing')),
      changed: (ids: readonly string[]) => void changed.push(...ids),
    };
    const options = { refreshMs: 1, maxCached: 10, now: () => nowMs, index: () => index };
    const catalog = new Catalog({ store, live: () => [], ...options });
    /** Adds a recording to the store, as another program would. */
    const place = (number: number, sessionMark?: string, stat?: ObjectStat): StoredRecording => {
      const more = { ...(sessionMark ? { sessionMark } : {}), ...(stat ? { stat } : {}) };
      const recording = { key: keyAt(number), hasSidecar: false, ...more };
      stored.push(recording);
      return recording;
    };
    const add = (number: number, sessionMark?: string): void => catalog.added(place(number, sessionMark));
    const count = async (scope?: readonly string[]): Promise<number> =>
      (await catalog.list({ limit: 5000 }, scope)).recordings.length;
    return { catalog, place, add, changed, count, lists: () => lists, expire: () => void (nowMs += 1) };
  };

  it('lists recordings that were stored since its listing, for viewers who may see them', async () => {
    const { add, count, lists } = open();
    add(1);
    expect(await count()).toBe(1);
    add(2);
    expect(await count()).toBe(2);
    expect(await count(['user:a@example.com'])).toBe(2);
    expect(await count(['user:b@example.com'])).toBe(0);
    expect(lists()).toBe(1);
  });

  it('lists its store again after 1000 of them', async () => {
    const { add, count, lists } = open();
    expect(await count()).toBe(0);
    for (let number = 0; number < 1000; number += 1) add(number);
    expect([await count(), lists()]).toEqual([1000, 1]);
    for (let number = 1000; number < 1500; number += 1) add(number);
    expect([await count(), lists()]).toEqual([1500, 2]);
  });

  it('reports to the index only recordings that other programs have stored', async () => {
    const { catalog, place, add, changed } = open();
    await catalog.stored();
    add(1);
    place(2);
    await catalog.stored();
    await catalog.stored();
    expect(changed).toEqual([recordingId(keyAt(2))]);
  });

  it('reports no own recordings if the list of the store contains sizes, as in a bucket', async () => {
    const { catalog, place, changed } = open();
    await catalog.stored();
    const { key, hasSidecar } = place(1, undefined, { bytes: 7, modifiedAtMs: 1 });
    catalog.added({ key, hasSidecar });
    await catalog.stored();
    await catalog.stored();
    expect(changed).toEqual([]);
  });

  it('lists its store again for a comparison, and for a session that may have other uploads', async () => {
    const { catalog, add, lists, expire } = open();
    expect(await catalog.stored()).toHaveLength(0);
    add(1);
    expect(await catalog.stored()).toHaveLength(1);
    add(2);
    add(3, 'f'.repeat(32));
    expire();
    const stateOf = async (number: number): Promise<unknown> =>
      (await catalog.lookUp(recordingId(keyAt(number))))?.recording.state;
    expect([await stateOf(1), await stateOf(2), lists()]).toEqual(['completed', 'completed', 2]);
    expect([await stateOf(3), lists()]).toEqual(['completed', 3]);
    catalog.removed();
    expect([await stateOf(1), lists()]).toEqual(['completed', 4]);
  });
});

it('a small recording is opened once to describe it', async () => {
  const root = await mkdtemp(join(tmpdir(), 'stored-recordings-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await mkdir(join(root, 'nA'));
  const key = { nodeId: 'nA', time: '2026-01-01T00:00:00.000000000Z' };
  await writeFile(join(root, `nA/${key.time}.cast`), `${HEADER}[1,"o","text"]\n`);
  const disk = await createDiskStore(root);
  const used: string[] = [];
  const store: RecordingStore = {
    ...disk,
    open: (...object) => {
      used.push('open');
      return disk.open?.(...object) ?? Promise.resolve(undefined);
    },
    stat: (...object) => {
      used.push('stat');
      return disk.stat(...object);
    },
    read: (...object) => {
      used.push('read');
      return disk.read(...object);
    },
  };
  const describeStored = createDescriber(createArchiveStore(store, 'plain'), 10);
  const described = await describeStored({ key, hasSidecar: false });
  expect(described?.entry.recording).toMatchObject({ state: 'completed', durationSeconds: 1 });
  expect(used).toEqual(['open']);
});
