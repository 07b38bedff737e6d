/** Legal holds, and an attacker who has write access to the store but no signing key. */
import { rename, rm } from 'node:fs/promises';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import type { RecorderOptions } from '../../../src/compose/recorder-options.ts';
import { TailcastError } from '../../../src/errors.ts';
import {
  createLoggedHolds,
  changeHold,
  holdsInLogs,
  readHolds,
  type HoldChange,
} from '../../../src/tsrecorder/evidence/holds.ts';
import { generateSigningKey, type PublicKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { logSegmentName, type LogEvent } from '../../../src/tsrecorder/evidence/log-entry.ts';
import { checkHeldRemovals } from '../../../src/tsrecorder/evidence/verify-holds.ts';
import { readLogs, type ReadLog } from '../../../src/tsrecorder/evidence/verify-logs.ts';
import { verifyStore } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { planStoreRetention } from '../../../src/tsrecorder/retention/retention-run.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { createRig, HEADER, holdSigner, openUpload, until, uploadWhole, type Rig } from '../recorder-rig.ts';

/**
 * Returns the options of a recorder that removes all recordings: its clock is ten days ahead, and the maximum age is
 * one day.
 */
function expiring(registry: Registry): Partial<RecorderOptions> {
  return {
    clock: { now: () => Date.now() + 10 * 86_400_000, monotonic: () => performance.now() },
    retention: { maxAgeMs: 86_400_000 },
    timing: { listRefreshMs: 0, retentionMs: 10 },
    registry,
  };
}

async function unproven(registry: Registry): Promise<number | undefined> {
  return (await registry.getSingleMetric('tailcast_recorder_unproven_holds')?.get())?.values[0]?.value;
}

async function logged(store: RecordingStore, id: string): Promise<HoldChange | undefined> {
  return holdsInLogs((await readLogs(store, [])).logs).get(id);
}

async function untilLogged(store: RecordingStore, id: string, kind: HoldChange['kind']): Promise<void> {
  await until(async () => ((await logged(store, id))?.kind === kind ? true : undefined));
}

/** Creates a recorder with two recordings, one of them with a logged hold. */
async function heldRig() {
  const rig = await createRig({ retention: { maxAgeMs: 86_400_000 }, timing: { retentionMs: 10 } });
  await uploadWhole(rig.recorder, HEADER);
  await uploadWhole(rig.recorder, HEADER.replace('sh -i', 'other'));
  const [other = '', held = ''] = (await rig.list()).map(({ id }) => id);
  const store = await createDiskStore(rig.directory);
  const signer = await holdSigner(rig);
  await changeHold(store, held, { kind: 'held', reason: 'case 17' }, signer);
  const statement = await store.readDocument(`.holds/${held}`);
  await untilLogged(store, held, 'held');
  return { rig, store, signer, held, other, statement: statement! };
}

/** Starts and interrupts a session. @returns a function that continues the session in a second recording */
async function interruptedIn(rig: Rig, store: RecordingStore): Promise<() => Promise<void>> {
  const session = { 'tailcast-session': 'one' };
  const body = `${HEADER}[1,"o","first"]\n`;
  const first = openUpload(rig.recorder, session);
  first.stream.on('error', () => undefined);
  first.write(body);
  await first.ack(({ ack }) => ack === body.length);
  first.close();
  await until(async () => ((await store.list()).length === 1 ? true : undefined));
  return async () => {
    const second = openUpload(rig.recorder, {
      ...session,
      'tailcast-offset': String(body.length),
      'tailcast-part': '2',
      'tailcast-preamble': String(HEADER.length),
    });
    second.write(`${HEADER}[2,"o","second"]\n`);
    second.end();
    await second.over;
    await until(async () => ((await store.list()).length === 2 ? true : undefined));
  };
}

/** Waits until the recording `gone` is removed, and returns the remaining recordings. */
async function leftIn(rig: Rig, gone: string): Promise<readonly string[]> {
  await until(async () => ((await rig.list()).some(({ id }) => id === gone) ? undefined : true));
  return (await rig.list()).map(({ id }) => id);
}

async function shownIn(store: RecordingStore, keys: readonly PublicKey[]): Promise<unknown> {
  const plan = await planStoreRetention(store, { maxAgeMs: 1 }, Date.now() + 1000, keys);
  return plan.held.map(({ id, hold }) => [id, hold]);
}

describe('a hold', () => {
  it('can be set again, and fails if the store fails', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const [{ id } = { id: '' }] = await rig.list();
    const store = await createDiskStore(rig.directory);
    const signer = await holdSigner(rig);
    await changeHold(store, id, { kind: 'held', reason: 'first' }, signer);
    await changeHold(store, id, { kind: 'held', reason: 'second' }, signer);
    const [name = ''] = await store.listDocuments('.holds/');
    expect(Buffer.from((await store.readDocument(name)) ?? []).toString()).toContain('first');
    await store.removeDocument(name);
    const error = new TailcastError('STORE_FAILED', 'x');
    const failing = { ...store, replaceDocument: () => Promise.reject(error) };
    await expect(changeHold(failing, id, { kind: 'held', reason: 'x' }, signer)).rejects.toBe(error);
    await expect(changeHold(store, id, { kind: 'held', reason: 'x'.repeat(1001) }, signer)).rejects.toThrow(
      '1000 characters',
    );
  });

  it('and its release are in the signed log', async () => {
    const { rig, store, signer, held } = await heldRig();
    await using _rig = rig;
    await changeHold(store, held, { kind: 'released', reason: 'case closed' }, signer);
    await untilLogged(store, held, 'released');
    expect(await logged(store, held)).toMatchObject({ reason: 'case closed' });
    const keys = [signer.key.public];
    const { findings } = await verifyStore({ store, keys, checkpoint: [], nowMs: Date.now() });
    expect(findings).toEqual([]);
  });

  it('is not ended by an earlier release that an attacker restores before a recorder logs the hold', async () => {
    const { rig, store, signer, held } = await heldRig();
    await using _rig = rig;
    await untilLogged(store, held, 'held');
    // No recorder runs during these changes.
    await rig.recorder.close();
    await changeHold(store, held, { kind: 'released', reason: 'first case closed' }, signer);
    const release = (await store.readDocument(`.holds/${held}`))!;
    await changeHold(store, held, { kind: 'held', reason: 'second case' }, signer);
    await store.replaceDocument(`.holds/${held}`, release);
    expect(await shownIn(store, [signer.key.public])).toEqual([[held, 'missing']]);
    const { findings } = await verifyStore({
      store,
      keys: [signer.key.public],
      checkpoint: [],
      nowMs: Date.now(),
    });
    expect(findings).toContainEqual(expect.objectContaining({ code: 'hold-missing', recording: held }));
  });

  it.each([
    ['removes it', undefined],
    ['writes something else in its place', 'released\n'],
  ])('stays after an attacker without the key %s, and the recorder reports it', async (_what, text) => {
    const { rig, store, held, other } = await heldRig();
    await rig.recorder.close();
    if (text === undefined) await store.removeDocument(`.holds/${held}`);
    else await store.replaceDocument(`.holds/${held}`, Buffer.from(text));
    const registry = new Registry();
    await using again = await rig.restart(expiring(registry));
    expect(await leftIn(again, other)).toEqual([held]);
    await until(async () => ((await unproven(registry)) === 1 ? true : undefined));
  });

  it('stays after a release by a key that the recorder does not trust', async () => {
    const { rig, store, held, other } = await heldRig();
    await rig.recorder.close();
    const key = generateSigningKey();
    const stranger = { key, trusted: new Map([[key.public.id, key.public]]), nowMs: Date.now() };
    await changeHold(store, held, { kind: 'released', reason: 'x' }, stranger);
    await using again = await rig.restart(expiring(new Registry()));
    expect(await leftIn(again, other)).toEqual([held]);
  });

  it('stays after an attacker restores the release of an earlier hold', async () => {
    const { rig, store, signer, held, other } = await heldRig();
    await changeHold(store, held, { kind: 'released', reason: 'first case closed' }, signer);
    const release = await store.readDocument(`.holds/${held}`);
    await untilLogged(store, held, 'released');
    await changeHold(store, held, { kind: 'held', reason: 'second case' }, signer);
    await untilLogged(store, held, 'held');
    await rig.recorder.close();
    await store.replaceDocument(`.holds/${held}`, release!);
    const registry = new Registry();
    await using again = await rig.restart(expiring(registry));
    expect(await leftIn(again, other)).toEqual([held]);
    await until(async () => ((await unproven(registry)) === 1 ? true : undefined));
  });

  it('does not come back when an attacker restores it after its release', async () => {
    const { rig, store, signer, held, statement } = await heldRig();
    await changeHold(store, held, { kind: 'released', reason: 'case closed' }, signer);
    await untilLogged(store, held, 'released');
    await rig.recorder.close();
    await store.replaceDocument(`.holds/${held}`, statement);
    await using again = await rig.restart(expiring(new Registry()));
    await until(async () => ((await store.listDocuments('.holds/')).length === 0 ? true : undefined));
    await expect.poll(() => again.list()).toEqual([]);
  });

  it('starts again after an attacker restores an earlier hold that was released', async () => {
    const { rig, store, signer, held, other, statement } = await heldRig();
    const ahead = { ...signer, nowMs: Date.now() + 3_600_000 };
    await changeHold(store, held, { kind: 'released', reason: 'first case closed' }, ahead);
    await untilLogged(store, held, 'released');
    await store.replaceDocument(`.holds/${held}`, statement);
    await changeHold(store, held, { kind: 'held', reason: 'second case' }, signer);
    await untilLogged(store, held, 'held');
    expect(await logged(store, held)).toMatchObject({ reason: 'second case' });
    await using again = await rig.restart(expiring(new Registry()));
    expect(await leftIn(again, other)).toEqual([held]);
  });

  it('in the log of one recorder also applies at another recorder of the store without its document', async () => {
    const { rig, store, held, other } = await heldRig();
    await rig.recorder.close();
    await store.removeDocument(`.holds/${held}`);
    const registry = new Registry();
    const spoolDirectory = `${rig.directory}.spool2`;
    // The second recorder restarts before retention runs, so that its evidence log already exists at that time.
    const second = await createRig({ spoolDirectory }, rig.directory);
    await uploadWhole(second.recorder, HEADER.replace('sh -i', 'third'));
    const again = await second.restart({ ...expiring(registry), spoolDirectory });
    expect(await leftIn(again, other)).toContain(held);
    await expect.poll(async () => (await again.list()).map(({ id }) => id)).toEqual([held]);
    await until(async () => ((await unproven(registry)) === 1 ? true : undefined));
    await again.recorder.close();
    await rm(spoolDirectory, { recursive: true });
    await rm(rig.directory, { recursive: true });
    await rm(rig.spool, { recursive: true });
  });

  it.each([
    ['before', 1, ['removed-while-held']],
    ['after', 3, []],
  ])('is reported if a log contains it %s the removal of its recording', (_when, hour, codes) => {
    const recording = 'nA_2026-07-29T11:50:58Z';
    const time = (hours: number): string => `2026-08-01T0${hours}:00:00.000Z`;
    const logOf = (log: string, hours: number, event: LogEvent): ReadLog => ({
      log,
      entries: new Map([[0, { n: 0, prev: '', time: time(hours), event }]]),
      signed: new Set([0]),
      hashes: new Map(),
      keyIds: new Set(),
      head: undefined,
    });
    const removed = logOf('b', 2, { kind: 'removed', recording, reason: 'age', bytes: 1 });
    const statement = (kind: HoldChange['kind'], hours: number): LogEvent => ({
      kind,
      recording,
      at: time(hours),
      reason: '',
    });
    const logs = [removed, logOf('a', hour, statement('held', hour))];
    const check = (all: readonly ReadLog[]): readonly string[] =>
      checkHeldRemovals(new Map(all.map((each) => [each.log, each])), () => false).map(({ code }) => code);
    expect(check(logs)).toEqual(codes);
    const earlier = logOf('c', 1, statement('released', 2));
    expect(check([...logs, earlier])).toEqual([]);
  });

  it('stays if the recorder has lost its spool, because of the earlier log', async () => {
    const { rig, store, held, other, signer } = await heldRig();
    await rig.recorder.close();
    await store.removeDocument(`.holds/${held}`);
    const evidenceKey = `${rig.directory}.key`;
    await rename(`${rig.directory}.spool/evidence/key.pem`, evidenceKey);
    await rm(`${rig.directory}.spool`, { recursive: true });
    const again = await rig.restart({ ...expiring(new Registry()), evidenceKey });
    expect(await leftIn(again, other)).toEqual([held]);
    await again.recorder.close();
    await using third = await rig.restart({ ...expiring(new Registry()), evidenceKey });
    await changeHold(store, held, { kind: 'released', reason: 'closed' }, { ...signer, nowMs: Date.now() });
    await until(async () => ((await third.list()).length === 0 ? true : undefined));
    await rm(evidenceKey);
  });

  it.each([
    ['is there already', true],
    ['is stored later', false],
  ])('applies to each part of a session, also one that %s, until its release', async (_when, isThere) => {
    await using rig = await createRig({ timing: { listRefreshMs: 0, publishMs: 20, resumeGraceMs: 50 } });
    const store = await createDiskStore(rig.directory);
    const proceed = await interruptedIn(rig, store);
    if (isThere) await proceed();
    const [{ id } = { id: '' }] = await rig.list();
    const signer = await holdSigner(rig);
    await changeHold(store, id, { kind: 'held', reason: 'case 17' }, signer);
    if (!isThere) await proceed();
    await uploadWhole(rig.recorder, HEADER.replace('sh -i', 'other'));
    const other = (await rig.list()).find(({ command }) => command === 'other')?.id ?? '';
    expect(await store.list()).toHaveLength(3);
    await using again = await rig.restart(expiring(new Registry()));
    expect(await leftIn(again, other)).toEqual([id]);
    expect(await store.list()).toHaveLength(2);
    expect(await shownIn(store, [signer.key.public])).toHaveLength(2);
    expect(await store.listDocuments('.holds/')).toHaveLength(isThere ? 2 : 1);
    await changeHold(
      store,
      id,
      { kind: 'released', reason: 'case closed' },
      { ...signer, nowMs: Date.now() },
    );
    await until(async () => ((await store.list()).length === 0 ? true : undefined));
  });

  it('without a signature protects its recording, and is reported', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const [{ id } = { id: '' }] = await rig.list();
    const store = await createDiskStore(rig.directory);
    const signer = await holdSigner(rig);
    await store.replaceDocument(`.holds/${id}`, Buffer.from('{"reason":"case 17"}\n'));
    const registry = new Registry();
    await using again = await rig.restart(expiring(registry));
    await until(async () => ((await unproven(registry)) === 1 ? true : undefined));
    expect((await again.list()).map((recording) => recording.id)).toEqual([id]);
    expect(await shownIn(store, [signer.key.public])).toEqual([[id, 'unproven']]);
    await changeHold(store, id, { kind: 'released', reason: 'nobody asked for it' }, signer);
    await until(async () => ((await again.list()).length === 0 ? true : undefined));
    await until(async () => ((await unproven(registry)) === 0 ? true : undefined));
  });

  it('is unproven in a plan without keys, and missing in a plan with keys after its removal', async () => {
    const { rig, store, held, signer } = await heldRig();
    await using _rig = rig;
    expect(await shownIn(store, [])).toEqual([[held, 'unproven']]);
    expect(await shownIn(store, [signer.key.public])).toEqual([[held, 'signed']]);
    await store.removeDocument(`.holds/${held}`);
    expect(await shownIn(store, [signer.key.public])).toEqual([[held, 'missing']]);
  });

  it('is read from each segment of the logs once, even if there are unsigned segments', async () => {
    const { rig, store, signer, held } = await heldRig();
    await using _rig = rig;
    await rig.recorder.close();
    for (let count = 0; count < 300; count++)
      await store.putDocument(logSegmentName('f'.repeat(32), count), Buffer.from('x'));
    const reads: string[] = [];
    const counting = {
      ...store,
      readDocument(name: string, maxBytes?: number) {
        reads.push(name);
        return store.readDocument(name, maxBytes);
      },
    };
    const read = createLoggedHolds(counting, signer.trusted);
    expect((await read()).get(held)).toMatchObject({ kind: 'held' });
    const first = reads.length;
    reads.length = 0;
    await changeHold(store, held, { kind: 'released', reason: 'closed' }, signer);
    expect((await read()).get(held)).toMatchObject({ kind: 'released' });
    expect(first).toBeGreaterThan(300);
    expect(reads.length).toBe(101);
    expect(new Set(reads.slice(0, 100)).size).toBe(100);
  });

  it('is unproven if there are more documents than the limit', async () => {
    const names = Array.from({ length: 10_001 }, (_, at) => String(at).padStart(5, '0'));
    let read = 0;
    const store = {
      listDocuments: async () => names.map((name) => `.holds/${name}`),
      readDocument: async () => {
        read += 1;
        return Buffer.from('x');
      },
    };
    const { proofs } = await readHolds(store, new Map(), new Map());
    expect([read, proofs.size, proofs.get('10000')]).toEqual([10_000, 10_001, 'unproven']);
  });

  it('stops retention if there are more documents than a recorder lists', async () => {
    const storeOf = (count: number) => {
      const names = Array.from({ length: count }, (_, at) => `.holds/${at}`);
      return {
        listDocuments: async (_prefix: string, maximum?: number) => names.slice(0, maximum),
        readDocument: async () => undefined,
      };
    };
    expect((await readHolds(storeOf(100_000), new Map(), new Map())).listed.size).toBe(100_000);
    await expect(readHolds(storeOf(100_001), new Map(), new Map())).rejects.toMatchObject({
      code: 'STORE_FAILED',
      message: expect.stringContaining('more than 100000 documents in .holds/'),
    });
  });
});
