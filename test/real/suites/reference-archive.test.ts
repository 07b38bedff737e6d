/**
 * Lists, plays, searches, verifies and removes recordings that tsrecorder (part of *the reference*) left in a bucket of
 * a real S3 server, or in a directory. Recordings of tailcast's recorder are next to them.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { CreateBucketCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../../src/cli/program.ts';
import { loadSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { S3Bucket } from '../../../src/tsrecorder/store/s3-bucket.ts';
import { S3_DEFAULTS } from '../../../src/tsrecorder/store/s3-client.ts';
import {
  createRig,
  HEADER,
  until,
  uploadWhole,
  type Rig as Recorder,
} from '../../tsrecorder/recorder-rig.ts';
import { createRig as createPeers, type Rig as Peers } from '../rig/rig.ts';
import { startS3, type S3Server } from '../rig/s3.ts';

const BUCKET = 'recordings';
const DAY_MS = 86_400_000;
const NODE = 'nREFERENCE1CNTRL';
const GOLDEN = join(import.meta.dirname, '../../fixtures/golden');
const golden = (name: string): string => readFileSync(join(GOLDEN, `${name}.cast`), 'utf8');

/** Returns a time as in the reference's object keys, which omit trailing zeros of the fraction. */
const timeOf = (daysAgo: number): string =>
  new Date(Date.now() - daysAgo * DAY_MS).toISOString().replace(/\.\d+Z$/, '.0334257Z');
const OLD = timeOf(400);
const RECENT = timeOf(2);
const [oldId, recentId] = [`${NODE}_${OLD}`, `${NODE}_${RECENT}`];

/** Objects in the reference's format, by key. */
const OBJECTS: Readonly<Record<string, string>> = {
  'check-write-access': '',
  '.events-exist': '',
  [`${NODE}/${OLD}.cast`]: withDestination(golden('notty-ws')),
  [`${NODE}/${RECENT}.cast`]: withDestination(golden('tty-resize-ws')),
  [`${NODE}/events/${RECENT}.event`]: `{"stableID":"${NODE}","event":{},"timestamp":"2026-07-29 10:44:42 +0000 UTC"}\n`,
};

/**
 * Returns the cast with the header that tsrecorder stores: its keys are in alphabetical order, and it names the
 * uploader.
 */
function withDestination(cast: string): string {
  const [header = '', ...events] = cast.split('\n');
  const fields = { ...(JSON.parse(header) as object), dstNode: 'k8s-operator.tail1.ts.net', dstNodeID: NODE };
  const sorted = Object.entries(fields).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return [JSON.stringify(Object.fromEntries(sorted)), ...events].join('\n');
}

let peers: Peers;
let s3: S3Server;
let scratch = '';

beforeAll(async () => {
  peers = createPeers();
  s3 = await startS3(peers);
  scratch = mkdtempSync(join(tmpdir(), 'tcold-'));
  process.env['AWS_ACCESS_KEY_ID'] = s3.accessKeyId;
  process.env['AWS_SECRET_ACCESS_KEY'] = s3.secretAccessKey;
});

afterAll(async () => {
  await peers?.stop();
  rmSync(scratch, { recursive: true, force: true });
});

/** Runs `tailcast` in this process with the settings of the S3 server. */
async function tailcast(...args: readonly string[]): Promise<{ code: number; out: string }> {
  const stdout = new PassThrough();
  const out = text(stdout);
  const environment = new Map([
    ['TAILCAST_S3_ENDPOINT', s3.endpoint],
    ['TAILCAST_S3_REGION', s3.region],
  ]);
  const { signal } = new AbortController();
  const code = await runProgram(args, { environment, stdout, stderr: process.stderr, signal });
  stdout.end();
  return { code, out: await out };
}

