import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { changeHold } from '../../../src/tsrecorder/evidence/holds.ts';
import { TailcastError } from '../../../src/errors.ts';
import { openEvidence } from '../../../src/tsrecorder/evidence/open-evidence.ts';
import type { SessionEvidence } from '../../../src/tsrecorder/evidence/session-evidence.ts';
import { verifyStore } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import {
  applyRetention,
  planStoreRetention,
  startRetention,
  type RetentionOptions,
} from '../../../src/tsrecorder/retention/retention-run.ts';
import {
  planRetention,
  type KeptRecording,
  type RetentionPolicy,
} from '../../../src/tsrecorder/retention/retention.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { ALERTS_FOLDER, alertMarkName } from '../../../src/tsrecorder/store/alert-marks.ts';
import { recordingId, type RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import type { ObjectKind, RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import type { ListedRecording } from '../../../src/wire/recorder-api/recording.ts';
import { turnsDuring } from '../../support/loop-turns.ts';
import {
  createRig,
  HEADER,
  holdSigner,
  openUpload,
  request,
  until,
  uploadWhole,
  type Rig,
} from '../recorder-rig.ts';

const recording = (id: string, startedAtMs: number, bytes: number): KeptRecording => ({
  id,
  startedAtMs,
  storedAtMs: startedAtMs,
  bytes,
});

async function newest(rig: Rig): Promise<ListedRecording> {
  const [recording] = await rig.list();
  if (recording === undefined) throw new Error('the store is empty');
  return recording;
}

const NO_EVIDENCE: RetentionOptions['evidence'] = {
  removing: async () => undefined,
  removingDocuments: async () => undefined,
  holding: async () => undefined,
  holds: new Map(),
};

/** Opens the evidence of a closed recorder. */
async function openEvidenceOf(rig: Rig): Promise<SessionEvidence> {
  return openEvidence({
    store: await createDiskStore(rig.directory),
    spoolDirectory: `${rig.directory}.spool`,
    keyFile: undefined,
    nowMs: Date.now,
    log: createSilentLogger(),
    publishMs: 1,
    markMs: 1000,
    markAllMs: 1000,
    witnessMs: 1000,
    onFailure: () => undefined,
  });
}

/** Plans retention. The user of a recording is the part of its id after `-`. */
const plan = (
  recordings: readonly KeptRecording[],
  holds: ReadonlySet<string>,
  policy: RetentionPolicy,
  nowMs: number,
): ReturnType<typeof planRetention> =>
  planRetention(recordings, holds, policy, nowMs, async (all) =>
    all.map(({ id, bytes, storedAtMs }) => ({ user: id.split('-')[1] ?? '', bytes, endedAtMs: storedAtMs })),
  );

describe('a retention plan', () => {
  const all = [recording('c', 300, 30), recording('a', 100, 10), recording('b', 200, 20)];
  const ids = (list: readonly { readonly id: string }[]) => list.map(({ id }) => id);

  it('keeps everything without limits', async () => {
    expect(await plan(all, new Set(), {}, 1000)).toEqual({
      remove: [],
      held: [],
      keptBytes: 60,
      overQuota: false,
    });
  });

  it('removes recordings that are older than the limit, and keeps those that are exactly as old', async () => {
    expect(ids((await plan(all, new Set(), { maxAgeMs: 800 }, 1000)).remove)).toEqual(['a']);
    expect(ids((await plan(all, new Set(), { maxAgeMs: 799 }, 1000)).remove)).toEqual(['a', 'b']);
  });

  it('removes the oldest recordings until the rest fits', async () => {
    const made = await plan(all, new Set(), { maxBytes: 50 }, 1000);
    expect(made).toMatchObject({ remove: [{ id: 'a', reason: 'quota' }], keptBytes: 50 });
    expect(ids((await plan(all, new Set(), { maxBytes: 49 }, 1000)).remove)).toEqual(['a', 'b']);
  });

  it('removes recordings with equal start times by name, in any order of input', async () => {
    const same = ['b', 'c', 'a'].map((id) => recording(id, 100, 10));
    expect(
      ids((await plan([...same, recording('0', 200, 10)], new Set(), { maxBytes: 20 }, 1000)).remove),
    ).toEqual(['a', 'b']);
  });

  it('is within its limit if it fills it exactly', async () => {
    expect((await plan(all, new Set(['a', 'b', 'c']), { maxBytes: 60 }, 1000)).overQuota).toBe(false);
    expect((await plan(all, new Set(['a', 'b', 'c']), { maxBytes: 59 }, 1000)).overQuota).toBe(true);
  });

  it('never removes held recordings, and reports that the limit cannot be kept', async () => {
    const made = await plan(all, new Set(['c', 'a']), { maxAgeMs: 0, maxBytes: 5 }, 1000);
    expect(ids(made.remove)).toEqual(['b']);
    expect(ids(made.held)).toEqual(['a', 'c']);
    expect(made).toMatchObject({ keptBytes: 40, overQuota: true });
  });

  it('keeps its limits for random recordings', async () => {
    const recordings = fc.uniqueArray(
      fc.record({
        id: fc.string(),
        startedAtMs: fc.nat(1000),
        storedAtMs: fc.constant(0),
        bytes: fc.nat(100),
      }),
      {
        selector: ({ id }) => id,
      },
    );
    await fc.assert(
      fc.asyncProperty(recordings, fc.nat(1000), fc.nat(2000), async (kept, maxAgeMs, maxBytes) => {
        const made = await plan(kept, new Set(), { maxAgeMs, maxBytes }, 1000);
        const gone = new Set(ids(made.remove));
        const left = kept.filter(({ id }) => !gone.has(id));
        expect(left.every(({ startedAtMs }) => 1000 - startedAtMs <= maxAgeMs)).toBe(true);
        expect(left.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(made.keptBytes);
        expect(made.keptBytes).toBeLessThanOrEqual(maxBytes);
      }),
    );
  });

  it('removes the oldest recordings of the user with the most bytes, user by user', async () => {
    const flood = Array.from({ length: 5 }, (_, at) => recording(`${at}-mallory`, 500 + at, 100));
    const early = [recording('0-alice', 1, 120), recording('0-bob', 2, 90)];
    const made = await plan([...flood, ...early], new Set(), { maxBytes: 300 }, 1000);
    expect(ids(made.remove)).toEqual(['0-mallory', '1-mallory', '2-mallory', '3-mallory', '0-alice']);
    const held = await plan([...flood, ...early], new Set(['0-mallory']), { maxBytes: 400 }, 1000);
    expect([ids(held.held), ids(held.remove)]).toEqual([
      ['0-mallory'],
      ['1-mallory', '2-mallory', '3-mallory', '4-mallory'],
    ]);
  });

  it('never removes a young recording because of the size, even if its session started long ago', async () => {
    const old = { ...recording('old', 100, 10), storedAtMs: 900 };
    const policy = { maxBytes: 0, minAgeMs: 101 };
    expect(await plan([old], new Set(), policy, 1000)).toMatchObject({ remove: [], overQuota: true });
    expect(await plan([old], new Set(), policy, 1001)).toMatchObject({
      remove: [{ id: 'old' }],
      overQuota: false,
    });
    expect(await plan([old], new Set(), { maxAgeMs: 1, minAgeMs: 500 }, 1000)).toMatchObject({
      remove: [{ reason: 'age' }],
    });
  });

  it('removes unsigned recordings first, and no signed recording because of them', async () => {
    const forged = Array.from({ length: 3 }, (_, at) => recording(`forged${at}`, 900 + at, 100));
    const signed = [recording('0-alice', 1, 60), recording('0-bob', 2, 40)];
    const proven = (maxBytes: number, holds: readonly string[] = [], minAgeMs = 0): ReturnType<typeof plan> =>
      planRetention([...signed, ...forged], new Set(holds), { maxBytes, minAgeMs }, 1000, async (kept) =>
        kept.map(({ id, bytes, storedAtMs }) => {
          const user = id.split('-')[1];
          return user === undefined ? undefined : { user, bytes, endedAtMs: storedAtMs };
        }),
      );
    expect((await proven(300)).remove).toMatchObject([{ id: 'forged0', reason: 'unverified' }]);
    expect(ids((await proven(100)).remove)).toEqual(['forged0', 'forged1', 'forged2']);
    expect(ids((await proven(99)).remove)).toEqual(['forged0', 'forged1', 'forged2', '0-alice']);
    // a legal hold or the minimum age also protects unverified recordings, and no other recording is removed in their
    // place
    expect(await proven(100, ['forged1'])).toMatchObject({
      remove: [{ id: 'forged0' }, { id: 'forged2' }],
      held: [{ id: 'forged1', reason: 'unverified' }],
      keptBytes: 200,
      overQuota: false,
    });
    expect(await proven(100, [], 500)).toMatchObject({ remove: [], keptBytes: 400, overQuota: false });
    // the time in a forged name has no effect
    const future = { ...recording('forged', 1e6, 100), storedAtMs: 100 };
    const late = await planRetention([future], new Set(), { maxBytes: 0, minAgeMs: 500 }, 1000, async () => [
      undefined,
    ]);
    expect(ids(late.remove)).toEqual(['forged']);
  });

  it('removes recordings only of users with more bytes than all users who keep everything', async () => {
    const users = fc.array(fc.record({ user: fc.nat(4), bytes: fc.integer({ min: 1, max: 50 }) }), {
      maxLength: 40,
    });
    await fc.assert(
      fc.asyncProperty(users, fc.nat(500), async (list, maxBytes) => {
        const recordings = list.map(({ user, bytes }, at) => recording(`${at}-${user}`, at, bytes));
        const gone = new Set(ids((await plan(recordings, new Set(), { maxBytes }, 1000)).remove));
        const left = new Map<string, number>();
        for (const { id, bytes } of recordings) {
          const user = id.split('-')[1] ?? '';
          left.set(user, (left.get(user) ?? 0) + (gone.has(id) ? 0 : bytes));
        }
        for (const { id, bytes } of recordings) {
          if (!gone.has(id)) continue;
          // each removed recording must belong to the user who has the most bytes at that time
          const last = recordings.findLast(
            (other) => gone.has(other.id) && other.id.endsWith(`-${id.split('-')[1]}`),
          );
          const before = (left.get(id.split('-')[1] ?? '') ?? 0) + (last?.bytes ?? bytes);
          expect(before).toBeGreaterThanOrEqual(Math.max(...left.values()));
        }
      }),
    );
  });
});

describe('retention of a store of many recordings', () => {
  const nodeId = 'nA';
  const times = Array.from({ length: 20_000 }, (_, at) =>
    new Date(Date.parse('2026-02-03T04:05:06Z') + at * 1000).toISOString(),
  );
  const many = times.map((time) => ({ key: { nodeId, time }, hasSidecar: false }));
  const nowMs = Date.parse('2026-03-03T04:05:06Z');
  const alert = alertMarkName(
    recordingId({ nodeId, time: times[0] ?? '' }),
    `alert_${'0'.repeat(32)}`,
    'told',
  );

  /** Creates a store with recordings of seven bytes each. The listing does not contain the sizes. */
  function storeOf(): { readonly store: RecordingStore; readonly looked: string[]; readonly gone: string[] } {
    const looked: string[] = [];
    const gone: string[] = [];
    const store = {
      list: async () => many,
      listDocuments: async (prefix: string) => (prefix === ALERTS_FOLDER ? [alert] : []),
      removeDocument: async (name: string) => void gone.push(name),
      async *read() {
        yield Buffer.from(HEADER);
      },
      stat: async (key: RecordingKey, kind: ObjectKind) => {
        looked.push(key.time);
        return kind === 'cast' ? { bytes: 7, modifiedAtMs: 0 } : undefined;
      },
      readDocument: async () => undefined,
      remove: async (key: RecordingKey) => void gone.push(key.time),
    };
    return { store: store as unknown as RecordingStore, looked, gone };
  }

  function apply(
    store: RecordingStore,
    policy: RetentionPolicy,
    evidence: Partial<RetentionOptions['evidence']> = {},
    onApplied: RetentionOptions['onApplied'] = () => undefined,
    isSigned = true,
  ): ReturnType<typeof applyRetention> {
    const options: RetentionOptions = {
      store,
      policy,
      evidence: { ...NO_EVIDENCE, ...evidence },
      trusted: new Map(),
      onUnprovenHolds: () => undefined,
      nowMs: () => nowMs,
      everyMs: 1,
      log: createSilentLogger(),
      onApplied,
      onFailure: () => undefined,
    };
    return applyRetention(
      options,
      isSigned ? async (some) => some.map(({ bytes }) => ({ user: 'a', bytes, endedAtMs: 0 })) : undefined,
    );
  }

  it('logs at most 100 removals before it removes the first of these recordings', async () => {
    const { store, gone } = storeOf();
    const maxAgeMs = nowMs - Date.parse(times[250] ?? '');
    const logged: number[] = [];
    const removing = async (some: readonly unknown[]): Promise<void> => {
      expect(gone).toHaveLength(logged.reduce((sum, count) => sum + count, 0));
      logged.push(some.length);
    };
    await apply(store, { maxAgeMs }, { removing });
    expect(logged).toEqual([100, 100, 50]);
    const remove = (): Promise<void> => Promise.reject(new Error('broken'));
    await expect(
      apply({ ...store, remove }, { maxAgeMs }, { removing: async (some) => void logged.push(some.length) }),
    ).rejects.toThrow('broken');
    expect(logged).toEqual([100, 100, 50, 100]);
  });

  it('logs at most 1000 removals of recordings without a trusted signature', async () => {
    const { store, gone } = storeOf();
    const logged: unknown[] = [];
    const reasons: string[] = [];
    const removing = async (some: readonly unknown[]): Promise<void> => void logged.push(...some);
    const report: RetentionOptions['onApplied'] = ({ remove }) =>
      void reasons.push(...remove.map(({ reason }) => reason));
    await apply(store, { maxAgeMs: nowMs - Date.parse(times[1500] ?? '') }, { removing }, report, false);
    expect(logged).toHaveLength(1000);
    await apply(store, { maxBytes: 7 * 19_900 }, { removing }, report, false);
    expect(logged).toHaveLength(1100);
    expect(reasons).toEqual(Array.from({ length: 1600 }, () => 'unverified'));
    expect(gone.filter((name) => name !== alert)).toHaveLength(1600);
  });

  it('reports the recordings that it removed before a failure', async () => {
    const { store } = storeOf();
    const remove = async (key: RecordingKey): Promise<void> => {
      if (key.time === times[2]) throw new Error('broken');
    };
    const removed: string[] = [];
    const applied = apply(
      { ...store, remove },
      { maxAgeMs: nowMs - Date.parse(times[5] ?? '') },
      {},
      (plan) => void removed.push(...plan.remove.map(({ id }) => id)),
    );
    await expect(applied).rejects.toThrow('broken');
    expect(removed).toEqual(times.slice(0, 2).map((time) => recordingId({ nodeId, time })));
  });

  it('lets the event loop turn, and without a size limit reads only recordings that it removes', async () => {
    const { store, looked, gone } = storeOf();
    const maxAgeMs = nowMs - Date.parse(times[10] ?? '');
    expect(await turnsDuring(() => apply(store, { maxAgeMs }))).toBeGreaterThanOrEqual(38);
    expect(gone).toEqual([...times.slice(0, 10), alert]);
    expect(new Set(looked)).toEqual(new Set(times.slice(0, 10)));
  });

  it('reads all sizes if there is a size limit, or if a caller needs them', async () => {
    const { store, gone } = storeOf();
    const maxBytes = 7 * 19_999;
    expect(await turnsDuring(() => apply(store, { maxBytes }))).toBeGreaterThanOrEqual(110);
    expect(gone).toEqual([times[0], alert]);
    const plan = await planStoreRetention(store, { maxAgeMs: 1 }, nowMs);
    expect([plan.remove.length, plan.remove.at(-1)?.bytes, plan.keptBytes]).toEqual([20_000, 7, 0]);
    expect((await planStoreRetention(store, {}, nowMs)).keptBytes).toBe(140_000);
  });
});

describe('retention of a recorder', () => {
  it('removes recordings and events, keeps held ones, and leaves tombstones that verification accepts', async () => {
    await using rig = await createRig();
    for (const command of ['one', 'two', 'three'])
      await uploadWhole(rig.recorder, HEADER.replace('sh -i', command));
    const body = '{"type":"kubernetes-api-request","timestamp":1785321882}';
    await request(rig.recorder, { method: 'POST', path: '/v2/event', body });
    const [, two, one] = await rig.list();
    const store = await createDiskStore(rig.directory);
    const signer = await holdSigner(rig);
    await changeHold(store, two!.id, { kind: 'held', reason: 'case 17' }, signer);
    await expect(
      changeHold(store, 'nX_2026-07-29T11:50:58Z', { kind: 'held', reason: 'none' }, signer),
    ).rejects.toThrow('no such recording');
    const later = { now: () => Date.now() + 10 * 86_400_000, monotonic: () => performance.now() };
    const policy = {
      clock: later,
      retention: { maxAgeMs: 86_400_000 },
      timing: { listRefreshMs: 0, retentionMs: 10 },
    };
    await using again = await rig.restart(policy);
    const left = await until(async () => {
      const found = await again.list();
      return found.length === 1 ? found : undefined;
    });
    expect(left.map(({ id }) => id)).toEqual([two!.id]);
    await until(async () => ((await store.listDocuments('events/')).length === 0 ? true : undefined));
    const node = join(again.directory, 'nGATE1CNTRL');
    expect((await readdir(node)).toSorted()).toEqual(
      ['.cast', '.json'].map((suffix) => two!.id.slice(12) + suffix),
    );
    await changeHold(store, two!.id, { kind: 'released', reason: 'closed' }, signer);
    await until(async () => ((await again.list()).length === 0 ? true : undefined));
    await again.recorder.close();
    const report = await verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() + 86_400_000 });
    expect(report.findings.filter(({ severity }) => severity === 'fault')).toEqual([]);
    expect(report.removed).toBe(3);
    expect(one!.id).not.toBe(two!.id);
  });
});

describe('a removal that fails', () => {
  const later = { now: () => Date.now() + 10 * 86_400_000, monotonic: () => performance.now() };
  const retention = { maxAgeMs: 86_400_000 };

  it('keeps the recording listed, and the next run removes all its files', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, `${HEADER}{"kind":"stream","name":"stderr"}\n[1,"o","x"]\n`);
    const { key } = await newest(rig);
    await rig.recorder.close();
    const sidecar = join(rig.directory, key.replace(/cast$/, 'json'));
    await rename(sidecar, `${sidecar}.moved`);
    await mkdir(sidecar);
    const store = await createDiskStore(rig.directory);
    const [listed] = await store.list();
    await expect(store.remove(listed!.key)).rejects.toMatchObject({ code: 'STORE_FAILED' });
    expect(await store.list()).toHaveLength(1);
    await rmdir(sidecar);
    await rename(`${sidecar}.moved`, sidecar);
    const keys = [(await holdSigner(rig)).key.public];
    await using again = await rig.restart({ clock: later, retention, timing: { retentionMs: 10 } });
    const node = join(rig.directory, 'nGATE1CNTRL');
    await until(async () => ((await readdir(node)).length === 0 ? true : undefined));
    await again.recorder.close();
    const report = await verifyStore({ store, keys, checkpoint: [], nowMs: Date.now() });
    expect(report.verdict).toBe('verified');
  });

  it.each([
    ['before', []],
    ['while', ['removal-pending', 'removed-while-held']],
  ])(
    'keeps a recording that is held %s its removal is logged, and verify accepts that',
    async (when, codes) => {
      await using rig = await createRig();
      for (const command of ['one', 'two']) await uploadWhole(rig.recorder, HEADER.replace('sh -i', command));
      const { id: held } = await newest(rig);
      await rig.recorder.close();
      const [store, signer] = [await createDiskStore(rig.directory), await holdSigner(rig)];
      const evidence = await openEvidenceOf(rig);
      const keys = [signer.key.public];
      const change = (kind: 'held' | 'released'): Promise<void> =>
        changeHold(store, held, { kind, reason: 'case 17' }, { ...signer, nowMs: Date.now() });
      let isFirst = true;
      const holdOnce = async (at: string): Promise<void> => {
        if (at !== when || !isFirst) return;
        isFirst = false;
        await change('held');
      };
      const options: RetentionOptions = {
        store,
        evidence: {
          ...evidence,
          async removing(removals) {
            await holdOnce('while');
            await evidence.removing(removals);
          },
        },
        trusted: signer.trusted,
        policy: { maxBytes: 0 },
        nowMs: Date.now,
        everyMs: 1,
        log: createSilentLogger(),
        onApplied: () => undefined,
        onUnprovenHolds: () => undefined,
        onFailure: () => undefined,
      };
      const apply = async (): Promise<readonly string[]> => {
        await applyRetention(options, async (kept) => {
          await holdOnce('before');
          return kept.map(({ bytes }) => ({ user: 'alice', bytes, endedAtMs: 0 }));
        });
        return (await store.list()).map(({ key }) => recordingId(key));
      };
      const verify = () => verifyStore({ store, keys, checkpoint: [], nowMs: Date.now() });
      expect(await apply()).toEqual([held]);
      const report = await verify();
      expect([report.verdict, report.findings.map(({ code }) => code)]).toEqual(['verified', codes]);
      const cast = join(rig.directory, `${held.replace('_', '/')}.cast`);
      const content = await readFile(cast);
      await writeFile(cast, HEADER);
      const faults = (await verify()).findings.filter(({ severity }) => severity === 'fault');
      expect(faults.map(({ code }) => code)).toEqual([
        'cast-changed',
        'recording-differs-from-log',
        ...codes.filter((code) => code === 'removed-while-held'),
      ]);
      await writeFile(cast, content);
      await change('released');
      expect(await apply()).toEqual([]);
      expect(await verify()).toMatchObject({ verdict: 'verified', findings: [], removed: 2 });
      await evidence.close();
    },
  );

  it('does not excuse a recording that was held afterwards and is missing', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'retention-'));
    const disk = await createDiskStore(directory);
    let isLogged = false;
    const remove = (): Promise<void> => {
      isLogged = true;
      return Promise.reject(new TailcastError('STORE_FAILED', 'EIO'));
    };
    await using rig = await createRig({}, directory);
    await uploadWhole(rig.recorder, HEADER);
    const { id } = await newest(rig);
    const timing = { retentionMs: 3_600_000 };
    await using again = await rig.restart({ store: { ...disk, remove }, clock: later, retention, timing });
    await until(async () => isLogged || undefined);
    await again.recorder.close();
    const signer = await holdSigner(again);
    const verify = () =>
      verifyStore({ store: disk, keys: [signer.key.public], checkpoint: [], nowMs: later.now() });
    expect((await verify()).findings.map(({ code }) => code)).toContain('removal-pending');
    await changeHold(disk, id, { kind: 'held', reason: 'case 17' }, { ...signer, nowMs: later.now() });
    expect((await verify()).findings.map(({ code }) => code)).not.toContain('removal-pending');
    await disk.remove((await disk.list())[0]!.key);
    expect((await verify()).findings).toMatchObject([{ code: 'recording-missing', recording: id }]);
  });

  it('is a notice, not a fault, if only the cast is left', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const { id, key } = await newest(rig);
    await rig.recorder.close();
    const [store, signer] = [await createDiskStore(rig.directory), await holdSigner(rig)];
    const verify = () => verifyStore({ store, keys: [signer.key.public], checkpoint: [], nowMs: Date.now() });
    await rm(join(rig.directory, key.replace(/cast$/, 'json')));
    expect((await verify()).verdict).toBe('failed');
    const evidence = await openEvidenceOf(rig);
    await evidence.removing([{ recording: id, reason: 'age', bytes: 1 }]);
    await evidence.close();
    const report = await verify();
    expect([report.verdict, report.findings.map(({ code }) => code)]).toEqual([
      'verified',
      ['removal-pending', 'removal-pending'],
    ]);
  });
});

