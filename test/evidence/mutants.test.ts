import { beforeAll, describe, expect, it } from 'vitest';
import { buildArchive, verifyObjects, type Archive } from './archive.ts';
import { createMutant, createRandom, MUTATIONS } from './mutants.ts';

// `npm run test:evidence` tests thousands more
const PER_KIND = 25;

describe('a damaged archive', () => {
  let archive: Archive;
  beforeAll(async () => {
    archive = await buildArchive();
  });

  it('is not seen where nothing is damaged', async () => {
    const report = await verifyObjects(archive.objects, archive);
    expect(report.findings.filter(({ severity }) => severity === 'fault')).toEqual([]);
    expect(report.recordings).toEqual({ withEvidence: 10, withoutEvidence: 1 });
    expect(report.removed).toBe(1);
  });

  it.each(Object.keys(MUTATIONS) as (keyof typeof MUTATIONS)[])('is found and named: %s', async (kind) => {
    const random = createRandom(20_261_121);
    let checked = 0;
    for (let run = 0; run < PER_KIND; run++) {
      const mutant = createMutant(archive, kind, random);
      if (mutant === undefined) continue;
      const { findings } = await verifyObjects(mutant.objects, archive);
      const faults = findings.filter(({ severity }) => severity === 'fault');
      expect(
        faults.some((finding) => mutant.isNamedBy(finding)),
        `${mutant.name}: ${JSON.stringify(faults)}`,
      ).toBe(true);
      checked += 1;
    }
    // the minimum is low: mutants that change nothing are skipped, and their number depends on the times in the archive
    expect(checked).toBeGreaterThan(PER_KIND / 4);
  });
});
