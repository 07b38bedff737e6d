import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { RecorderOptions } from '../../src/compose/recorder-options.ts';
import { createSignedCheck } from '../../src/tsrecorder/checkpoint/checkpoint.ts';
import { listOpenSessions } from '../../src/tsrecorder/checkpoint/segments.ts';
import { createRemoteSessions } from '../../src/tsrecorder/checkpoint/remote-sessions.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { recordingId } from '../../src/tsrecorder/store/key.ts';
import {
  createRig,
  HEADER,
  openUpload,
  STORED_HEADER,
  until,
  type Rig,
  type Upload,
} from './recorder-rig.ts';
import { createMemoryBucket, type MemoryBucket } from './store/memory-bucket.ts';

const SESSION = '{"kind":"session","id":"s","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n';
const END = '{"kind":"end","outcome":"completed","outputBytes":1,"outputLines":1}\n';
const FAST = {
  checkpointMs: 20,
  leaseMs: 400,
  resumeGraceMs: 60_000,
  listRefreshMs: 0,
  storeRetryMs: 20,
} as const;

/** Creates recorders with one bucket and one evidence key, each with its own disk. */
async function createSite(): Promise<
  AsyncDisposable & {
    readonly bucket: MemoryBucket;
    readonly key: string;
    recorder(options?: Partial<RecorderOptions>, on?: string): Promise<Rig>;
  }
> {
  const bucket = createMemoryBucket();
  const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-site-'));
  const rigs: Rig[] = [];
  return {
    bucket,
    key: join(folder, 'key.pem'),
    async recorder(options = {}, machine = `machine-${rigs.length}`) {
      const evidenceKey = join(folder, 'key.pem');
      const rig = await createRig({ bucket, timing: FAST, evidenceKey, ...options }, join(folder, machine));
      rigs.push(rig);
      return rig;
    },
    async [Symbol.asyncDispose]() {
      for (const rig of rigs) await rig.recorder.close();
    },
  };
}

async function begin(
  rig: Rig,
  body: string,
  name = 'one',
  more: Record<string, string> = {},
): Promise<Upload> {
  const upload = openUpload(rig.recorder, { 'tailcast-session': name, ...more });
  upload.stream.on('error', () => undefined);
  upload.write(body);
  await upload.headers;
  const preamble = Number(more['tailcast-preamble'] ?? 0);
  const offset = Number(more['tailcast-offset'] ?? 0);
  await upload.ack(({ ack }) => ack === offset + Buffer.byteLength(body) - preamble);
  return upload;
}

const names = (bucket: MemoryBucket, prefix: string): string[] =>
  [...bucket.objects.keys()].filter((name) => name.startsWith(prefix));

/** Returns the copied bytes that signed statements cover. Another recorder takes over only these bytes. */
const copied = (bucket: MemoryBucket): string =>
  names(bucket, '.open/')
    .filter((name) => name.endsWith('/proof'))
    .toSorted()
    .map((proof) => {
      const [statement = ''] = bucket.objects.get(proof)!.content.toString().split('\n');
      const { cast } = JSON.parse(statement) as { cast: { bytes: number } };
      const segments = names(bucket, proof.replace(/proof$/, 'cast-'))
        .toSorted()
        .map((name) => bucket.objects.get(name)!.content);
      return Buffer.concat(segments).subarray(0, cast.bytes).toString();
    })
    .join('');

async function castOf(rig: Rig, id: string): Promise<string> {
  return (await rig.get(`/api/v1/recordings/${id}/cast`)).body;
}

