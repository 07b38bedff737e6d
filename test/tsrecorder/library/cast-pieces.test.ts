import { expect, it } from 'vitest';
import { castBytes, readCast } from '../../../src/tsrecorder/library/replay.ts';
import { parseRecordingId, recordingKey } from '../../../src/tsrecorder/store/key.ts';
import { createTakeoverSite } from '../checkpoint/takeover-site.ts';

it('a recording that is stored while it is read is not replaced by another recording with its key', async () => {
  const site = createTakeoverSite(1);
  const recorder = await site.recorder(0);
  const session = await recorder.begin('one');
  await session.write('[1,"o","a"]\n');
  const entry = (await recorder.catalog.find(session.id()))!;
  const key = parseRecordingId(session.id())!;
  const foreign = '{"version":2,"width":80,"height":24}\n[1,"o","of somebody else"]\n';
  await site.bucket.put(recordingKey(key), Buffer.from(foreign));
  await session.end();
  await entry.live!.stored;
  const read = await Array.fromAsync(readCast(entry, { start: 0, end: castBytes(entry) }));
  expect(Buffer.concat(read).toString()).toBe(session.cast());
});
