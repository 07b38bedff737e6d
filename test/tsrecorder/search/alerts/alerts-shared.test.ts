/** Two recorders of one store with the same rules: only one of them sends each alert. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import type { RecorderOptions } from '../../../../src/compose/recorder-options.ts';
import { verifyStore } from '../../../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../../../src/tsrecorder/store/disk.ts';
import { createS3Store, S3_LISTING } from '../../../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../../../src/tsrecorder/store/store.ts';
import { createRig, HEADER, until, uploadWhole, type Rig } from '../../recorder-rig.ts';
import { createMemoryBucket } from '../../store/memory-bucket.ts';
import { alertsFor, openReceiver, type Receiver } from './webhook-receiver.ts';

async function indexed(rig: Rig, sessions: number): Promise<void> {
  await until(async () => {
    // a recorder finds the recordings of the other one when it lists the store
    await rig.list();
    const { body } = await rig.get('/api/v1/index');
    const { state, sessions: count } = JSON.parse(body) as { state?: string; sessions?: number };
    return state === 'ready' && count === sessions ? true : undefined;
  });
}

function counted(registry: Registry, outcome: string): Promise<number> {
  return registry
    .getSingleMetric('tailcast_recorder_alerts_total')!
    .get()
    .then(({ values }) => values.find(({ labels }) => labels['outcome'] === outcome)?.value ?? 0);
}

/** Resolves when `count` alerts are settled. */
async function settled(registries: readonly Registry[], count: number): Promise<void> {
  await until(async () => {
    let ended = 0;
    for (const registry of registries)
      for (const outcome of ['delivered', 'elsewhere']) ended += await counted(registry, outcome);
    return ended >= count ? true : undefined;
  });
}

interface Site {
  /** Opens a recorder with its own spool. */
  open(name: string, options?: Partial<RecorderOptions>): Promise<Rig>;
  readonly store: RecordingStore;
}

async function createSite(receiver: Receiver, kind: string): Promise<Site> {
  const folder = await mkdtemp(join(tmpdir(), 'tcshared-'));
  const bucket = createMemoryBucket();
  const directory = join(folder, 'store');
  return {
    store:
      kind === 'bucket'
        ? createS3Store({ recentMs: S3_LISTING.recentMs, fullListMs: 0, bucket, nowMs: Date.now })
        : await createDiskStore(directory),
    open: (name, options = {}) =>
      createRig(
        {
          searchText: 'all',
          alerts: alertsFor(receiver.url),
          evidenceKey: join(folder, 'key.pem'),
          ...(kind === 'bucket' ? { bucket } : { spoolDirectory: join(folder, name) }),
          ...options,
          timing: { listRefreshMs: 0, storeRetryMs: 20, ...options.timing },
        },
        kind === 'bucket' ? join(folder, name) : directory,
      ),
  };
}

const needle = (text: string): string => `${HEADER}[1.5,"o","${text} needle"]\n`;

describe.each(['folder', 'bucket'])('recorders that share one %s', (kind) => {
  it('send an alert once, also after both were restarted, and one alert for each session', async () => {
    await using receiver = await openReceiver();
    const site = await createSite(receiver, kind);
    const registries = [new Registry(), new Registry(), new Registry(), new Registry()] as const;
    const one = await site.open('one', { registry: registries[0] });
    const two = await site.open('two', { registry: registries[1] });
    await uploadWhole(one.recorder, needle('a'));
    await uploadWhole(two.recorder, needle('another'));
    await Promise.all([indexed(one, 2), indexed(two, 2)]);
    await settled(registries.slice(0, 2), 4);
    const sessions = (): readonly string[] =>
      receiver.received.map(({ data }) => String(data.recording['id'])).toSorted();
    const ids = async (): Promise<readonly string[]> => (await one.list()).map(({ id }) => id).toSorted();
    expect(sessions()).toEqual(await ids());
    await one.recorder.close();
    await two.recorder.close();
    const again = await site.open('one', { registry: registries[2] });
    const other = await site.open('two', { registry: registries[3] });
    await uploadWhole(again.recorder, needle('a third'));
    await Promise.all([indexed(again, 3), indexed(other, 3)]);
    await settled(registries.slice(2), 2);
    expect(sessions()).toEqual((await again.list()).map(({ id }) => id).toSorted());
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(3);
    const marks = await site.store.listDocuments('.alerts/');
    expect(marks.map((name) => name.slice(-5))).toEqual(['.told', '.told', '.told']);
    // `verify` ignores the folder of the alerts
    const { findings } = await verifyStore({
      store: site.store,
      keys: [],
      checkpoint: [],
      nowMs: Date.now(),
    });
    expect(findings.filter(({ severity }) => severity === 'fault')).toEqual([]);
    expect(await site.store.list()).toHaveLength(3);
    await again.recorder.close();
    await other.recorder.close();
  });

  it('send alerts that another recorder cannot send', async () => {
    await using receiver = await openReceiver();
    await using broken = await openReceiver();
    broken.answer = 503;
    const first = new Registry();
    const site = await createSite(receiver, kind);
    await using one = await site.open('one', { registry: first, alerts: alertsFor(broken.url) });
    await uploadWhole(one.recorder, needle('a'));
    await until(async () => (broken.received.length > 2 ? true : undefined));
    const registry = new Registry();
    await using two = await site.open('two', { registry });
    await uploadWhole(two.recorder, needle('another'));
    await indexed(two, 2);
    // recorder `two` also sends the alert about the first session, although that session is older than the rule of
    // `two`: the clocks of recorders may differ
    await settled([registry], 2);
    expect(receiver.received).toHaveLength(2);
    await settled([first], 2);
    expect(receiver.received.map(({ id }) => id)).toContain(broken.received[0]!.id);
    expect(await counted(first, 'delivered')).toBe(0);
  });

  it('remove the marks of an alert together with its recording', async () => {
    await using receiver = await openReceiver();
    const site = await createSite(receiver, kind);
    const registry = new Registry();
    const one = await site.open('one', { registry });
    await uploadWhole(one.recorder, needle('a'));
    await settled([registry], 1);
    const [recording] = await one.list();
    await one.recorder.close();
    const mark = `.alerts/nGONE_2020-11-23T19:28:40.696000000Z.alert_${'0'.repeat(32)}.told`;
    await site.store.claimDocument(mark, Buffer.from('x'));
    expect((await site.store.listDocuments('.alerts/')).some((name) => name.includes(recording!.id))).toBe(
      true,
    );
    const kept = await site.open('one', { retention: { maxAgeMs: 86_400_000 } });
    await until(async () => ((await site.store.readDocument(mark)) === undefined ? true : undefined));
    expect(await site.store.listDocuments('.alerts/')).toHaveLength(1);
    await kept.recorder.close();
    const later = { now: () => Date.now() + 10 * 86_400_000, monotonic: () => performance.now() };
    const last = await site.open('one', { clock: later, retention: { maxAgeMs: 86_400_000 } });
    await until(async () => ((await site.store.listDocuments('.alerts/')).length === 0 ? true : undefined));
    expect(await site.store.list()).toEqual([]);
    await last.recorder.close();
    expect(receiver.received).toHaveLength(1);
  });
});