describe('recorders that share a bucket', () => {
  it('show the open sessions of the other recorders, and their bytes', async () => {
    await using site = await createSite();
    const [one, two] = [await site.recorder(), await site.recorder()];
    const upload = await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    const [seen, ...others] = await two.list();
    expect(others).toEqual([]);
    expect(seen).toMatchObject({ state: 'running', command: 'sh -i' });
    expect(await castOf(two, seen!.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n`);
    expect(await one.list()).toHaveLength(1);
    upload.write(`[2,"o","b"]\n${END}`);
    upload.end();
    await upload.over;
    const stored = await until(async () => {
      const [recording] = await two.list();
      return recording?.state === 'completed' ? recording : undefined;
    });
    expect(stored.id).toBe(seen!.id);
    expect(await castOf(two, stored.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`);
    await until(async () => (names(site.bucket, '.open/').length === 0 ? true : undefined));
  });

  it('copy long sessions in segments, and each byte about once', async () => {
    await using site = await createSite();
    // the lease is long, because a recorder that loses its lease on a busy machine copies everything again
    const one = await site.recorder({ timing: { ...FAST, leaseMs: 60_000 } });
    const upload = await begin(one, HEADER);
    const line = `[1,"o","${'x'.repeat(400_000)}"]\n`;
    let written = 0;
    site.bucket.before = (request, name) => {
      if (request === 'put' && name.includes('/cast-')) written += 1;
    };
    for (let count = 1; count <= 12; count += 1) {
      upload.write(line);
      await until(async () =>
        copied(site.bucket).length === STORED_HEADER.length + count * line.length ? true : undefined,
      );
    }
    expect(copied(site.bucket)).toBe(STORED_HEADER + line.repeat(12));
    expect(names(site.bucket, '.open/').filter((name) => name.includes('/cast-')).length).toBeGreaterThan(3);
    expect(written).toBeLessThan(30);
  });

  it('finish the session of a recorder that is lost with its machine', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    const two = await site.recorder();
    await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    await one.recorder.close();
    await rm(one.directory, { recursive: true });
    const recording = await until(async () => {
      const [found, ...others] = await two.list();
      return found?.state === 'interrupted' && others.length === 0 ? found : undefined;
    });
    expect(recording.problem).toBe('the recorder that had the session was lost');
    await until(async () => (names(site.bucket, '.open/').length === 0 ? true : undefined));
    expect(await castOf(two, recording.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n`);
    expect(names(site.bucket, 'nGATE1CNTRL/').some((name) => name.endsWith('.notes'))).toBe(true);
    // the lease of the lost recorder is removed, too
    await until(async () => (names(site.bucket, '.recorders/').length === 1 ? true : undefined));
  });

  it('treat a session as complete if it had ended before its recorder was lost', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    const two = await site.recorder();
    await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n${END}`);
    const notes = (): string =>
      names(site.bucket, '.open/')
        .filter((name) => name.includes('/notes-'))
        .map((name) => site.bucket.objects.get(name)!.content.toString())
        .join('');
    await until(async () =>
      copied(site.bucket).includes('"a"') && notes().includes('completed') ? true : undefined,
    );
    await one.recorder.close();
    await rm(one.directory, { recursive: true });
    await until(async () => (names(site.bucket, '.open/').length === 0 ? true : undefined));
    expect(await two.list()).toMatchObject([{ state: 'completed' }]);
  });

  it('copy everything to the bucket before they exit, and abort old uploads when they start', async () => {
    await using site = await createSite();
    const sweep = vi.spyOn(site.bucket, 'sweepUploads');
    const one = await site.recorder({ timing: { ...FAST, checkpointMs: 1_000_000, leaseMs: 1_000_000 } });
    expect(sweep).toHaveBeenCalledTimes(1);
    await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`);
    const { put } = site.bucket;
    const slow = vi.spyOn(site.bucket, 'put').mockImplementation(async (...parts) => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      await put(...parts);
    });
    onTestFinished(() => slow.mockRestore());
    await one.recorder.close();
    expect(copied(site.bucket)).toBe(`${STORED_HEADER}[1,"o","a"]\n`);
  });

  it('read the start of a session that is open at another recorder only once', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    for (const name of ['one', 'two']) await begin(one, `${HEADER}${SESSION}[1,"o","${name}"]\n`, name);
    await until(async () =>
      ['one', 'two'].every((name) => copied(site.bucket).includes(`"${name}"`)) ? true : undefined,
    );
    await one.recorder.close();
    let read = 0;
    site.bucket.before = (request) => void (request === 'get' && (read += 1));
    const key = await loadSigningKey(site.key, false);
    const trusted = new Map([[key.public.id, key.public]]);
    const remote = createRemoteSessions(site.bucket, () => 'another', trusted);
    expect(await remote()).toHaveLength(2);
    expect(read).toBeGreaterThan(0);
    read = 0;
    expect(await remote()).toHaveLength(2);
    expect(read).toBe(0);
  });

  it('read a limited number of forged statements for each list', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    await one.recorder.close();
    const genuine = names(site.bucket, '.open/').find((name) => name.endsWith('/proof'));
    const { content } = site.bucket.objects.get(genuine!)!;
    for (let number = 0; number < 2500; number += 1) {
      const time = `2026-07-29T10:44:42.${String(number).padStart(9, '0')}Z`;
      // in the order of names, the forged sessions precede the genuine one
      const name = `.open/0/${recordingId({ nodeId: 'nGATE1CNTRL', time })}/proof`;
      site.bucket.objects.set(name, { content, modifiedAtMs: 0 });
    }
    let read = 0;
    site.bucket.before = (request, name) =>
      void (request === 'get' && name.startsWith('.open/0/') && (read += 1));
    const key = await loadSigningKey(site.key, false);
    const remote = createRemoteSessions(site.bucket, () => 'another', new Map([[key.public.id, key.public]]));
    const reads: number[] = [];
    let found: Awaited<ReturnType<typeof remote>> = [];
    for (let list = 0; list < 5; list += 1) {
      read = 0;
      found = await remote();
      reads.push(read);
    }
    expect(reads).toEqual([1000, 1000, 500, 0, 0]);
    expect(found.map(({ sessionMark }) => sessionMark)).toEqual([expect.any(String)]);
  });

  it('count only unsigned statements towards the limit of a list', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    for (let number = 0; number < 12; number += 1)
      await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`, `session-${number}`);
    await until(async () =>
      names(site.bucket, '.open/').filter((name) => name.endsWith('/proof')).length === 12 ? true : undefined,
    );
    await one.recorder.close();
    const key = await loadSigningKey(site.key, false);
    const checks = createSignedCheck(site.bucket, new Map([[key.public.id, key.public]]), 5);
    const isSigned = checks();
    const signed: boolean[] = [];
    for (const session of await listOpenSessions(site.bucket)) signed.push(await isSigned(session));
    expect(signed).toEqual(Array.from({ length: 12 }, () => true));
  });

  it('do not take over the sessions of a recorder that is alive', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    const two = await site.recorder();
    const upload = await begin(one, `${HEADER}[1,"o","a"]\n`);
    const renewed = (): number =>
      site.bucket.objects.get(names(site.bucket, '.recorders/')[0]!)!.modifiedAtMs;
    const since = Date.now();
    await until(async () => (renewed() - since > 2 * FAST.leaseMs ? true : undefined));
    expect((await two.list()).map(({ state }) => state)).toEqual(['running']);
    upload.close();
  });

  it('do not show a byte twice after a lost recorder returns', async () => {
    await using site = await createSite();
    const one = await site.recorder({}, 'first');
    await begin(one, `${HEADER}${SESSION}[1,"o","a"]\n`);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    // uploads to the bucket fail from here on, so the recorder's disk gets more output than the bucket
    site.bucket.before = (request) => {
      if (request === 'put') throw new Error('the network is gone');
    };
    const more = `[2,"o","b"]\n`;
    const offset = `${HEADER}${SESSION}[1,"o","a"]\n`.length;
    await begin(one, more, 'one', { 'tailcast-offset': String(offset) });
    await one.recorder.close();
    site.bucket.before = () => undefined;
    const two = await site.recorder({}, 'second');
    await until(async () => {
      const [found] = await two.list();
      return found?.state === 'interrupted' && names(site.bucket, '.open/').length === 0 ? found : undefined;
    });
    const back = await site.recorder({ timing: { ...FAST, resumeGraceMs: 1 } }, 'first');
    await until(async () => {
      const [found, ...others] = await two.list();
      const whole = `${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`;
      return others.length === 0 && found?.bytes === whole.length ? found : undefined;
    });
    const [whole] = await two.list();
    expect(await castOf(two, whole!.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`);
    expect(await castOf(back, whole!.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`);
  });

  it('continue a session whose first recorder is lost, as one recording', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    const two = await site.recorder();
    const first = `${HEADER}${SESSION}[1,"o","a"]\n`;
    await begin(one, first);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    await one.recorder.close();
    await rm(one.directory, { recursive: true });
    const preamble = HEADER + SESSION;
    const upload = await begin(two, `${preamble}[2,"o","b"]\n`, 'one', {
      'tailcast-part': '2',
      'tailcast-offset': String(first.length),
      'tailcast-preamble': String(preamble.length),
    });
    const [running, ...others] = await two.list();
    expect(others).toEqual([]);
    expect(running).toMatchObject({ state: 'running' });
    expect(running).not.toHaveProperty('problem');
    upload.write(END);
    upload.end();
    await upload.over;
    await until(async () => (names(site.bucket, '.open/').length === 0 ? true : undefined));
    const [whole, ...rest] = await two.list();
    expect(rest).toEqual([]);
    expect(whole).toMatchObject({ state: 'completed', id: running!.id });
    expect(await castOf(two, whole!.id)).toBe(`${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`);
  });

  it('accept sessions while the bucket is unreachable, and store them later', async () => {
    await using site = await createSite();
    const one = await site.recorder();
    site.bucket.before = (request) => {
      if (request !== 'stat') throw new Error('the network is gone');
    };
    const upload = await begin(one, `${HEADER}[1,"o","a"]\n`);
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)?.error).toBeUndefined();
    site.bucket.before = () => undefined;
    await until(async () => (names(site.bucket, 'nGATE1CNTRL/').length === 2 ? true : undefined));
    expect(await one.list()).toMatchObject([{ state: 'completed' }]);
  });

  it('find their own segments again after a restart', async () => {
    await using site = await createSite();
    const one = await site.recorder({}, 'same');
    const body = `${HEADER}${SESSION}[1,"o","a"]\n`;
    await begin(one, body);
    await until(async () => (copied(site.bucket).includes('"a"') ? true : undefined));
    await one.recorder.close();
    const again = await site.recorder({}, 'same');
    const upload = await begin(again, `[2,"o","b"]\n`, 'one', { 'tailcast-offset': String(body.length) });
    await until(async () => (copied(site.bucket).includes('"b"') ? true : undefined));
    expect(copied(site.bucket)).toBe(`${STORED_HEADER}[1,"o","a"]\n[2,"o","b"]\n`);
    upload.write(END);
    upload.end();
    await upload.over;
    await until(async () => (names(site.bucket, '.open/').length === 0 ? true : undefined));
    expect(await again.list()).toMatchObject([{ state: 'completed' }]);
  });
});
