/** An attacker with write access to the bucket stores compressed recordings that expand ten thousandfold. */
import { crc32, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { presentCast } from '../../src/tsrecorder/library/replay.ts';
import { createArchiveStore } from '../../src/tsrecorder/store/archive-store.ts';
import { createS3Store, S3_LISTING } from '../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import { encodeSeekTable, FRAME_BYTES } from '../../src/wire/archive/seek-table.ts';
import { createMemoryBucket } from '../tsrecorder/store/memory-bucket.ts';

const KEY = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T11:50:50.033425744Z' };

/** A store with one cast: an archive with this number of frames, each of which contains one repeated byte. */
async function storeWith(frames: number, plain: number): Promise<RecordingStore> {
  const frame = zstdCompressSync(Buffer.alloc(FRAME_BYTES, 'a'));
  expect(FRAME_BYTES / frame.length).toBeGreaterThan(5000);
  const listed = Array.from({ length: frames }, () => ({ compressed: frame.length, plain }));
  const bucket = createMemoryBucket();
  const content = Buffer.concat([...listed.map(() => frame), encodeSeekTable(listed, crc32)]);
  await bucket.put(`${KEY.nodeId}/${KEY.time}.cast`, content);
  return createArchiveStore(createS3Store({ ...S3_LISTING, bucket, nowMs: Date.now }), 'plain');
}

async function lengthOf(chunks: AsyncIterable<Uint8Array>): Promise<number> {
  let bytes = 0;
  for await (const { length } of chunks) bytes += length;
  return bytes;
}

describe('an archive that expands ten thousandfold', () => {
  it('is read one frame at a time', async () => {
    const store = await storeWith(8, FRAME_BYTES);
    expect(await lengthOf(store.read(KEY, 'cast'))).toBe(8 * FRAME_BYTES);
  });

  it('is damaged if a frame expands to more than its entry in the index', async () => {
    const store = await storeWith(1, 1000);
    await expect(lengthOf(store.read(KEY, 'cast'))).rejects.toMatchObject({ code: 'ARCHIVE_DAMAGED' });
  });

  it('does not fill the memory with a line without an end', async () => {
    const store = await storeWith(1200, FRAME_BYTES);
    const cast = presentCast(store.read(KEY, 'cast'), { rowsFirst: true, withoutTerminal: false });
    await expect(lengthOf(cast)).rejects.toThrow('a line is longer than');
  });
});
