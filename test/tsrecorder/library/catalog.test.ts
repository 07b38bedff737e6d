import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Catalog } from '../../../src/tsrecorder/library/catalog.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { createRig, HEADER, uploadWhole, type Rig } from '../recorder-rig.ts';

/** Creates a catalogue that lists the store of a recorder once, and never again. */
async function listedOnce(rig: Rig): Promise<Catalog> {
  const store = await createDiskStore(rig.directory, { readOnly: true });
  const catalog = new Catalog({ store, live: () => [], refreshMs: 1e9, maxCached: 10, now: () => 0 });
  expect((await catalog.list({ limit: 1 })).recordings).toEqual([]);
  return catalog;
}

describe('a recording that is newer than the listing', () => {
  it('is described by its sidecar, or by its first line if it has no sidecar', async () => {
    await using rig = await createRig();
    const before = [await listedOnce(rig), await listedOnce(rig)] as const;
    await uploadWhole(rig.recorder, `${HEADER}[1,"o","text"]\n`);
    const [listed] = await rig.list();
    expect(listed).toMatchObject({ ...(await before[0].find(listed!.id))?.recording, trust: 'verified' });
    await rm(join(rig.directory, listed!.key.replace(/cast$/, 'json')));
    const bare = (await before[1].find(listed!.id))?.recording;
    expect(bare).toMatchObject({ id: listed!.id, source: listed!.source });
    expect(bare).not.toHaveProperty('problem');
  });
});
