import { createHash } from 'node:crypto';
import { appendFile, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { readCheckpoint } from '../../../src/tsrecorder/checkpoint/checkpoint.ts';
import { createCopies } from '../../../src/tsrecorder/checkpoint/copies.ts';
import { listOpenSessions } from '../../../src/tsrecorder/checkpoint/segments.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import type { LiveRecording } from '../../../src/tsrecorder/library/live-recording.ts';
import { createMemoryBucket } from '../store/memory-bucket.ts';
import { HEADER, UPLOADER } from '../recorder-rig.ts';
import { createTakeoverSite } from './takeover-site.ts';

const MEBIBYTE = 1024 ** 2;

it('a segment is rewritten while it is small, and left unchanged when it is large', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'copies-'));
  const paths = { cast: join(directory, 'cast'), notes: join(directory, 'notes') };
  await writeFile(paths.notes, 'meta\n');
  await writeFile(paths.cast, '');
  const bucket = createMemoryBucket();
  const put: string[] = [];
  bucket.before = (request, name) =>
    void (request === 'put' && put.push(name.slice(name.lastIndexOf('/') + 1)));
  let castBytes = 0;
  const key = generateSigningKey();
  const of = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T10:44:42.000000001Z' };
  const live = {
    key: of,
    paths,
    durable: () => ({ castBytes, notesBytes: 5, bodyBytes: castBytes }),
  } as unknown as LiveRecording;
  const copies = createCopies({
    bucket,
    recorder: () => '0123456789abcdef',
    evidence: { log: 'a'.repeat(32), key, startOf: () => ({ n: 3, header: 'b'.repeat(64) }) },
    live: () => [live],
    log: createSilentLogger(),
    onBytes: () => undefined,
    onFailure: () => undefined,
  });
  const grow = async (bytes: number): Promise<readonly string[]> => {
    await appendFile(paths.cast, Buffer.alloc(bytes, 'x'));
    castBytes += bytes;
    put.length = 0;
    await copies.update();
    return put;
  };
  const segment = (start: number): string => `cast-${String(start).padStart(15, '0')}`;
  expect(await grow(10)).toEqual(['notes-000000000000000', segment(0), 'proof']);
  expect(await grow(MEBIBYTE - 11)).toEqual([segment(0), 'proof']);
  expect(await grow(1)).toEqual([segment(0), 'proof']);
  expect(await grow(10)).toEqual([segment(MEBIBYTE), 'proof']);
  expect(await grow(0)).toEqual([]);
  // the new output exceeds the maximum size of one segment, so the recorder writes two segments
  expect(await grow(5 * MEBIBYTE)).toEqual([segment(MEBIBYTE), segment(5 * MEBIBYTE), 'proof']);
  const whole = [...bucket.objects].filter(([name]) => name.includes('/cast-'));
  expect(whole.reduce((sum, [, { content }]) => sum + content.length, 0)).toBe(castBytes);
  const [session] = await listOpenSessions(bucket);
  const read = await readCheckpoint(bucket, session!, new Map([[key.public.id, key.public]]));
  const digest = createHash('sha256').update(Buffer.alloc(castBytes, 'x')).digest('hex');
  expect(read).toMatchObject({
    value: { start: 3, bodyBytes: castBytes, cast: { bytes: castBytes, sha256: digest } },
    keyId: key.public.id,
  });
});

it('the copies under an earlier name stay until the store has signed copies under the new name', async () => {
  const site = createTakeoverSite(2);
  const { bucket } = site;
  const recorder = await site.recorder(0);
  await recorder.look();
  const session = await recorder.begin('one');
  await recorder.copies.update();
  const before = recorder.lease.name;
  // another recorder treats `recorder` as lost, and claims its lease
  const other = await site.recorder(1);
  await other.look();
  await other.lease.claim(before);
  await recorder.look();
  expect(recorder.lease.name).not.toBe(before);
  const under = (name: string): string[] =>
    [...bucket.objects.keys()].filter((object) => object.startsWith(`.open/${name}/`));
  const copied = under(before);
  expect(copied.map((name) => name.split('/').at(-1))).toContain('proof');
  bucket.before = (request, name) => {
    if (request === 'put' && name.startsWith('.open/')) throw new Error('the bucket takes nothing');
  };
  await recorder.copies.update();
  await recorder.look();
  expect(under(before)).toEqual(copied);
  bucket.before = () => undefined;
  await session.write('[1,"o","a"]\n');
  await recorder.copies.update();
  await recorder.look();
  expect(under(before)).toEqual([]);
  expect(under(recorder.lease.name).map((name) => name.split('/').at(-1))).toContain('proof');
});

it('changed sizes of notes in the bucket hide no later part of a session', async () => {
  const site = createTakeoverSite();
  const [one, two] = [await site.recorder(0), await site.recorder(1)];
  await one.look();
  await two.look();
  const note = `{"kind":"session","id":"one","pad":"${'x'.repeat(200)}"}\n`;
  const session = await one.begin('one');
  await session.write(note);
  await session.write('[1,"o","first"]\n');
  await one.copies.update();
  await one.evidence.publish();
  const { nodeId, nodeName } = UPLOADER;
  site.wait(1);
  const upload = await two.ingest.begin(
    { nodeId, nodeName, address: '100.64.0.1', protocol: 'v2', token: 'one' },
    {
      offset: Buffer.byteLength(`${HEADER}${note}[1,"o","first"]\n`),
      number: 2,
      preambleBytes: Buffer.byteLength(HEADER + note),
    },
    { waits: true, durable: () => undefined, drain: () => undefined, failed: () => expect.unreachable() },
  );
  upload.push(Buffer.from(`${HEADER}${note}[2,"o","second"]\n`));
  await upload.end();
  await two.evidence.publish();
  const { objects } = site.bucket;
  const name = [...objects.keys()].find((each) => /^\.open\/.*\/notes-0+$/.test(each))!;
  const text = objects.get(name)!.content.toString();
  const forged = text.replace(
    /"size":(\d+)(,"note":.*"pad":")(x+)/,
    (_found, size: string, between: string, pad: string) =>
      `"size":999999999999999${between}${pad.slice(15 - size.length)}`,
  );
  expect(forged).not.toBe(text);
  objects.set(name, { content: Buffer.from(forged), modifiedAtMs: site.nowMs() });
  const [recording] = (await two.catalog.list({ limit: 9 })).recordings;
  const { pieces = [] } = (await two.catalog.find(recording!.id)) ?? {};
  const chunks = pieces.map((piece) => Array.fromAsync(piece.read({ start: piece.start, end: piece.end() })));
  const cast = Buffer.concat((await Promise.all(chunks)).flat()).toString();
  expect(cast).toContain('second');
});
