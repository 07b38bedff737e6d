/**
 * Recorders that store compressed archives in a directory or a bucket. Readers must get the bytes of the uncompressed
 * casts.
 */
import { randomBytes } from 'node:crypto';
import { readFile, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { PassThrough } from 'node:stream';
import { createArchiveStore } from '../../src/tsrecorder/store/archive-store.ts';
import { createSealKeys } from '../../src/tsrecorder/store/seal-keys.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { createS3Store, S3_LISTING } from '../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import { generateSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { parseViewRule } from '../../src/tsrecorder/serving/viewing.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createRig, HEADER, STORED_HEADER, until, uploadWhole, type Rig } from './recorder-rig.ts';
import { createMemoryBucket, type MemoryBucket } from './store/memory-bucket.ts';

let rig: Rig | undefined;
afterEach(async () => {
  await rig?.[Symbol.asyncDispose]();
  rig = undefined;
});

/** Frames of distinct lines. Some lines cannot be compressed. */
const LINES = Array.from(
  { length: 9_000 },
  (_, at) =>
    `[${at / 100},"o","line ${at} ${at % 9 === 0 ? randomBytes(90).toString('base64') : 'of a build'}\\r\\n"]\n`,
).join('');
const PLAIN = STORED_HEADER + LINES;
const RESIZE = HEADER.replace('"sh -i"', '"second"');

async function castOf(from: Rig, id: string, headers = {}): Promise<string> {
  return (await from.get(`/api/v1/recordings/${id}/cast`, headers)).body;
}

/** Returns only those findings that are faults. */
async function faultsOf(
  store: RecordingStore,
): Promise<readonly { readonly code: string; readonly message: string }[]> {
  const key = generateSigningKey();
  const { findings } = await verifyStore({ store, keys: [key.public], checkpoint: [], nowMs: Date.now() });
  return findings.filter(({ severity }) => severity === 'fault');
}

describe.each<[string, () => MemoryBucket | undefined]>([
  ['a directory', () => undefined],
  ['a bucket', () => createMemoryBucket()],
])('archives in %s', (_name, openBucket) => {
  it('are listed, read by ranges, normalised and kept over a restart like plain casts', async () => {
    const bucket = openBucket();
    const options = bucket === undefined ? {} : { bucket };
    rig = await createRig({ archive: 'zstd', ...options });
    await uploadWhole(rig.recorder, HEADER + LINES);
    await uploadWhole(rig.recorder, RESIZE);
    const [found] = await rig.list('?text=sh');
    const { id, key, bytes } = found!;
    expect(bytes).toBe(Buffer.byteLength(PLAIN));
    const stored =
      bucket === undefined ? await readFile(join(rig.directory, key)) : bucket.objects.get(key)!.content;
    expect(stored.subarray(0, 4).toString('hex')).toBe('28b52ffd');
    expect(stored.length).toBeLessThan(bytes / 3);
    for (const format of ['zstd', 'plain'] as const) {
      expect(await castOf(rig, id)).toBe(PLAIN);
      for (const [first, last] of [
        [0, 9],
        [262_140, 262_150],
        [bytes - 5, bytes - 1],
      ] as const) {
        expect(await castOf(rig, id, { range: `bytes=${first}-${last}` })).toBe(PLAIN.slice(first, last + 1));
      }
      const normalised = await rig.get(`/api/v1/recordings/${id}/cast?normalise=1&follow=1`);
      expect(normalised.body.endsWith(LINES.slice(-40))).toBe(true);
      rig = await rig.restart({ archive: format === 'zstd' ? 'plain' : 'zstd' });
      expect((await rig.list()).map((recording) => recording.bytes)).toContain(bytes);
    }
    expect(await rig.list()).toHaveLength(2);
  });

  it('are verified by the bytes that they contain, and damage is a separate fault that names the archive', async () => {
    const bucket = openBucket();
    rig = await createRig({ archive: 'zstd', ...(bucket === undefined ? {} : { bucket }) });
    await uploadWhole(rig.recorder, HEADER + LINES);
    const [found] = await rig.list();
    const { key, id } = found!;
    await rig.recorder.close();
    const { directory } = rig;
    const open = async (): Promise<RecordingStore> =>
      createArchiveStore(
        bucket === undefined
          ? await createDiskStore(directory, { readOnly: true })
          : createS3Store({ ...S3_LISTING, bucket, nowMs: Date.now }),
        'plain',
      );
    const codes = (await faultsOf(await open())).map(({ code }) => code);
    expect(codes.filter((code) => /^(cast|archive|recording)/.test(code))).toEqual([]);
    const path = join(directory, key);
    const whole = bucket === undefined ? await readFile(path) : bucket.objects.get(key)!.content;
    const changed = Buffer.from(whole);
    changed[5_000]! ^= 1;
    for (const damaged of [changed, whole.subarray(0, -1), whole.subarray(0, 300)]) {
      if (bucket === undefined) {
        await rm(path);
        await writeFile(path, damaged);
      } else bucket.objects.set(key, { content: damaged, modifiedAtMs: 0 });
      const [damage] = (await faultsOf(await open())).filter(({ code }) => code === 'archive-damaged');
      expect(damage).toMatchObject({ recording: id, message: expect.stringContaining(id) });
    }
  });
});

describe('a recorder that seals its recordings', () => {
  const bytes = randomBytes(32);
  const keyFile = (folder: string): string => join(folder, '.seal-keys');

  it('shows, follows and verifies them like plain casts, and nobody can read them without the key', async () => {
    rig = await createRig({ archive: 'sealed', sealKeys: createSealKeys([bytes]) });
    await uploadWhole(rig.recorder, HEADER + LINES);
    const [found] = await rig.list();
    const { id, key, bytes: length } = found!;
    expect(length).toBe(Buffer.byteLength(PLAIN));
    const stored = await readFile(join(rig.directory, key));
    expect(stored.subarray(0, 4).toString('hex')).toBe('522a4d18');
    expect(stored.length).toBeLessThan(length / 3);
    for (const options of [{}, { archive: 'plain' as const }]) {
      expect(await castOf(rig, id)).toBe(PLAIN);
      expect(await castOf(rig, id, { range: 'bytes=262140-262150' })).toBe(PLAIN.slice(262_140, 262_151));
      rig = await rig.restart(options);
    }
    await rig.recorder.close();

    await writeFile(keyFile(rig.directory), bytes.toString('base64'));
    const verify = async (environment: ReadonlyMap<string, string>): Promise<[number, string]> => {
      const [key] = await readdir(join(rig!.directory, '.evidence', 'keys'));
      const stdout = new PassThrough();
      const code = await runProgram(
        ['verify', rig!.directory, '--key', join(rig!.directory, '.evidence', 'keys', key!)],
        { stdout, stderr: new PassThrough(), environment, signal: new AbortController().signal },
      );
      return [code, String(stdout.read())];
    };
    const [code, text] = await verify(new Map([['TAILCAST_SEAL_KEYS', keyFile(rig.directory)]]));
    expect(text).toContain('no faults');
    expect(code).toBe(0);
    const [unread, fault] = await verify(new Map());
    expect(fault).toMatch(/recording-unreadable.*encrypted with a key that is not in the key file/);
    expect(unread).toBe(1);
  });
});

it('archives are readable by the commands that open a directory', async () => {
  rig = await createRig({ archive: 'zstd' });
  await uploadWhole(rig.recorder, HEADER + LINES);
  const [found] = await rig.list();
  await rig.recorder.close();
  const [key] = await readdir(join(rig.directory, '.evidence', 'keys'));
  const stdout = new PassThrough();
  const code = await runProgram(
    ['verify', rig.directory, '--key', join(rig.directory, '.evidence', 'keys', key!)],
    {
      stdout,
      stderr: new PassThrough(),
      environment: new Map(),
      signal: new AbortController().signal,
    },
  );
  expect(code).toBe(0);
  expect(found!.state).toBe('completed');
});

it.each([
  ['without an index', undefined],
  ['with an index', 'off'],
] as const)(
  'a changed sidecar makes a sealed recording visible to no further viewer (%s)',
  async (_index, searchText) => {
    let user = 'carol@example.com';
    await using rig = await createRig({
      archive: 'sealed',
      sealKeys: createSealKeys([randomBytes(32)]),
      identifyViewer: async () => ({ node: 'desk.tail1.ts.net', nodeId: `n ${user}`, user }),
      viewers: ['carol@example.com', 'mallory@example.com=namespace:test'].map(parseViewRule),
      ...(searchText === undefined ? {} : { searchText }),
    });
    await uploadWhole(rig.recorder, `${HEADER}[0.5,"o","the launch code is 0000\\r\\n"]\n`);
    const [found] = await rig.list();
    const castFile = join(rig.directory, found!.key);
    const sidecarFile = castFile.replace(/\.cast$/, '.json');
    const sidecar = await readFile(sidecarFile, 'utf8');
    await writeFile(sidecarFile, sidecar.replace('"namespace":"prod"', '"namespace":"test"'));
    // the recorder reads a recording again if the modification time of its cast has changed
    const later = new Date(Date.now() + 5000);
    await utimes(castFile, later, later);
    await until(async () => ((await rig.list())[0]?.trust === 'failed' ? true : undefined));
    expect((await rig.list())[0]?.kubernetes?.namespace).toBe('prod');
    user = 'mallory@example.com';
    expect((await rig.get(`/api/v1/recordings/${encodeURIComponent(found!.id)}/cast`)).status).toBe(404);
    expect(await rig.list()).toEqual([]);
  },
);
