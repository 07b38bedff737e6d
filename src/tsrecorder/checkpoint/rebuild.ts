/**
 * Rebuilds the spool of a session from its copies in the bucket, and compares the copies with their signed digests.
 * This recorder then finishes the session like its other sessions.
 */
import { createHash, hash } from 'node:crypto';
import { open, rename } from 'node:fs/promises';
import { syncDirectory } from '../../directories.ts';
import { makeDirectory, removeFile, writeAll } from '../files/durable-files.ts';
import { readPart } from '../files/file-range.ts';
import { adoptionPath, writeAdoption } from '../spool/adoption-file.ts';
import { spoolPaths } from '../spool/spool-file.ts';
import { parseJournalLine } from '../spool/spool-journal.ts';
import type { Bucket } from '../store/bucket.ts';
import { MAX_META_BYTES } from './checkpoint.ts';
import { COPIES_CHANGED, type Distrust, type ProvenSession } from './prove.ts';
import { readSegments, type OpenSession, type Segment } from './segments.ts';

/**
 * Downloads the signed bytes. The spool is created only after the bytes match their digests.
 * @returns undefined if the spool is complete. If the copies differ from the signed statement or the evidence log,
 *   removes the downloaded files and returns the reason
 * @throws TailcastError `STORE_FAILED`, or a system error. The caller may retry
 */
export async function rebuildSpool(
  bucket: Bucket,
  session: OpenSession,
  { checkpoint, adoption }: ProvenSession,
  spoolDirectory: string,
): Promise<Distrust | undefined> {
  const paths = spoolPaths(spoolDirectory, session.key);
  await makeDirectory(spoolDirectory);
  const drafts = { cast: `${paths.cast}.part`, notes: `${paths.notes}.part` };
  const problem =
    (await download(bucket, session.cast, checkpoint.cast, drafts.cast)) ??
    (await download(bucket, session.notes, checkpoint.notes, drafts.notes)) ??
    (await compareHeader(session, drafts, checkpoint.header));
  if (problem !== undefined) {
    await removeFile(drafts.cast);
    await removeFile(drafts.notes);
    return { trust: 'failed', reason: problem };
  }
  // A recorder finds a spool by its journal, so the journal is renamed last. The adoption file must be durable before
  // the journal is renamed.
  await writeAdoption(adoptionPath(paths), adoption);
  await rename(drafts.cast, paths.cast);
  await syncDirectory(spoolDirectory);
  await rename(drafts.notes, paths.notes);
  await syncDirectory(spoolDirectory);
  return undefined;
}

/**
 * Downloads segments to a file. @returns undefined if the bytes match the signed digest, otherwise a phrase that
 * describes the difference
 */
async function download(
  bucket: Bucket,
  segments: readonly Segment[],
  { bytes, sha256 }: { readonly bytes: number; readonly sha256: string },
  path: string,
): Promise<string | undefined> {
  const content = createHash('sha256');
  let read = 0;
  await using file = await open(path, 'w', 0o600);
  for await (const chunk of readSegments(bucket, segments, { start: 0, end: bytes })) {
    content.update(chunk);
    read += chunk.length;
    await writeAll(file, [chunk]);
  }
  await file.datasync();
  return read === bytes && content.digest('hex') === sha256 ? undefined : COPIES_CHANGED;
}

/** Compares the journal with the session, and the header line with its digest in the evidence log. */
async function compareHeader(
  { key }: OpenSession,
  drafts: { readonly cast: string; readonly notes: string },
  header: string,
): Promise<string | undefined> {
  const [first = ''] = Buffer.from(await readPart(drafts.notes, 0, MAX_META_BYTES))
    .toString()
    .split('\n');
  const parsed = parseJournalLine(first);
  if (parsed?.kind !== 'meta') return 'its journal cannot be read';
  const { nodeId, time, storedHeaderBytes } = parsed.meta;
  const digest = hash('sha256', await readPart(drafts.cast, 0, storedHeaderBytes));
  return nodeId === key.nodeId && time === key.time && digest === header
    ? undefined
    : 'it is not the session in the evidence log of its recorder';
}
