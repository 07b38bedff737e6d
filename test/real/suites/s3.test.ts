/** tailcast's store with a real S3 server. */
import { loadSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import {
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { Registry } from 'prom-client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { alertsFor, openReceiver } from '../../tsrecorder/search/alerts/webhook-receiver.ts';
import { describeStore, NODE } from '../../tsrecorder/store/store-contract.ts';
import {
  createRig as createRecorderRig,
  HEADER,
  until,
  uploadWhole,
  type Rig as RecorderRig,
} from '../../tsrecorder/recorder-rig.ts';
import { runProgram } from '../../../src/cli/program.ts';
import { S3Bucket } from '../../../src/tsrecorder/store/s3-bucket.ts';
import { S3_DEFAULTS, type S3Settings } from '../../../src/tsrecorder/store/s3-client.ts';
import { createS3Store, S3_LISTING } from '../../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { startS3, type S3Server } from '../rig/s3.ts';

let rig: Rig;
let server: S3Server;
let admin: S3Client;
let folder = '';
let prefixes = 0;
const buckets: S3Bucket[] = [];

beforeAll(async () => {
  rig = createRig();
  server = await startS3(rig);
  folder = mkdtempSync(join(tmpdir(), 'tcs3-'));
  process.env['AWS_ACCESS_KEY_ID'] = server.accessKeyId;
  process.env['AWS_SECRET_ACCESS_KEY'] = server.secretAccessKey;
  admin = new S3Client({ endpoint: server.endpoint, region: server.region, forcePathStyle: true });
  await admin.send(new CreateBucketCommand({ Bucket: 'recordings' }));
  await admin.send(new CreateBucketCommand({ Bucket: 'locked', ObjectLockEnabledForBucket: true }));
});

afterAll(async () => {
  for (const bucket of buckets) bucket.close();
  admin?.destroy();
  await rig?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function openBucket(settings: Partial<S3Settings> = {}): S3Bucket {
  prefixes += 1;
  const bucket = new S3Bucket(
    {
      ...S3_DEFAULTS,
      bucket: 'recordings',
      prefix: `test-${prefixes}/`,
      endpoint: server.endpoint,
      region: server.region,
      pathStyle: true,
      partBytes: 5 * 1024 ** 2,
      ...settings,
    },
    () => Date.now(),
  );
  buckets.push(bucket);
  return bucket;
}

function openStore(settings: Partial<S3Settings> = {}): RecordingStore {
  return createS3Store({ ...S3_LISTING, bucket: openBucket(settings), nowMs: () => Date.now() });
}

const BIG = { bigBytes: 17 * 1024 ** 2 + 3 };

describeStore('S3', async () => openStore(), BIG);
describeStore('S3 with MD5 instead of CRC', async () => openStore({ checksums: 'md5' }), BIG);
describeStore('S3 without checksums', async () => openStore({ checksums: 'none' }), BIG);
describeStore('S3 with encryption by the store', async () => openStore({ encryption: 'AES256' }), BIG);

describe('a bucket', () => {
  it('is refused at once when the secret is wrong', async () => {
    const bucket = openBucket({ bucket: 'nowhere' });
    await expect(bucket.probe()).rejects.toMatchObject({ name: 'NoSuchBucket' });
    await expect(openBucket().probe()).resolves.toBeUndefined();
  });

  it('holds a file of many parts in bounded memory', async () => {
    const path = join(folder, 'large');
    writeFileSync(path, 'header\n');
    await truncate(path, 300 * 1024 ** 2);
    const bucket = openBucket();
    globalThis.gc?.();
    const before = process.memoryUsage().arrayBuffers;
    let peak = 0;
    const timer = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().arrayBuffers);
    }, 5);
    await bucket.putFile('large', path, 300 * 1024 ** 2, { once: true });
    clearInterval(timer);
    expect((await bucket.stat('large'))?.bytes).toBe(300 * 1024 ** 2);
    expect(peak - before).toBeLessThan(100 * 1024 ** 2);
  });

  it('finds damage on the way: a file that changes while it is sent is not stored', async () => {
    const path = join(folder, 'short');
    writeFileSync(path, 'a'.repeat(100));
    await expect(openBucket().putFile('short', path, 101)).rejects.toMatchObject({ code: 'STORE_FAILED' });
  });

  it('sweeps multipart uploads that nobody completed, and only below its prefix', async () => {
    const bucket = openBucket({ prefix: 'mine/' });
    for (const Key of ['mine/a', 'mine/b', 'theirs/c']) {
      await admin.send(new CreateMultipartUploadCommand({ Bucket: 'recordings', Key }));
    }
    expect(await bucket.sweepUploads(3_600_000)).toBe(0);
    expect(await bucket.sweepUploads(-3_600_000)).toBe(2);
    const left = await admin.send(new ListMultipartUploadsCommand({ Bucket: 'recordings' }));
    expect(left.Uploads?.map(({ Key }) => Key)).toEqual(['theirs/c']);
  });

  it('locks what belongs to the archive for as long as it is told', async () => {
    const retention = { mode: 'COMPLIANCE', days: 1 } as const;
    const bucket = openBucket({ bucket: 'locked', retention });
    await bucket.put('kept', Buffer.from('x'), { retain: true });
    await bucket.put('free', Buffer.from('x'));
    await bucket.remove('free');
    await expect(bucket.remove('kept')).rejects.toMatchObject({ code: 'STORE_FAILED' });
    expect((await bucket.stat('kept'))?.bytes).toBe(1);
  });

  it('says whether it locks objects, and which rules it has', async () => {
    expect((await openBucket({ bucket: 'locked' }).rules()).lock).toEqual({
      enabled: true,
      defaultDays: undefined,
    });
    const { lock, lifecycle } = await openBucket().rules();
    expect(lock).toEqual({ enabled: false, defaultDays: undefined });
    // versitygw does not support lifecycle rules, and may reject the request for them
    expect(['unknown', []]).toContainEqual(lifecycle);
    expect(await openBucket({ bucket: 'nowhere' }).rules()).toEqual({
      lock: 'unknown',
      lifecycle: 'unknown',
    });
  });

  it('lists page after page, and names that others chose', async () => {
    const bucket = openBucket();
    const names = Array.from({ length: 1100 }, (_, index) => `n/${String(index).padStart(4, '0')}`);
    names.push('n/a b+c%41&<ä>');
    await mkdir(folder, { recursive: true });
    for (let start = 0; start < names.length; start += 50) {
      await Promise.all(names.slice(start, start + 50).map((name) => bucket.put(name, Buffer.from('x'))));
    }
    const found: string[] = [];
    for await (const { objects } of bucket.list({ prefix: 'n/' }))
      found.push(...objects.map(({ name }) => name));
    expect(found.toSorted()).toEqual(names.toSorted());
    const after: string[] = [];
    for await (const { objects } of bucket.list({ prefix: 'n/', startAfter: 'n/1097' })) {
      after.push(...objects.map(({ name }) => name));
    }
    expect(after).toEqual(['n/1098', 'n/1099', 'n/a b+c%41&<ä>']);
  });
});

describe('two recorders on one bucket', () => {
  it('see what the other stored', async () => {
    const [one, two] = [openStore({ prefix: 'shared/' }), openStore({ prefix: 'shared/' })];
    const path = join(folder, 'one');
    writeFileSync(path, 'cast\n');
    const key = { nodeId: NODE, time: '2026-07-29T11:50:50.000000000Z' };
    expect(await two.list()).toEqual([]);
    await one.finish({
      key,
      castPath: path,
      castBytes: 5,
      notesPath: undefined,
      notesBytes: 0,
      sidecar: '{}',
      sessionMark: undefined,
    });
    expect(await one.list()).toMatchObject([{ key, hasSidecar: true }]);
  });
});

describe('two recorders on one bucket, with the same rules', () => {
  it('tell an alert once, and know that it was told', async () => {
    await using receiver = await openReceiver();
    const open = (registry: Registry, options: { readonly evidenceKey?: string } = {}) =>
      createRecorderRig({
        ...options,
        bucket: openBucket({ prefix: 'alerts/' }),
        searchText: 'all',
        alerts: alertsFor(receiver.url),
        timing: { listRefreshMs: 0 },
        registry,
      });
    const registries = [new Registry(), new Registry()] as const;
    await using one = await open(registries[0]);
    // the recorders share a signing key, so that each trusts the other's signed statements about delivered alerts
    await using two = await open(registries[1], { evidenceKey: signingKeyOf(one) });
    await uploadWhole(one.recorder, `${HEADER}[1.5,"o","a needle"]\n`);
    await uploadWhole(two.recorder, `${HEADER}[1.5,"o","another needle"]\n`);
    const alertCount = async (outcome: string): Promise<number> => {
      const counts = registries.map((registry) =>
        registry.getSingleMetric('tailcast_recorder_alerts_total')!.get(),
      );
      return (await Promise.all(counts))
        .flatMap(({ values }) => values)
        .filter(({ labels }) => labels['outcome'] === outcome)
        .reduce((sum, { value }) => sum + value, 0);
    };
    await until(async () => {
      // listing makes each recorder find the recordings of the other one
      await Promise.all([one.list(), two.list()]);
      return (await alertCount('delivered')) + (await alertCount('elsewhere')) === 4 ? true : undefined;
    });
    expect([await alertCount('delivered'), await alertCount('elsewhere')]).toEqual([2, 2]);
    expect(receiver.received).toHaveLength(2);
    const marks = await openStore({ prefix: 'alerts/' }).listDocuments('.alerts/');
    expect(marks.map((name) => name.slice(-5))).toEqual(['.told', '.told']);
  });
});

/** Returns the path of the recorder's signing key. */
function signingKeyOf({ spool }: { readonly spool: string }): string {
  return join(spool, 'evidence', 'key.pem');
}

/** Runs `tailcast` in this process with the settings of the server. */
async function tailcast(
  command: string,
  prefix: string,
  ...args: string[]
): Promise<{ readonly code: number; readonly stdout: string }> {
  return run(command, `s3://recordings/${prefix}`, ...args);
}

async function run(...args: string[]): Promise<{ readonly code: number; readonly stdout: string }> {
  let written = '';
  const stdout = new PassThrough().on('data', (chunk: Buffer) => {
    written += String(chunk);
  });
  const code = await runProgram(args, {
    stdout,
    stderr: process.stderr,
    environment: new Map([
      ['TAILCAST_S3_ENDPOINT', server.endpoint],
      ['TAILCAST_S3_REGION', server.region],
    ]),
    signal: new AbortController().signal,
  });
  await once(stdout.end(), 'end');
  return { code, stdout: written };
}

describe('an archive in a bucket', () => {
  /** Starts a recorder that has stored a few sessions. */
  async function record(prefix: string): Promise<RecorderRig> {
    const rig = await createRecorderRig({ bucket: openBucket({ prefix: `${prefix}/` }) });
    for (const command of ['one', 'two', 'three']) {
      await uploadWhole(rig.recorder, HEADER.replace('sh -i', command) + '[1,"o","x"]\n'.repeat(500));
    }
    return rig;
  }

  const keyOf = async (rig: RecorderRig): Promise<readonly string[]> => {
    return ['--key', (await loadSigningKey(signingKeyOf(rig), false)).public.raw];
  };

  const objects = async (prefix: string): Promise<readonly string[]> => {
    const { Contents = [] } = await admin.send(
      new ListObjectsV2Command({ Bucket: 'recordings', Prefix: `${prefix}/` }),
    );
    return Contents.map(({ Key = '' }) => Key);
  };

  it('is verified where it is, and what is done to it is found and named', async () => {
    await using rig = await record('verified');
    await rig.recorder.close();
    const checkpoint = join(folder, 'checkpoint');
    const key = await keyOf(rig);
    expect(await tailcast('verify', 'verified', ...key, '--save-checkpoint', checkpoint)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('3 recordings with evidence'),
    });
    const names = await objects('verified');
    const contents = new Map<string, Uint8Array>();
    for (const Key of names) {
      const { Body } = await admin.send(new GetObjectCommand({ Bucket: 'recordings', Key }));
      contents.set(Key, (await Body?.transformToByteArray()) ?? new Uint8Array());
    }
    const put = (Key: string, Body: Uint8Array): Promise<unknown> =>
      admin.send(new PutObjectCommand({ Bucket: 'recordings', Key, Body }));
    const drop = (Key: string): Promise<unknown> =>
      admin.send(new DeleteObjectCommand({ Bucket: 'recordings', Key }));
    const [first = '', second = ''] = names.filter((name) => name.endsWith('.cast'));
    const timeOf = (name: string): string => name.slice(name.lastIndexOf('/') + 1, -'.cast'.length);
    const flipped = Buffer.from(contents.get(first) ?? []);
    flipped[flipped.length - 5] = (flipped.at(-5) ?? 0) ^ 1;
    const kinds: readonly (readonly [string, () => Promise<unknown>, RegExp])[] = [
      ['flip', () => put(first, flipped), new RegExp(`FAULT .*${timeOf(first)}`)],
      ['truncate', () => put(first, flipped.subarray(0, 700)), new RegExp(`FAULT .*${timeOf(first)}`)],
      ['swap', () => put(first, contents.get(second) ?? flipped), new RegExp(`FAULT .*${timeOf(first)}`)],
      ['delete', () => drop(first), new RegExp(`FAULT .*${timeOf(first)}`)],
      [
        'delete all of it',
        () => Promise.all([drop(first), drop(first.replace('.cast', '.json'))]),
        new RegExp(`FAULT .*${timeOf(first)}`),
      ],
      ['a sidecar', () => drop(second.replace('.cast', '.json')), new RegExp(`FAULT .*${timeOf(second)}`)],
      [
        'the log',
        () => drop(names.findLast((name) => name.includes('/.evidence/logs/')) ?? ''),
        /FAULT .*log /,
      ],
    ];
    for (const [name, change, expected] of kinds) {
      await change();
      const { code, stdout } = await tailcast('verify', 'verified', ...key, '--checkpoint', checkpoint);
      expect([name, code]).toEqual([name, 1]);
      expect(stdout, name).toMatch(expected);
      for (const [name_, content] of contents) await put(name_, content);
    }
    expect((await tailcast('verify', 'verified', ...key, '--checkpoint', checkpoint)).code).toBe(0);
  });

  it('is listed and played by the tools without a recorder', async () => {
    await using rig = await record('listed');
    const [newest] = await rig.list();
    await rig.recorder.close();
    const store = ['--store', 's3://recordings/listed'];
    const list = await run('ls', ...store, '--json');
    expect(list.code).toBe(0);
    expect(list.stdout).toContain('"command":"three"');
    const played = await run('play', newest?.id ?? '', ...store, '--speed', '1000');
    expect(played).toMatchObject({ code: 0, stdout: expect.stringContaining('xxx') });
  });

  it('has a retention plan, holds, and is cleaned up with tombstones in the log', async () => {
    await using rig = await record('retained');
    const [, held] = await rig.list();
    const policy = ['--max-bytes', '1', '--min-age-days', '0'];
    expect((await tailcast('retention', 'retained', ...policy)).stdout).toMatch(
      /^3 would be removed, 0 held/m,
    );
    const hold = [
      ...policy,
      '--evidence-key',
      signingKeyOf(rig),
      '--hold',
      held?.id ?? '',
      '--reason',
      'case 17',
    ];
    const plan = await tailcast('retention', 'retained', ...hold);
    expect(plan.stdout).toMatch(/^2 would be removed, 1 held/m);
    await using again = await rig.restart({
      bucket: openBucket({ prefix: 'retained/' }),
      retention: { maxBytes: 1 },
      timing: { listRefreshMs: 0, retentionMs: 20 },
    });
    const left = await until(async () => {
      const found = await again.list();
      return found.length === 1 ? found : undefined;
    });
    expect(left.map(({ id }) => id)).toEqual([held?.id]);
    await again.recorder.close();
    expect(await tailcast('verify', 'retained', ...(await keyOf(rig)))).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('1 recordings with evidence, 0 without, 2 removed'),
    });
  });
});
