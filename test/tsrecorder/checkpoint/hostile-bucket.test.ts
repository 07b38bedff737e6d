/** An attacker has write access to the shared bucket but no signing key, and attacks the takeover of sessions. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { parseRecordingId, recordingId, type RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import { encodeMeta, type SpoolMeta } from '../../../src/tsrecorder/spool/spool-journal.ts';
import { createRig, HEADER, openUpload, STORED_HEADER, until, type Rig } from '../recorder-rig.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

const TIMING = {
  checkpointMs: 20,
  leaseMs: 300,
  markMs: 20,
  publishMs: 20,
  resumeGraceMs: 60_000,
  listRefreshMs: 0,
  storeRetryMs: 20,
} as const;
const MADE_UP = 'fedcba9876543210';
const KEY: RecordingKey = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T10:44:42.000000001Z' };

const AUDITOR: Viewer = { node: 'audit.tail1.ts.net', nodeId: 'nAUDIT', user: 'auditor@example.com' };
const BOB: Viewer = { node: 'bob.tail1.ts.net', nodeId: 'nBOB', user: 'bob@example.com' };

/** Returns the first line of the journal of a forged session. */
const metaOf = (key: RecordingKey): SpoolMeta => ({
  ...key,
  nodeName: 'gateway.tail1.ts.net',
  address: '100.64.0.1',
  protocol: 'v2',
  uploadedHeaderBytes: HEADER.length,
  storedHeaderBytes: STORED_HEADER.length,
});

/** Creates recorders with one bucket, one evidence key and separate spools. */
async function createSite(): Promise<
  AsyncDisposable & {
    readonly bucket: MemoryBucket;
    recorder(registry?: Registry): Promise<Rig>;
    rounds(): Promise<void>;
  }
> {
  const bucket = createMemoryBucket();
  const folder = await mkdtemp(join(tmpdir(), 'hostile-bucket-'));
  const rigs: Rig[] = [];
  let listings = 0;
  bucket.before = (request, name) => {
    if (request === 'list' && name === '.recorders/') listings += 1;
  };
  return {
    bucket,
    async recorder(registry = new Registry()) {
      const machine = join(folder, `machine-${rigs.length}`);
      const rig = await createRig(
        { bucket, timing: TIMING, evidenceKey: join(folder, 'key.pem'), registry },
        machine,
      );
      rigs.push(rig);
      return rig;
    },
    /** Resolves after enough listings that every claim is older than the duration of a lease. */
    async rounds() {
      const goal = listings + 12;
      await until(async () => (listings >= goal ? true : undefined));
    },
    async [Symbol.asyncDispose]() {
      for (const rig of rigs) await rig.recorder.close();
    },
  };
}

const names = (bucket: MemoryBucket, prefix: string): readonly string[] =>
  [...bucket.objects.keys()].filter((name) => name.startsWith(prefix));

const copiedCast = (bucket: MemoryBucket): string =>
  names(bucket, '.open/')
    .filter((name) => name.includes('/cast-'))
    .toSorted()
    .map((name) => bucket.objects.get(name)!.content.toString())
    .join('');

/** Replaces `from` in every object below `prefix`. */
function forge(bucket: MemoryBucket, prefix: string, from: string, to: string): void {
  for (const name of names(bucket, prefix)) {
    const object = bucket.objects.get(name)!;
    const content = Buffer.from(object.content.toString().replaceAll(from, to));
    bucket.objects.set(name, { content, modifiedAtMs: Date.now() });
  }
}

async function upload(rig: Rig, body: string): Promise<ReturnType<typeof openUpload>> {
  const opened = openUpload(rig.recorder, { 'tailcast-session': 'one' });
  opened.stream.on('error', () => undefined);
  opened.write(body);
  await opened.headers;
  await opened.ack(({ ack }) => ack === Buffer.byteLength(body));
  return opened;
}

const castOf = async (rig: Rig, id: string): Promise<string> =>
  (await rig.get(`/api/v1/recordings/${id}/cast`)).body;

