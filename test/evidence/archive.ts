/** An archive of two real recorders that share a store, in memory so that tests can damage it quickly. */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { LogHead } from '../../src/tsrecorder/evidence/log-entry.ts';
import { openSessionEvidence } from '../../src/tsrecorder/evidence/session-evidence.ts';
import { loadSigningKey, type PublicKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore, type VerifyReport } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createRecorder, type RunningRecorder } from '../../src/compose/recorder-parts.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { parseRecordingKey } from '../../src/tsrecorder/store/key.ts';
import { createS3Store } from '../../src/tsrecorder/store/s3.ts';
import { createMemoryBucket } from '../tsrecorder/store/memory-bucket.ts';
import { HEADER, openUpload, uploadWhole } from '../tsrecorder/recorder-rig.ts';

/** Content of every object, by name. */
export type Objects = ReadonlyMap<string, Buffer>;

export interface Archive {
  /** Final content of the store, and its content at earlier times. */
  readonly objects: Objects;
  readonly earlier: readonly Objects[];
  readonly checkpoint: readonly LogHead[];
  readonly keys: readonly PublicKey[];
}

/** Verifies the archive in memory. */
export async function verifyObjects(objects: Objects, archive: Archive): Promise<VerifyReport> {
  const bucket = createMemoryBucket();
  for (const [name, content] of objects) bucket.objects.set(name, { content, modifiedAtMs: 0 });
  const store = createS3Store({ bucket, nowMs: () => 0, recentMs: 0, fullListMs: 0 });
  return verifyStore({
    store,
    keys: archive.keys,
    checkpoint: archive.checkpoint,
    nowMs: Date.now() + 86_400_000,
  });
}

/**
 * Builds an archive of ten sessions: long and short ones, with and without notes. One is interrupted, one is removed,
 * and one belongs to another user.
 */
export async function buildArchive(): Promise<Archive> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-evidence-'));
  try {
    return await build(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function build(root: string): Promise<Archive> {
  const directory = join(root, 'store');
  const keys: PublicKey[] = [];
  for (const name of ['a', 'b']) {
    const folder = join(root, name, 'evidence');
    await mkdir(folder, { recursive: true });
    keys.push((await loadSigningKey(join(folder, 'key.pem'), true)).public);
  }
  const earlier: Objects[] = [];
  for (const [turn, name] of ['a', 'b', 'a', 'b', 'a'].entries()) {
    const recorder = await startRecorder(directory, join(root, name), name, keys);
    for (let session = 0; session < 2; session++) {
      await uploadWhole(recorder, sessionBody(turn * 2 + session));
    }
    if (turn === 3) await uploadCut(recorder);
    await recorder.close();
    earlier.push(await readObjects(directory));
  }
  await remove(directory, join(root, 'a'));
  await writeFile(
    join(directory, 'nGATEaCNTRL', '2020-01-01T00:00:00.5Z.cast'),
    `${HEADER}[1,"o","theirs"]\n`,
  );
  const store = await createDiskStore(directory, { readOnly: true });
  const { heads } = await verifyStore({ store, keys, checkpoint: [], nowMs: Date.now() + 86_400_000 });
  return { objects: await readObjects(directory), earlier, checkpoint: heads, keys };
}

function startRecorder(
  directory: string,
  spoolDirectory: string,
  name: string,
  recorderKeys: readonly PublicKey[],
): Promise<RunningRecorder> {
  return createRecorder({
    recorderKeys,
    listen: { host: '127.0.0.1', port: 0 },
    directory,
    spoolDirectory,
    identify: async () => ({
      kind: 'accepted',
      nodeId: `nGATE${name}CNTRL`,
      nodeName: `${name}.tail1.ts.net`,
    }),
    log: createSilentLogger(),
    timing: { closeGraceMs: 200, publishMs: 20, witnessMs: 0 },
  });
}

function sessionBody(number: number): string {
  const lines = [HEADER.replace('sh -i', `sh -c job-${number}`)];
  const count = number === 4 ? 3000 : 5 + number * 20;
  for (let line = 0; line < count; line++) {
    if (number % 3 === 1 && line % 7 === 0)
      lines.push(`{"kind":"stream","name":"${line % 2 === 0 ? 'stdout' : 'stderr'}"}\n`);
    lines.push(
      `[${(line / 10).toFixed(3)},"o","session ${number} line ${line} ${'x'.repeat(line % 50)}\\r\\n"]\n`,
    );
  }
  return lines.join('');
}

async function uploadCut(recorder: RunningRecorder): Promise<void> {
  const upload = openUpload(recorder);
  const body = sessionBody(50).slice(0, 2000);
  upload.write(body);
  await upload.ack(({ ack }) => ack > 1900);
  upload.close();
  await upload.over;
}

async function remove(directory: string, spool: string): Promise<void> {
  const store = await createDiskStore(directory);
  const [name] = [...(await readObjects(directory)).keys()].filter((key) => /^nGATEa.*\.cast$/.test(key));
  const key = parseRecordingKey(name!)!;
  const evidence = await openSessionEvidence({
    store,
    path: join(spool, 'evidence', 'log'),
    key: await loadSigningKey(join(spool, 'evidence', 'key.pem'), false),
    randomId: () => '0'.repeat(32),
    nowMs: () => Date.now(),
    log: createSilentLogger(),
    publishMs: 20,
    witnessMs: 0,
    markMs: 1000,
    markAllMs: 1000,
    onFailure: () => undefined,
  });
  await evidence.removing([
    { recording: name!.replace('/', '_').replace('.cast', ''), reason: 'age', bytes: 0 },
  ]);
  await store.remove(key);
  await evidence.close();
}

async function readObjects(directory: string): Promise<Objects> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const objects = new Map<string, Buffer>();
  for (const entry of entries.filter((found) => found.isFile())) {
    const path = join(entry.parentPath, entry.name);
    objects.set(path.slice(directory.length + 1), await readFile(path));
  }
  return objects;
}
