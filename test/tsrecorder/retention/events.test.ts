import { describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { signBatch } from '../../../src/tsrecorder/evidence/signed-batch.ts';
import { generateSigningKey, keysById } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { applyRetention } from '../../../src/tsrecorder/retention/retention-run.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { createRig } from '../recorder-rig.ts';

describe('batches of events', () => {
  it('are removed only if they are older than the limit, and after signed ones are in the log', async () => {
    await using rig = await createRig();
    const store = await createDiskStore(rig.directory);
    const key = generateSigningKey();
    const names = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z', '2026-01-03T00:00:00Z'].map(
      (time) => `events/${time.slice(0, 10)}/${time}_0123456789abcdef.ndjson`,
    );
    const odd = 'events/2026-01-01/notes.txt';
    const planted = 'events/2026-01-01/2026-01-01T00:00:00Z_planted.ndjson';
    const lines = Buffer.from('{}\n');
    for (const name of [...names, odd]) await store.putDocument(name, signBatch(name, lines, key));
    await store.putDocument(planted, signBatch(planted, lines, generateSigningKey()));
    const listed = await store.listDocuments('events/');
    const logged: unknown[] = [];
    await applyRetention({
      store,
      trusted: keysById([key.public]),
      onUnprovenHolds: () => undefined,
      evidence: {
        holding: async () => undefined,
        holds: new Map(),
        removing: async (some) => void logged.push(some),
        removingDocuments: async (some, reason) => {
          logged.push([some, reason]);
          expect(await store.listDocuments('events/')).toEqual(listed);
        },
      },
      policy: { maxAgeMs: 86_400_000 },
      nowMs: () => Date.parse('2026-01-03T00:00:00Z'),
      everyMs: 1,
      log: createSilentLogger(),
      onApplied: () => undefined,
      onFailure: () => undefined,
    });
    expect(logged).toEqual([[[names[0]], 'age']]);
    expect(listed).toContain(odd);
    const gone = new Set([names[0], planted]);
    expect(await store.listDocuments('events/')).toEqual(listed.filter((name) => !gone.has(name)));
  });
});