describe.each(['bucket', 'directory'] as const)('a %s of the reference', (kind) => {
  const directory = (): string => join(scratch, 'archive');
  let bucket: S3Bucket | undefined;
  let recorder: Recorder;
  let ours: readonly string[] = [];

  beforeAll(async () => {
    if (kind === 'bucket') {
      const client = new S3Client({ endpoint: s3.endpoint, region: s3.region, forcePathStyle: true });
      await client.send(new CreateBucketCommand({ Bucket: BUCKET }));
      for (const [Key, Body] of Object.entries(OBJECTS))
        await client.send(new PutObjectCommand({ Bucket: BUCKET, Key, Body }));
      client.destroy();
      const { endpoint, region } = s3;
      const settings = { ...S3_DEFAULTS, bucket: BUCKET, prefix: '', endpoint, region, pathStyle: true };
      bucket = new S3Bucket(settings, () => Date.now());
    } else {
      for (const [key, content] of Object.entries(OBJECTS)) {
        mkdirSync(dirname(join(directory(), key)), { recursive: true });
        writeFileSync(join(directory(), key), content);
      }
    }
    const storage = bucket === undefined ? {} : { bucket };
    recorder = await createRig(
      { ...storage, searchText: 'all', timing: { listRefreshMs: 0 } },
      kind === 'directory' ? directory() : undefined,
    );
    for (const word of ['needle-one', 'needle-two'])
      await uploadWhole(recorder.recorder, `${HEADER}[1,"o","${word}\\r\\n"]\n`);
    ours = (await recorder.list()).filter(({ id }) => !id.startsWith(NODE)).map(({ id }) => id);
  });

  afterAll(async () => {
    await recorder?.[Symbol.asyncDispose]();
    bucket?.close();
  });

  const store = (): string => (kind === 'directory' ? directory() : `s3://${BUCKET}/`);
  const keyFile = (): string => join(recorder.spool, 'evidence', 'key.pem');
  const publicKey = async (): Promise<string> => (await loadSigningKey(keyFile(), false)).public.raw;

  /** Returns the recordings that are removed according to the evidence log in the store. */
  function removalsInLog(): readonly string[] {
    const logs = join(kind === 'directory' ? directory() : join(s3.folder, BUCKET), '.evidence', 'logs');
    const files = readdirSync(logs, { recursive: true, withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    );
    const lines = files.flatMap((file) => readFileSync(join(file.parentPath, file.name), 'utf8').split('\n'));
    return lines.flatMap((line) => /"kind":"removed","recording":"([^"]+)"/.exec(line)?.[1] ?? []);
  }

  it('lists old and new recordings, and marks the old ones as unverified', async () => {
    const listed = await recorder.list();
    expect(listed.map(({ id }) => id)).toEqual([...ours, recentId, oldId]);
    expect(listed.map(({ trust }) => trust)).toEqual(['verified', 'verified', 'unverified', 'unverified']);
    expect(listed[2]).toMatchObject({
      state: 'completed',
      command: 'sh -i',
      width: 101,
      source: { user: 'alice@example.com' },
      destination: { node: 'k8s-operator.tail1.ts.net', nodeId: NODE },
    });
  });

  it('plays an old recording through the recorder, and without it', async () => {
    const { body } = await recorder.get(`/api/v1/recordings/${recentId}/cast`);
    expect(body).toBe(OBJECTS[`${NODE}/${RECENT}.cast`]);
    const played = await tailcast('play', oldId, '--store', store(), '--speed', '1000');
    expect(played).toMatchObject({ code: 0, out: expect.stringContaining('out1') });
  });

  it('finds words of old and new recordings', async () => {
    const search = async (word: string): Promise<readonly string[]> => {
      const { body } = await recorder.get(`/api/v1/search?q=${word}`);
      const { sessions } = JSON.parse(body) as { sessions: readonly { recording: { id: string } }[] };
      return sessions.map(({ recording }) => recording.id);
    };
    await until(async () => ((await search('needle-one')).length > 0 ? true : undefined));
    expect(await search('out1')).toEqual([oldId]);
    expect(await search('needle-two')).toEqual([ours[0]]);
  });

  it('verifies new recordings, and reports old ones as unsigned', async () => {
    const key = ['--key', await publicKey()];
    const all = await tailcast('verify', store(), ...key);
    expect(all).toMatchObject({
      code: 0,
      out: expect.stringContaining('2 recordings with evidence, 2 without'),
    });
    const one = await tailcast('verify', store(), recentId, ...key);
    expect(one.code).toBe(3);
    expect(one.out).toContain('no-evidence');
    expect(one.out).toContain(`${recentId}: unverified`);
    expect((await tailcast('verify', store(), ...key, '--require-evidence')).code).toBe(1);
  });

  it('plans the removal of old recordings by the same rules, and keeps those with a hold', async () => {
    const plan = async (...policy: readonly string[]): Promise<Plan> => {
      const key = ['--evidence-key', keyFile()];
      const { out } = await tailcast('retention', store(), ...key, ...policy, '--json');
      const { remove, held } = JSON.parse(out) as Record<string, readonly { id: string; reason: string }[]>;
      const shown = (list: typeof remove): readonly string[] =>
        (list ?? []).map(({ id, reason }) => `${reason} ${id}`);
      return { remove: shown(remove), held: shown(held) };
    };
    expect(await plan('--max-age-days', '300')).toEqual({ remove: [`age ${oldId}`], held: [] });
    expect(await plan('--max-bytes', '1', '--min-age-days', '0')).toEqual({
      remove: [
        `unverified ${oldId}`,
        `unverified ${recentId}`,
        ...ours.toReversed().map((id) => `quota ${id}`),
      ],
      held: [],
    });
    const hold = ['--hold', recentId, '--reason', 'case 17'];
    expect(await plan('--max-age-days', '1', ...hold)).toEqual({
      remove: [`age ${oldId}`],
      held: [`age ${recentId}`],
    });
  });

  it('removes what is too old, logs it, and still verifies', async () => {
    recorder = await recorder.restart({
      retention: { maxAgeMs: DAY_MS },
      timing: { listRefreshMs: 0, retentionMs: 20 },
    });
    const left = await until(async () => {
      const found = (await recorder.list()).map(({ id }) => id);
      return found.includes(oldId) ? undefined : found;
    });
    expect(left).toEqual([...ours, recentId]);
    await recorder.recorder.close();
    expect(removalsInLog()).toEqual([oldId]);
    expect(await tailcast('verify', store(), '--key', await publicKey())).toMatchObject({
      code: 0,
      out: expect.stringContaining('2 recordings with evidence, 1 without'),
    });
  });
});

interface Plan {
  readonly remove: readonly string[];
  readonly held: readonly string[];
}
