/**
 * Verifies thousands of damaged archives. The verification must find each fault and its position. Prints one line per
 * kind of damage, and a summary.
 *
 *   node test/evidence/run.ts [mutants per kind] [seed]
 */
import { buildArchive, verifyObjects } from './archive.ts';
import { createMutant, createRandom, MUTATIONS } from './mutants.ts';

const [perKind = 200, seed = Date.now() % 1_000_000] = process.argv.slice(2).map(Number);
const archive = await buildArchive();
const intact = await verifyObjects(archive.objects, archive);
let passed = 0;
let failed = 0;
let skipped = 0;
if (intact.ok) passed += 1;
else {
  failed += 1;
  console.log('the archive is found faulty before anything is done to it', intact.findings);
}
console.log(`seed ${seed}; ${archive.objects.size} objects`);
for (const kind of Object.keys(MUTATIONS) as (keyof typeof MUTATIONS)[]) {
  const random = createRandom(seed);
  let found = 0;
  const began = performance.now();
  for (let run = 0; run < perKind; run++) {
    const mutant = createMutant(archive, kind, random);
    if (mutant === undefined) {
      skipped += 1;
      continue;
    }
    const report = await verifyObjects(mutant.objects, archive);
    if (!report.ok && report.findings.some((finding) => mutant.isNamedBy(finding))) found += 1;
    else {
      failed += 1;
      const faults = report.findings.filter(({ severity }) => severity === 'fault');
      console.log(`NOT ${report.ok ? 'FOUND' : 'NAMED'}: ${mutant.name}`, faults.slice(0, 5));
    }
  }
  passed += found;
  console.log(`${kind}: ${found} found and named (${((performance.now() - began) / 1000).toFixed(1)} s)`);
}
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = failed === 0 ? 0 : 1;
