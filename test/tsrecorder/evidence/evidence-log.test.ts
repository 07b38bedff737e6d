import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { EvidenceLog } from '../../../src/tsrecorder/evidence/evidence-log.ts';
import { parseSegment, tailName } from '../../../src/tsrecorder/evidence/log-entry.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { until } from '../recorder-rig.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tsrecorder-log-'));
});

it('a log closes immediately, with all entries in the store, although its tail is not due yet', async () => {
  const store = await createDiskStore(join(folder, 'store'));
  const log = await EvidenceLog.open({
    store,
    path: join(folder, 'log'),
    key: generateSigningKey(),
    publishMs: 3_600_000,
    tailMs: 3_600_000,
    witnessMs: 3_600_000,
    randomId: () => '0123456789abcdef0123456789abcdef',
    nowMs: () => Date.parse('2026-07-29T12:00:00Z'),
    onFailure: () => undefined,
    log: createSilentLogger(),
  });
  const append = async (bytes: number): Promise<void> => {
    log.append({ kind: 'durable', sessions: [[1, bytes]] });
    await log.sync();
    log.showTail();
  };
  await append(1);
  const shown = async (): Promise<true | undefined> =>
    (await store.readDocument(tailName(log.id))) === undefined ? undefined : true;
  await until(shown);
  // the evidence log would publish this entry in an hour; `close` publishes it now
  await append(2);
  await log.close();
  const names = await store.listDocuments('.evidence/logs/');
  const texts = await Promise.all(names.map(async (name) => String(await store.readDocument(name))));
  expect(texts.flatMap((text) => parseSegment(text).lines).join('\n')).toContain('[1,2]');
});
