import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { changeHold } from '../../src/tsrecorder/evidence/holds.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import {
  createRig,
  HEADER,
  openUpload,
  request,
  STORED_HEADER,
  until,
  uploadWhole,
  holdSigner,
} from './recorder-rig.ts';
import { framed } from '../support/recorder-double.ts';

const LINE = '[1,"o","x"]\n';
const SESSION = { 'tailcast-session': 'one' };

/** Returns the value of a metric; undefined if it is not set. */
async function valueOf(
  registry: Registry,
  name: string,
  labels: Record<string, string> = {},
): Promise<number | undefined> {
  const metric = (await registry.getMetricsAsJSON()).find((found) => name.startsWith(found.name));
  expect(metric, name).toBeDefined();
  const values = metric!.values as readonly {
    value: number;
    labels: Record<string, string | number>;
    metricName?: string;
  }[];
  return values.find(
    (found) =>
      (found.metricName ?? metric!.name) === name &&
      Object.entries(labels).every(([key, value]) => found.labels[key] === value),
  )?.value;
}

describe('the metrics of a recorder', () => {
  it('count offered, durable and stored bytes, and measure durations', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry });
    const upload = openUpload(rig.recorder, SESSION);
    upload.write(HEADER + LINE);
    await upload.ack(({ ack }) => ack === HEADER.length + LINE.length);
    expect(await valueOf(registry, 'tailcast_recorder_received_bytes_total')).toBe(
      framed(HEADER + LINE).length,
    );
    expect(await valueOf(registry, 'tailcast_recorder_durable_bytes_total')).toBe(
      HEADER.length + LINE.length,
    );
    expect(await valueOf(registry, 'tailcast_recorder_stored_bytes_total')).toBe(0);
    expect(await valueOf(registry, 'tailcast_recorder_sessions', { state: 'running' })).toBe(1);
    expect(await valueOf(registry, 'tailcast_recorder_spool_bytes')).toBeGreaterThan(
      STORED_HEADER.length + LINE.length,
    );
    upload.write(LINE);
    upload.end();
    await upload.over;
    const cast = STORED_HEADER.length + 2 * LINE.length;
    await until(async () =>
      (await valueOf(registry, 'tailcast_recorder_sessions', { state: 'storing' })) === 0 ? true : undefined,
    );
    expect(await valueOf(registry, 'tailcast_recorder_stored_bytes_total')).toBe(cast);
    expect(await valueOf(registry, 'tailcast_recorder_durable_bytes_total')).toBe(
      HEADER.length + 2 * LINE.length,
    );
    expect(await valueOf(registry, 'tailcast_recorder_spool_bytes')).toBe(0);
    expect(await valueOf(registry, 'tailcast_recorder_waiting_bytes')).toBe(0);
    expect(
      await valueOf(registry, 'tailcast_recorder_recordings_total', {
        state: 'completed',
        result: 'unknown',
      }),
    ).toBe(1);
    // there are at least two commits, and the first one syncs two files
    expect(await valueOf(registry, 'tailcast_recorder_fsync_seconds_count')).toBeGreaterThanOrEqual(3);
    expect(await valueOf(registry, 'tailcast_recorder_ack_lag_seconds_count')).toBeGreaterThanOrEqual(2);
    expect(await valueOf(registry, 'tailcast_recorder_ack_lag_seconds_sum')).toBeGreaterThan(0);
  });

  it('distinguish interrupted from open sessions, and count the interrupted ones', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry, timing: { resumeGraceMs: 300 } });
    const upload = openUpload(rig.recorder, SESSION);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    upload.close();
    await until(async () =>
      (await valueOf(registry, 'tailcast_recorder_sessions', { state: 'cut' })) === 1 ? true : undefined,
    );
    expect(await valueOf(registry, 'tailcast_recorder_sessions', { state: 'running' })).toBe(0);
    await until(async () =>
      valueOf(registry, 'tailcast_recorder_recordings_total', { state: 'interrupted', result: 'unknown' }),
    );
  });

  it('show a failing store: waiting sessions, and every retry', async () => {
    const registry = new Registry();
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-'));
    const disk = await createDiskStore(directory);
    let fails = true;
    const failing = async <T>(work: () => Promise<T>): Promise<T> => {
      if (fails) throw new TailcastError('STORE_FAILED', 'S3 answered 503 SlowDown');
      return work();
    };
    const timing = {
      storeRetryMs: 10,
      maxStoreRetryMs: 20,
      publishMs: 10,
      eventBatchMs: 10,
      retentionMs: 10,
      listRefreshMs: 0,
    };
    await using rig = await createRig(
      {
        registry,
        timing,
        retention: { maxBytes: 1 },
        store: {
          ...disk,
          finish: (upload) => failing(() => disk.finish(upload)),
          putDocument: (name, content) => failing(() => disk.putDocument(name, content)),
          list: () => failing(() => disk.list()),
        },
      },
      directory,
    );
    await uploadWhole(rig.recorder, HEADER + LINE);
    const body = '{"type":"kubernetes-api-request","timestamp":1785321882}';
    await request(rig.recorder, { method: 'POST', path: '/v2/event', body });
    for (const name of [
      'store_retries',
      'event_batch_failures',
      'log_publish_failures',
      'retention_failures',
    ]) {
      await until(async () =>
        ((await valueOf(registry, `tailcast_recorder_${name}_total`)) ?? 0) > 1 ? true : undefined,
      );
    }
    expect(await valueOf(registry, 'tailcast_recorder_sessions', { state: 'storing' })).toBe(1);
    expect(await valueOf(registry, 'tailcast_recorder_oldest_storing_seconds')).toBeGreaterThan(0);
    expect(await valueOf(registry, 'tailcast_recorder_log_unpublished_entries')).toBeGreaterThan(0);
    fails = false;
    await until(async () =>
      (await valueOf(registry, 'tailcast_recorder_removed_total', { reason: 'quota' })) === 1
        ? true
        : undefined,
    );
    await until(async () =>
      (await valueOf(registry, 'tailcast_recorder_log_unpublished_entries')) === 0 ? true : undefined,
    );
    expect(await valueOf(registry, 'tailcast_recorder_oldest_storing_seconds')).toBe(0);
    expect(await valueOf(registry, 'tailcast_recorder_over_quota')).toBe(0);
  });

  it('show the progress of the search index, the duration of queries, and errors', async () => {
    const registry = new Registry();
    const value = (name: string, labels?: Record<string, string>): Promise<number | undefined> =>
      valueOf(registry, `tailcast_search_${name}`, labels);
    await using rig = await createRig({ registry, searchText: 'all' });
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","needle"]\n`);
    await until(async () => ((await value('recordings')) === 1 ? true : undefined));
    await until(async () => ((await value('state', { state: 'ready' })) === 1 ? true : undefined));
    expect(await value('state', { state: 'building' })).toBe(0);
    expect(await value('backlog_recordings')).toBe(0);
    expect(await value('partial_recordings')).toBe(0);
    expect(await value('lag_seconds')).toBe(0);
    expect(await value('rebuilt_ratio')).toBe(1);
    expect(await value('index_bytes')).toBeGreaterThan(10_000);
    expect(await value('query_seconds_count', { kind: 'find' })).toBe(0);
    expect((await rig.get('/api/v1/search?q=needle')).status).toBe(200);
    expect((await rig.get('/api/v1/search/facets?q=needle')).status).toBe(200);
    expect(await value('query_seconds_count', { kind: 'find' })).toBe(1);
    expect(await value('query_seconds_count', { kind: 'facets' })).toBe(1);
    expect(await value('query_failures_total', { code: 'SEARCH_UNAVAILABLE' })).toBe(0);
    expect(await value('index_failures_total')).toBe(0);
  });

  it('show that the search index cannot be written, and have no state without an index', async () => {
    const registry = new Registry();
    await using rig = await createRig();
    const { directory } = rig;
    await rig.recorder.close();
    await writeFile(join(`${directory}.spool`, 'search'), 'in the way');
    const current = await createRig({ registry, searchText: 'all' }, directory);
    await until(async () =>
      (await valueOf(registry, 'tailcast_search_state', { state: 'unavailable' })) === 1 ? true : undefined,
    );
    expect(await valueOf(registry, 'tailcast_search_index_failures_total')).toBeGreaterThan(0);
    await current.recorder.close();
    const none = new Registry();
    await using _without = await createRig({ registry: none });
    for (const state of ['ready', 'building', 'unavailable'])
      expect(await valueOf(none, 'tailcast_search_state', { state }), state).toBe(0);
  });

  it('show that held recordings exceed the size limit of the store', async () => {
    const registry = new Registry();
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER + LINE);
    const [{ id } = { id: '' }] = await rig.list();
    await changeHold(
      await createDiskStore(rig.directory),
      id,
      { kind: 'held', reason: 'case 17' },
      await holdSigner(rig),
    );
    const timing = { listRefreshMs: 0, retentionMs: 10 };
    await using again = await rig.restart({ registry, timing, retention: { maxBytes: 1 } });
    const overQuota = (): Promise<number | undefined> => valueOf(registry, 'tailcast_recorder_over_quota');
    await until(async () => ((await overQuota()) === 1 ? true : undefined));
    expect((await again.list()).map((recording) => recording.id)).toEqual([id]);
  });
});
