import { describe, expect, it } from 'vitest';
import {
  listOpenSessions,
  readSegments,
  removeFolder,
  segmentName,
  segmentsBytes,
  sessionFolder,
} from '../../../src/tsrecorder/checkpoint/segments.ts';
import { recordingId, type RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

const RECORDER = '0123456789abcdef';
const KEY: RecordingKey = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T10:44:42.000000001Z' };
const FOLDER = sessionFolder(RECORDER, KEY);

async function bucketWith(segments: readonly (readonly [number, string])[]): Promise<MemoryBucket> {
  const bucket = createMemoryBucket();
  for (const [start, text] of segments)
    await bucket.put(segmentName(FOLDER, 'cast', start), Buffer.from(text));
  return bucket;
}

async function readWith(bucket: MemoryBucket, start: number, end: number): Promise<string> {
  const [session] = await listOpenSessions(bucket);
  const chunks = await Array.fromAsync(readSegments(bucket, session!.cast, { start, end }));
  return Buffer.concat(chunks).toString();
}

describe('the segments of an open session', () => {
  it('read like one file in any range, and an empty range reads no segment', async () => {
    const bucket = await bucketWith([
      [0, 'abc'],
      [3, 'def'],
      [6, 'g'],
    ]);
    let asked = 0;
    bucket.before = (request) => {
      if (request === 'get') asked += 1;
    };
    for (let start = 0; start <= 7; start += 1)
      for (let end = start; end <= 9; end += 1) {
        asked = 0;
        expect(await readWith(bucket, start, end)).toBe('abcdefg'.slice(start, end));
        const touched = [3, 6, 7].filter((to, index) => to > start && [0, 3, 6][index]! < end);
        expect(asked, `${start}-${end}`).toBe(start === end ? 0 : touched.length);
      }
    expect(segmentsBytes((await listOpenSessions(bucket))[0]!.cast)).toBe(7);
    expect(segmentsBytes([])).toBe(0);
  });

  it('may overlap, and the content ends where one is missing', async () => {
    const bucket = await bucketWith([
      [0, 'abc'],
      [2, 'cde'],
      [4, 'e'],
      [5, 'fg'],
      [8, 'i'],
    ]);
    expect(await readWith(bucket, 0, 20)).toBe('abcdefg');
  });

  it('are distinguished from other objects in the folder, and by recorder', async () => {
    const bucket = await bucketWith([[0, 'abc']]);
    await bucket.put(`${FOLDER}cast-1`, Buffer.from('x'));
    await bucket.put(`${FOLDER}other-000000000000003`, Buffer.from('x'));
    await bucket.put(`.open/${RECORDER}/no-key/cast-000000000000000`, Buffer.from('x'));
    const all = await listOpenSessions(bucket);
    expect(all).toMatchObject([{ recorder: RECORDER, key: KEY, cast: [{ start: 0, bytes: 3 }], notes: [] }]);
    await bucket.put(`.open/${'f'.repeat(16)}/${recordingId(KEY)}/proof`, Buffer.from('x'));
    expect(await listOpenSessions(bucket)).toMatchObject([
      { recorder: RECORDER, proof: undefined },
      { recorder: 'f'.repeat(16), cast: [], proof: { bytes: 1 } },
    ]);
  });

  it('of signed sessions are found behind any number of other objects', async () => {
    const bucket = createMemoryBucket();
    for (let count = 0; count < 3000; count++)
      await bucket.put(
        `.open/${String(count).padStart(16, '0')}/${recordingId(KEY)}/proof`,
        Buffer.from('x'),
      );
    const owner = 'f'.repeat(16);
    await bucket.put(`.open/${owner}/${recordingId(KEY)}/proof`, Buffer.from('genuine'));
    const listed = await listOpenSessions(bucket, ({ recorder }) => Promise.resolve(recorder === owner));
    expect([listed.length, listed[0]?.recorder]).toEqual([1001, owner]);
  });

  it('are removed from the end, so that the rest is always the start of the session', async () => {
    const bucket = await bucketWith([
      [0, 'abc'],
      [3, 'def'],
    ]);
    const removed: string[] = [];
    bucket.before = (request, name) => void (request === 'remove' && removed.push(name));
    await removeFolder(bucket, FOLDER);
    expect(removed).toEqual([segmentName(FOLDER, 'cast', 3), segmentName(FOLDER, 'cast', 0)]);
    expect(bucket.objects.size).toBe(0);
  });
});
