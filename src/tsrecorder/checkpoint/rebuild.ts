/** Makes a spool of what the bucket holds of a session, so that it is finished like any other. */
import { open, rename } from 'node:fs/promises';
import { makeDirectory, syncDirectory, writeAll } from '../files/durable-files.ts';
import { spoolPaths } from '../spool/spool-file.ts';
import type { Bucket } from '../store/bucket.ts';
import { readSegments, segmentsBytes, type OpenSession, type Segment } from './segments.ts';

/** @throws TailcastError `STORE_FAILED`, or a system error; then it may be repeated. */
export async function rebuildSpool(
  bucket: Bucket,
  session: OpenSession,
  spoolDirectory: string,
): Promise<void> {
  const paths = spoolPaths(spoolDirectory, session.key);
  await makeDirectory(spoolDirectory);
  await download(bucket, session.cast, paths.cast);
  // the journal last: a spool is one that has a journal
  await download(bucket, session.notes, paths.notes);
  await syncDirectory(spoolDirectory);
}

async function download(bucket: Bucket, segments: readonly Segment[], path: string): Promise<void> {
  const draft = `${path}.part`;
  const file = await open(draft, 'w', 0o600);
  try {
    const whole = { start: 0, end: segmentsBytes(segments) };
    for await (const chunk of readSegments(bucket, segments, whole)) await writeAll(file, [chunk]);
    await file.datasync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
}