describe('a hostile writer of the shared bucket', () => {
  it('cannot make a recorder sign a session that never happened', async () => {
    await using site = await createSite();
    const registry = new Registry();
    const rig = await site.recorder(registry);
    const { bucket } = site;
    const folder = `.open/${MADE_UP}/${recordingId(KEY)}/`;
    await bucket.put(`${folder}notes-000000000000000`, Buffer.from(encodeMeta(metaOf(KEY))));
    await bucket.put(`${folder}cast-000000000000000`, Buffer.from(`${STORED_HEADER}[1,"o","forged"]\n`));
    await site.rounds();
    expect(names(bucket, `${KEY.nodeId}/`)).toEqual([]);
    expect(names(bucket, folder)).toHaveLength(2);
    expect(await rig.list()).toMatchObject([
      {
        id: recordingId(KEY),
        trust: 'unverified',
        trustReason: expect.stringMatching(/signed/) as unknown,
      },
    ]);
    // The alert TailcastSessionsUntrusted reads this metric.
    expect(await registry.getSingleMetricAsString('tailcast_recorder_untrusted_sessions')).toMatch(/ 1$/m);
  });

  it('cannot make lists read long copies of a session that never happened', async () => {
    await using site = await createSite();
    const { bucket } = site;
    const rig = await site.recorder();
    const folder = `.open/${MADE_UP}/${recordingId(KEY)}/`;
    const note = '{"at":0,"size":1,"note":{"kind":"stream","name":"stderr"}}\n'.repeat(20_000);
    await bucket.put(`${folder}notes-000000000000000`, Buffer.from(encodeMeta(metaOf(KEY)) + note));
    await bucket.put(`${folder}cast-000000000000000`, Buffer.from(`${STORED_HEADER}[1,"o","forged"]\n`));
    await until(async () => ((await rig.list()).length === 1 ? true : undefined));
    let reads = 0;
    const { before } = bucket;
    bucket.before = (request, name) => {
      if (request === 'get' && name.startsWith(`${folder}notes`)) reads += 1;
      before(request, name);
    };
    for (let count = 0; count < 5; count += 1) expect(await rig.list()).toHaveLength(1);
    expect(reads).toBe(0);
  });

  it('cannot show a hidden session to a viewer with a forged copy under its id', async () => {
    const bucket = createMemoryBucket();
    let viewer: Viewer = AUDITOR;
    await using rig = await createRig({
      bucket,
      timing: TIMING,
      identifyViewer: async () => viewer,
      viewers: ['auditor@example.com', 'bob@example.com=namespace:dev'].map(parseViewRule),
    });
    const running = await upload(rig, `${HEADER}[1,"o","genuine"]\n`);
    const [{ id } = { id: '' }] = await rig.list();
    const key = parseRecordingId(id)!;
    const folder = `.open/${MADE_UP}/${id}/`;
    const forged = STORED_HEADER.replace('"Namespace":"prod"', '"Namespace":"dev"');
    await bucket.put(`${folder}notes-000000000000000`, Buffer.from(encodeMeta(metaOf(key))));
    await bucket.put(`${folder}cast-000000000000000`, Buffer.from(`${forged}[1,"o","forged"]\n`));
    viewer = BOB;
    await until(async () => ((await rig.list()).length === 1 ? true : undefined));
    running.end();
    await running.over;
    viewer = AUDITOR;
    await until(async () => ((await rig.list())[0]?.state === 'completed' ? true : undefined));
    viewer = BOB;
    expect(await rig.list()).toEqual([]);
    expect((await rig.get(`/api/v1/recordings/${id}/cast`)).status).toBe(404);
  });

  it('cannot change the session of a lost recorder before another one takes it over', async () => {
    await using site = await createSite();
    const { bucket } = site;
    const [one, two] = [await site.recorder(), await site.recorder()];
    await upload(one, `${HEADER}[1,"o","genuine"]\n`);
    await until(async () => (copiedCast(bucket).includes('genuine') ? true : undefined));
    await one.recorder.close();
    forge(bucket, '.open/', 'genuine', 'forgery');
    await site.rounds();
    expect(names(bucket, 'nGATE1CNTRL/')).toEqual([]);
    expect(await two.list()).toMatchObject([{ trust: 'failed' }]);
  });

  it('cannot use a changed copy to take the id of a running session', async () => {
    await using site = await createSite();
    const { bucket } = site;
    const [one, two] = [await site.recorder(), await site.recorder()];
    const running = await upload(one, `${HEADER}[1,"o","genuine"]\n`);
    await until(async () => (copiedCast(bucket).includes('genuine') ? true : undefined));
    for (const name of names(bucket, '.open/')) {
      const [, , id = '', file = ''] = name.split('/');
      bucket.objects.set(`.open/${MADE_UP}/${id}/${file}`, { ...bucket.objects.get(name)! });
    }
    forge(bucket, `.open/${MADE_UP}/`, 'genuine', 'forgery');
    await site.rounds();
    const id = (await one.list())[0]!.id;
    running.end();
    await running.over;
    const stored = await until(async () => {
      const found = (await two.list()).filter(
        ({ state, trust }) => state === 'completed' && trust !== undefined,
      );
      return found.length > 0 ? found : undefined;
    });
    expect(stored).toMatchObject([{ id, trust: 'verified' }]);
    expect(await castOf(two, id)).toBe(`${STORED_HEADER}[1,"o","genuine"]\n`);
  });

  it('does not keep a recorder from taking over the genuine session of a lost one', async () => {
    await using site = await createSite();
    const { bucket } = site;
    const [one, two] = [await site.recorder(), await site.recorder()];
    await upload(one, `${HEADER}[1,"o","genuine"]\n`);
    const id = (await one.list())[0]!.id;
    await until(async () => (copiedCast(bucket).includes('genuine') ? true : undefined));
    await one.recorder.close();
    const adopted = await until(async () => {
      const found = (await two.list()).filter(
        ({ state, trust }) => state === 'interrupted' && trust !== undefined,
      );
      return found.length > 0 ? found : undefined;
    });
    expect(adopted).toMatchObject([{ id, trust: 'verified' }]);
    expect(await castOf(two, id)).toBe(`${STORED_HEADER}[1,"o","genuine"]\n`);
  });
});
