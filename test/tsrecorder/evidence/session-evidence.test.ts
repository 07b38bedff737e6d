import { appendFile, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { parseSegment } from '../../../src/tsrecorder/evidence/log-entry.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { openSessionEvidence } from '../../../src/tsrecorder/evidence/session-evidence.ts';
import { generateSigningKey, parsePublicKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { parseSignedSidecar } from '../../../src/tsrecorder/evidence/signed-sidecar.ts';
import { verifyStore } from '../../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { createRig, HEADER, openUpload, until, uploadWhole } from '../recorder-rig.ts';

const BODY = `${HEADER}[1,"o","x"]\n`;

async function verifyDirectory(directory: string) {
  const store = await createDiskStore(directory, { readOnly: true });
  return verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() + 3_600_000 });
}

async function logLines(directory: string): Promise<readonly string[]> {
  const store = await createDiskStore(directory, { readOnly: true });
  const names = await store.listDocuments('.evidence/logs/');
  const texts = await Promise.all(
    names.map(async (name) => Buffer.from((await store.readDocument(name))!).toString()),
  );
  return texts.flatMap((text) => parseSegment(text).lines);
}

describe('evidence of a recorder', () => {
  it('verifies a recording that ended normally', async () => {
    await using rig = await createRig({ timing: { publishMs: 1 } });
    await uploadWhole(rig.recorder, `${BODY}{"kind":"stream","name":"stderr"}\n[2,"o","y"]\n`);
    const [recording] = await rig.list();
    await using again = await rig.restart();
    const report = await verifyDirectory(again.directory);
    expect(report.findings).toMatchObject([{ severity: 'notice', code: 'no-trusted-key' }]);
    expect(report.verdict).toBe('unverified');
    expect(report.recordings).toEqual({ withEvidence: 1, withoutEvidence: 0 });
    expect(report.heads).toHaveLength(1);
    const { body } = await again.get(`/api/v1/recordings/${recording!.id}/sidecar`);
    const signed = parseSignedSidecar(body)!;
    expect(signed.evidence.log).toBe(report.heads[0]!.log);
    expect(signed.evidence.notes).toBeDefined();
  });

  it('exists before the first byte is acknowledged', async () => {
    await using rig = await createRig({ timing: { publishMs: 1_000_000 } });
    const upload = openUpload(rig.recorder);
    upload.write(BODY);
    await upload.ack(({ ack }) => ack === BODY.length);
    // the entry is in the store, so that the session is known even if the machine is lost
    const starts = (await logLines(rig.directory)).filter((line) => line.includes('"kind":"start"'));
    expect(starts).toHaveLength(1);
    expect(starts[0]).toContain((await rig.list())[0]!.id);
    upload.close();
  });

  it('verifies a long recording, whose header is only a small part', async () => {
    await using rig = await createRig({ timing: { publishMs: 1 } });
    await uploadWhole(rig.recorder, `${HEADER}${`[1,"o","${'x'.repeat(1000)}"]\n`.repeat(300)}`);
    await using again = await rig.restart();
    const report = await verifyDirectory(again.directory);
    expect(report.findings.map(({ code }) => code)).toEqual(['no-trusted-key']);
  });

  it('reports faults in the order of the recordings, and names the missing key', async () => {
    await using rig = await createRig({ timing: { publishMs: 1 } });
    for (let count = 0; count < 4; count += 1) await uploadWhole(rig.recorder, BODY);
    const ids = (await rig.list()).map(({ id }) => id).toSorted();
    expect(ids).toHaveLength(4);
    await rig.recorder.close();
    for (const id of ids)
      await appendFile(join(rig.directory, `${id.replace('_', '/')}.cast`), '[2,"o","y"]\n');
    const changed = (await verifyDirectory(rig.directory)).findings.filter(
      ({ code }) => code !== 'no-trusted-key',
    );
    expect(changed.map(({ recording }) => recording)).toEqual(ids);
    const store = await createDiskStore(rig.directory);
    const [name] = await store.listDocuments('.evidence/keys/');
    await store.removeDocument(name!);
    expect((await verifyDirectory(rig.directory)).findings).toContainEqual(
      expect.objectContaining({ severity: 'fault', code: 'key-missing' }),
    );
  });

  it('reports a session that has not ended', async () => {
    await using rig = await createRig({ timing: { publishMs: 1 } });
    const upload = openUpload(rig.recorder, { 'tailcast-session': 'shell-1' });
    upload.write(BODY);
    await upload.ack(({ ack }) => ack === BODY.length);
    const id = (await rig.list())[0]!.id;
    upload.close();
    await using again = await rig.restart();
    const report = await verifyDirectory(again.directory);
    expect(report.unfinished).toBe(1);
    expect(report.findings).toContainEqual(
      expect.objectContaining({ severity: 'notice', code: 'unfinished', recording: id }),
    );
    const store = await createDiskStore(again.directory, { readOnly: true });
    const later = await verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() + 86_400_001 });
    expect(later.findings).toContainEqual(
      expect.objectContaining({ severity: 'fault', code: 'unfinished-too-long', recording: id }),
    );
    expect(later.verdict).toBe('failed');
  });

  it('does not report a log as cut if entries are not published yet', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry, timing: { publishMs: 1_000_000 } });
    const store = await createDiskStore(rig.directory, { readOnly: true });
    await until(async () => {
      const { values } = (await registry
        .getSingleMetric('tailcast_recorder_log_unpublished_entries')!
        .get()) as { values: { value: number }[] };
      return values[0]?.value === 0 ? true : undefined;
    });
    await uploadWhole(rig.recorder, BODY);
    const early = await verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() });
    expect(early.findings.map(({ code }) => code)).toEqual(['no-trusted-key', 'end-pending']);
    const late = await verifyStore({ store, keys: [], checkpoint: [], nowMs: Date.now() + 86_400_001 });
    expect(late.findings.map(({ code }) => code)).toEqual(['no-trusted-key', 'unfinished-too-long']);
  });

  it('publishes the removal of a recording before the recording is removed', async () => {
    await using rig = await createRig({ timing: { publishMs: 1_000_000 } });
    await uploadWhole(rig.recorder, BODY);
    const disk = await createDiskStore(rig.directory);
    const removed: (readonly string[])[] = [];
    const store: typeof disk = {
      ...disk,
      async remove(key) {
        removed.push((await logLines(rig.directory)).filter((line) => line.includes('"kind":"removed"')));
        await disk.remove(key);
      },
    };
    const id = (await rig.list())[0]!.id;
    await using again = await rig.restart({ store, retention: { maxBytes: 1 } });
    await until(async () => ((await again.list()).length === 0 ? true : undefined));
    expect(removed).toEqual([[expect.stringContaining(`"recording":"${id}"`)]]);
  });

  it('publishes the removal of documents and recordings before it permits the removal', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-evidence-'));
    const evidence = await openSessionEvidence({
      store: await createDiskStore(directory),
      path: join(directory, 'spool-log'),
      key: generateSigningKey(),
      randomId: () => '0'.repeat(32),
      nowMs: () => Date.now(),
      log: createSilentLogger(),
      publishMs: 1_000_000,
      witnessMs: 0,
      markMs: 1000,
      markAllMs: 1000,
      onFailure: () => undefined,
    });
    const said = async (): Promise<unknown[]> =>
      (await logLines(directory)).slice(1).map((line) => (JSON.parse(line) as { event: unknown }).event);
    const documents = [1, 2].map((n) => ({ kind: 'documentRemoved', name: `events/${n}`, reason: 'age' }));
    await evidence.removingDocuments(
      documents.map(({ name }) => name),
      'age',
    );
    expect(await said()).toEqual(documents);
    const recording = { recording: 'nX_2026-01-01T00:00:00Z', reason: 'age', bytes: 5 };
    await evidence.removing([recording]);
    expect(await said()).toEqual([...documents, { kind: 'removed', ...recording }]);
    await evidence.close();
    await rm(directory, { recursive: true });
  });

  it('keeps its private key secret, and publishes the public key', async () => {
    await using rig = await createRig();
    await using again = await rig.restart();
    const path = join(again.spool, 'evidence', 'key.pem');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    const store = await createDiskStore(again.directory, { readOnly: true });
    const [name] = await store.listDocuments('.evidence/keys/');
    const published = parsePublicKey(Buffer.from((await store.readDocument(name!))!).toString())!;
    expect(name).toBe(`.evidence/keys/${published.id}.pem`);
    expect(await store.listDocuments('.evidence/keys/')).toHaveLength(1);
  });

  it('continues one log over many processes', async () => {
    let rig = await createRig();
    for (let run = 0; run < 3; run++) {
      await uploadWhole(rig.recorder, BODY);
      rig = await rig.restart();
    }
    await rig.recorder.close();
    const kinds = (await logLines(rig.directory)).map((line) => JSON.parse(line).event.kind);
    expect(kinds).toEqual([
      'open',
      'start',
      'end',
      'restart',
      'start',
      'end',
      'restart',
      'start',
      'end',
      'restart',
    ]);
    expect((await verifyDirectory(rig.directory)).verdict).toBe('unverified');
    await rig[Symbol.asyncDispose]();
  });
});