describe('a removal during a verification', () => {
  it.each(['before', 'after'])('is a notice if it starts %s the recordings are listed', async (when) => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const { id, key } = await newest(rig);
    await rig.recorder.close();
    const [disk, signer] = [await createDiskStore(rig.directory), await holdSigner(rig)];
    const evidence = await openEvidenceOf(rig);
    const list = async (): ReturnType<typeof disk.list> => {
      const earlier = await disk.list();
      await evidence.removing([{ recording: id, reason: 'age', bytes: 1 }]);
      await rm(join(rig.directory, key.replace(/cast$/, 'json')));
      return when === 'after' ? earlier : disk.list();
    };
    const keys = [signer.key.public];
    const report = await verifyStore({ store: { ...disk, list }, keys, checkpoint: [], nowMs: Date.now() });
    await evidence.close();
    expect(report).toMatchObject({ verdict: 'verified', findings: [{ code: 'removal-pending' }] });
  });
});

describe('a recorder with a maximum store size', () => {
  const DAY_MS = 86_400_000;
  const later = { now: () => Date.now() + 3 * DAY_MS, monotonic: () => performance.now() };
  const by = (user: string, text: string): string =>
    `${HEADER.replace('a@example.com', user)}[1,"o",${JSON.stringify(text)}]\n`;

  it('removes recordings of the largest user, and keeps earlier recordings of other users', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, by('alice@example.com', 'early'));
    for (let count = 0; count < 5; count += 1)
      await uploadWhole(rig.recorder, by('mallory@example.com', 'x'.repeat(20_000)));
    const [alice] = (await rig.list()).filter(({ source }) => source.user === 'alice@example.com');
    const retention = { maxBytes: 50_000, minAgeMs: DAY_MS };
    await using again = await rig.restart({
      clock: later,
      retention,
      timing: { listRefreshMs: 0, retentionMs: 10 },
    });
    const left = await until(async () => {
      const found = await again.list();
      return found.length <= 3 ? found : undefined;
    });
    expect(left.map(({ id }) => id)).toContain(alice!.id);
    expect(left).toHaveLength(3);
  });

  it('ignores the modification time of files with a trusted signature', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, by('alice@example.com', 'early'));
    for (let count = 0; count < 5; count += 1)
      await uploadWhole(rig.recorder, by('mallory@example.com', 'x'.repeat(20_000)));
    const now = new Date(later.now());
    for (const { key, source } of await rig.list())
      if (source.user === 'mallory@example.com') await utimes(join(rig.directory, key), now, now);
    await using again = await rig.restart({
      clock: later,
      retention: { maxBytes: 50_000, minAgeMs: DAY_MS },
      timing: { listRefreshMs: 0, retentionMs: 10 },
    });
    const left = await until(async () => {
      const found = await again.list();
      return found.length <= 3 ? found : undefined;
    });
    expect(left).toHaveLength(3);
    expect(left.map(({ source }) => source.user)).toContain('alice@example.com');
  });

  it('keeps recordings of a user in whose name others were forged, and verify reports a broken signature', async () => {
    const nowMs = Date.now();
    await using rig = await createRig();
    await uploadWhole(rig.recorder, by('alice@example.com', 'x'.repeat(20_000)));
    await uploadWhole(rig.recorder, by('bob@example.com', 'x'.repeat(10_000)));
    const [broken, alice] = await until(async () => {
      const found = await rig.list();
      return found.every(({ trust }) => trust === 'verified') ? found : undefined;
    });
    const sidecar = await readFile(join(rig.directory, alice!.key.replace(/cast$/, 'json')), 'utf8');
    for (let count = 0; count < 4; count += 1) {
      const key = `nGATE1CNTRL/2099-01-0${count + 1}T00:00:00.000000001Z`;
      await writeFile(join(rig.directory, `${key}.json`), sidecar);
      await writeFile(join(rig.directory, `${key}.cast`), by('alice@example.com', 'x'.repeat(20_000)));
    }
    const bobs = join(rig.directory, broken!.key.replace(/cast$/, 'json'));
    await writeFile(bobs, (await readFile(bobs, 'utf8')).replace('bob@example.com', 'rob@example.com'));
    await using again = await rig.restart({
      clock: later,
      retention: { maxBytes: 30_000, minAgeMs: DAY_MS },
      timing: { listRefreshMs: 0, retentionMs: 10 },
    });
    const left = await until(async () => {
      const found = await again.list();
      return found.length === 1 ? found : undefined;
    });
    expect(left).toMatchObject([{ id: alice!.id, trust: 'verified' }]);
    await again.recorder.close();
    const store = await createDiskStore(again.directory, { readOnly: true });
    const { findings } = await verifyStore({ store, keys: [], checkpoint: [], nowMs: nowMs + 10 * DAY_MS });
    expect(findings.filter(({ severity }) => severity === 'fault')).toMatchObject([
      { code: 'recording-missing', recording: broken!.id },
    ]);
  });

  it('does not count unsigned notes, and counts the signed size of a user', async () => {
    await using rig = await createRig({ timing: { publishMs: 20 } });
    for (const user of ['alice', 'alice', 'bob'])
      await uploadWhole(
        rig.recorder,
        by(`${user}@example.com`, 'x'.repeat(user === 'bob' ? 50_000 : 20_000)),
      );
    const all = await rig.list();
    const bob = all.find(({ source }) => source.user === 'bob@example.com');
    const notes = join(rig.directory, all.find(({ id }) => id !== bob!.id)!.key.replace(/cast$/, 'notes'));
    await writeFile(notes, '');
    await truncate(notes, 1_000_000_000);
    const store = await createDiskStore(rig.directory);
    const { key } = await holdSigner(rig);
    const plan = (maxBytes: number): ReturnType<typeof planStoreRetention> =>
      planStoreRetention(store, { maxBytes }, Date.now() + 10 * DAY_MS, [key.public]);
    expect(await plan(120_000)).toMatchObject({ remove: [], held: [], overQuota: false });
    const { remove, overQuota } = await plan(80_000);
    expect([remove.map(({ id }) => id), overQuota]).toEqual([[bob!.id], false]);
  });

  it('refuses sessions but not events while young recordings exceed it, until these are old enough', async () => {
    let days = 0;
    const clock = { now: () => Date.now() + days * DAY_MS, monotonic: () => performance.now() };
    await using rig = await createRig({
      clock,
      retention: { maxBytes: 10_000, minAgeMs: DAY_MS },
      timing: { retentionMs: 10 },
    });
    await uploadWhole(rig.recorder, by('mallory@example.com', 'x'.repeat(20_000)));
    const status = async (): Promise<unknown> => {
      const upload = openUpload(rig.recorder);
      const answer = (await upload.headers)[':status'];
      upload.close();
      return answer;
    };
    await until(async () => ((await status()) === 507 ? true : undefined));
    expect(await rig.list()).toHaveLength(1);
    expect((await rig.get('/readyz')).status).toBe(200);
    const event = { method: 'POST', path: '/v2/event', body: '{"type":"kubernetes-api-request"}' };
    expect((await request(rig.recorder, event)).status).toBe(200);
    days = 2;
    await until(async () => ((await status()) === 200 ? true : undefined));
    await until(async () => ((await rig.list()).length === 0 ? true : undefined));
  });
});

it('retention runs at the start and then periodically, until it is closed', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const directory = await mkdtemp(join(tmpdir(), 'retention-'));
  const store = await createDiskStore(directory);
  let applied = 0;
  const others = vi.getTimerCount();
  const retention = startRetention({
    store,
    evidence: NO_EVIDENCE,
    trusted: new Map(),
    onUnprovenHolds: () => undefined,
    policy: { maxAgeMs: 1 },
    nowMs: Date.now,
    everyMs: 60_000,
    log: createSilentLogger(),
    onApplied: () => (applied += 1),
    onFailure: () => undefined,
  });
  await expect.poll(() => applied).toBe(1);
  vi.advanceTimersByTime(60_000);
  await expect.poll(() => applied).toBe(2);
  await retention.close();
  expect(vi.getTimerCount()).toBe(others);
});
