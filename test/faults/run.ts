/**
 * Kills recorders and gateways under load at random points, injects faults into the S3 traffic, fills disks, and checks
 * what remains.
 *
 *   node test/faults/run.ts [--runs 100] [--minutes 10] [--seed 1] [--store disk|s3] [--scenario <name>]
 *
 * Prints `<n> passed, <n> failed, <n> skipped` after all runs or when the time is over. Each kind of store gets half of
 * the runs and of the time. For hundreds of runs: `--runs 400 --minutes 60`. The seed determines scenarios and times,
 * but not the timing of the machine, so the same seed repeats a failure often but not always.
 */
import { parseArgs } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { GoMissingError, ensurePeer } from '../real/rig/build.ts';
import { createRig } from '../real/rig/rig.ts';
import { startS3 } from '../real/rig/s3.ts';
import { startShim } from './s3-shim.ts';
import { PLAYED_ON, SCENARIOS, SkippedError, type ScenarioName } from './scenarios.ts';
import type { Stage } from './site.ts';
import { COMPILE_CACHE } from '../support/scratch.ts';

const BUCKET = 'recordings';

// the processes of the scenarios inherit this environment variable
process.env['NODE_COMPILE_CACHE'] ??= COMPILE_CACHE;
const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '100' },
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string', default: '1' },
    store: { type: 'string' },
    scenario: { type: 'string' },
  },
});

/** The random-number generator Mulberry32, which is small and good enough to choose times. */
function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const stores = (['disk', 's3'] as const).filter(
  (store) => values.store === undefined || values.store === store,
);
const share = Math.ceil(Number(values.runs) / stores.length);
const shareOfMs = (Number(values.minutes) * 60_000) / stores.length;
if (!(share > 0 && shareOfMs > 0)) throw new TypeError('--runs and --minutes are numbers above 0');

const counts = { passed: 0, failed: 0, skipped: 0 };

async function play(store: 'disk' | 's3', runs: number, stage: Omit<Stage, 'random'>): Promise<void> {
  const until = Date.now() + shareOfMs;
  const names = PLAYED_ON[store].filter((name) => values.scenario === undefined || values.scenario === name);
  for (let run = 0; run < runs && names.length > 0; run += 1) {
    if (Date.now() > until) {
      process.stdout.write(`${store}: the time is over after ${run} of ${runs} runs\n`);
      return;
    }
    const name = names[run % names.length] as ScenarioName;
    const seed = Number(values.seed) * 100_000 + run;
    const startedAt = Date.now();
    let outcome = 'ok';
    try {
      await SCENARIOS[name]({ ...stage, random: createRandom(seed) });
      counts.passed += 1;
    } catch (error) {
      const skipped = error instanceof SkippedError;
      counts[skipped ? 'skipped' : 'failed'] += 1;
      outcome = `${skipped ? 'skipped' : 'FAILED'}: ${error instanceof Error ? error.message : String(error)}`;
    }
    process.stdout.write(`${store} ${run + 1}/${runs} ${name}: ${outcome} (${Date.now() - startedAt} ms)\n`);
  }
}

async function playOnS3(runs: number): Promise<void> {
  try {
    await ensurePeer('versitygw');
  } catch (error) {
    if (!(error instanceof GoMissingError)) throw error;
    process.stdout.write(`s3: skipped: ${error.message}\n`);
    counts.skipped += runs;
    return;
  }
  const rig = createRig();
  try {
    const server = await startS3(rig);
    const { region, accessKeyId, secretAccessKey } = server;
    process.env['AWS_ACCESS_KEY_ID'] = accessKeyId;
    process.env['AWS_SECRET_ACCESS_KEY'] = secretAccessKey;
    const admin = new S3Client({ endpoint: server.endpoint, region, forcePathStyle: true });
    await admin.send(new CreateBucketCommand({ Bucket: BUCKET }));
    admin.destroy();
    await using shim = await startShim(server.endpoint, createRandom(Number(values.seed)));
    await play('s3', runs, { s3: { shim, region, bucket: BUCKET } });
    const spoiled = [...shim.done].map(([fault, count]) => `${fault} ${count}`).join(', ');
    process.stdout.write(`s3: spoiled requests: ${spoiled}\n`);
  } finally {
    await rig.stop();
  }
}

for (const store of stores) {
  if (store === 'disk') await play('disk', share, { s3: undefined });
  else await playOnS3(share);
}
process.stdout.write(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`);
process.exitCode = counts.failed > 0 ? 1 : 0;
