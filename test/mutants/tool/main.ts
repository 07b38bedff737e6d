/**
 * Makes small changes to the security-relevant code by tool, one after the other, and asks the tests whether they notice.
 *
 *   npm run test:mutants                          a sample of 600, which takes hours
 *   npm run test:mutants -- --sample 20           a smaller one
 *   npm run test:mutants -- --seed 7              another one; each run prints its seed
 *   npm run test:mutants -- --folder src/kube     only of files whose path begins so
 *   npm run test:mutants -- --minutes 3           no further one after this long
 *   npm run test:mutants -- --tests 12            how many of the nearest test files each is shown to (default: 12)
 *   npm run test:mutants -- --list                what would be done
 *
 * Each change is made in memory (see vitest.config.ts). Test files that import the changed file are run, the nearest first.
 * When one fails, it is run once more without the change: a test that fails by itself has noticed nothing.
 *
 * Ends with 0 when 90 % of the changes were noticed or are accepted (accepted.json, each with its reason), in all and in every
 * folder of which ten or more were tried; with 1 when not, 2 when a test fails without a change, 130 when it was interrupted.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { createRandom } from '../../support/random.ts';
import { createCoverage, filesBelow } from './covering-tests.ts';
import { acceptedReason, areEnough, chooseSample, FOLDERS, scores, type Verdict } from './judging.ts';
import { mutantsOf, type Mutant } from './operators.ts';

/** Shown to these first: most changes are noticed there. */
const NEAR_TESTS = 3;
/** A change that makes a loop endless is noticed by that. */
const TIME_LIMIT_MS = 180_000;

const root = join(import.meta.dirname, '../../..');
const { values } = parseArgs({
  options: {
    sample: { type: 'string', default: '600' },
    seed: { type: 'string', default: '1' },
    folder: { type: 'string', default: '' },
    minutes: { type: 'string', default: '100000' },
    tests: { type: 'string', default: '12' },
    list: { type: 'boolean', default: false },
  },
});
const scratch = mkdtempSync(join(tmpdir(), 'tailcast-mutants-'));
const stop = new AbortController();

async function main(): Promise<number> {
  const mutants = FOLDERS.flatMap((folder) => filesBelow(root, folder))
    .filter((file) => file.startsWith(values.folder))
    .toSorted()
    .flatMap((file) => mutantsOf(file, readFileSync(join(root, file), 'utf8')));
  const chosen = chooseSample(mutants, whole('sample'), createRandom(whole('seed')));
  say(`${mutants.length} changes in all, ${chosen.length} chosen with --seed ${values.seed}`);
  if (values.list) {
    for (const mutant of chosen) say(shown(mutant));
    return 0;
  }
  const coveringTests = createCoverage(root);
  const until = performance.now() + whole('minutes') * 60_000;
  const verdicts: Verdict[] = [];
  let broken = 0;
  for (const [index, mutant] of chosen.entries()) {
    if (stop.signal.aborted || performance.now() > until) break;
    const tests = coveringTests(mutant.file).slice(0, whole('tests'));
    const result = await judge(mutant, tests);
    if (stop.signal.aborted) break;
    if (result.kind === 'broken') broken += 1;
    else verdicts.push({ mutant, noticed: result.kind === 'noticed', accepted: acceptedReason(mutant) });
    say(`${index + 1}/${chosen.length} ${result.text}: ${shown(mutant)}`);
  }
  return report(verdicts, broken, chosen.length);
}

interface Result {
  readonly kind: 'noticed' | 'survived' | 'broken';
  readonly text: string;
}

async function judge(mutant: Mutant, tests: readonly string[]): Promise<Result> {
  if (tests.length === 0) return { kind: 'survived', text: 'SURVIVED, as no test imports it' };
  for (const some of [tests.slice(0, NEAR_TESTS), tests.slice(NEAR_TESTS)]) {
    if (some.length === 0) continue;
    const failed = await firstFailure(some, mutant);
    if (failed === undefined) continue;
    // vitest tries a test again, but not what prepares a file
    if (
      failed.file !== undefined &&
      !failed.tested &&
      (await firstFailure([failed.file], mutant)) === undefined
    )
      continue;
    if (failed.file !== undefined && (await failsAlways(failed.file)))
      return { kind: 'broken', text: `${failed.file} FAILS WITHOUT A CHANGE` };
    return { kind: 'noticed', text: `noticed by ${failed.test}` };
  }
  return { kind: 'survived', text: `SURVIVED ${tests.length} test files` };
}

/** Test files that were run without a change, and whether they failed. */
const unchanged = new Map<string, boolean>();

async function failsAlways(file: string): Promise<boolean> {
  const known = unchanged.get(file) ?? (await firstFailure([file], undefined)) !== undefined;
  unchanged.set(file, known);
  return known;
}

interface Failure {
  /** Undefined: no file can be named, as nothing was loaded or time was up. */
  readonly file: string | undefined;
  readonly test: string;
  /** A test failed, and not only what prepares the file. */
  readonly tested: boolean;
}

const reportSchema = z.object({
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      assertionResults: z.array(z.object({ fullName: z.string(), status: z.string() })),
    }),
  ),
});

async function firstFailure(
  tests: readonly string[],
  mutant: Mutant | undefined,
): Promise<Failure | undefined> {
  const output = join(scratch, 'report.json');
  rmSync(output, { force: true });
  const args = [
    join(root, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...tests,
    `--config=${join(import.meta.dirname, 'vitest.config.ts')}`,
    '--reporter=json',
    `--outputFile.json=${output}`,
  ];
  const ended = await runAlone(args, mutant === undefined ? {} : { TAILCAST_MUTANT: JSON.stringify(mutant) });
  if (ended === 0 || stop.signal.aborted) return undefined;
  if (ended === 'late')
    return { file: undefined, test: `no end within ${TIME_LIMIT_MS / 1000} s`, tested: false };
  try {
    const { testResults } = reportSchema.parse(JSON.parse(readFileSync(output, 'utf8')));
    // what was cut short by the first failure has failed as well, without a test
    const failed = testResults.filter(({ status }) => status === 'failed');
    const file = failed.find(({ assertionResults }) => assertionResults.some(isFailed)) ?? failed[0];
    if (file === undefined) return { file: tests[0], test: `vitest ended with ${ended}`, tested: false };
    const test = file.assertionResults.find(isFailed)?.fullName;
    const name = relative(root, file.name);
    return { file: name, test: `${name}: ${test ?? 'it does not load'}`, tested: test !== undefined };
  } catch {
    return { file: tests[0], test: `vitest ended with ${ended} and no report`, tested: false };
  }
}

function isFailed({ status }: { readonly status: string }): boolean {
  return status === 'failed';
}

/** A process group of its own, so that workers in an endless loop end with it. */
async function runAlone(args: readonly string[], env: NodeJS.ProcessEnv): Promise<number | null | 'late'> {
  const child = spawn(process.execPath, args, {
    cwd: root,
    stdio: 'ignore',
    detached: true,
    env: { ...process.env, ...env },
  });
  const end = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // it has ended by itself
    }
  };
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    end();
  }, TIME_LIMIT_MS);
  stop.signal.addEventListener('abort', end, { once: true });
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', resolve);
    });
    return late ? 'late' : code;
  } finally {
    clearTimeout(timer);
    stop.signal.removeEventListener('abort', end);
    end();
  }
}

function report(verdicts: readonly Verdict[], broken: number, chosen: number): number {
  const found = scores(verdicts);
  say('');
  for (const { folder, noticed, accepted, all } of found) {
    const share = all === 0 ? 1 : (noticed + accepted) / all;
    const extra = accepted === 0 ? '' : `, ${accepted} accepted`;
    say(`${folder.padEnd(26)} ${noticed} of ${all} noticed${extra} (${Math.round(share * 100)} %)`);
  }
  for (const { mutant, noticed, accepted } of verdicts) {
    if (!noticed) say(`${accepted === undefined ? 'SURVIVED' : `accepted (${accepted})`}: ${shown(mutant)}`);
  }
  if (verdicts.length + broken < chosen)
    say(
      `not done: ${chosen - verdicts.length - broken} of ${chosen}; the same --seed begins with the same changes`,
    );
  if (stop.signal.aborted) return 130;
  if (broken > 0) return 2;
  return areEnough(found) ? 0 : 1;
}

function shown({ file, line, operator, original, replacement }: Mutant): string {
  const short = (text: string): string => {
    const flat = text.replaceAll(/\s+/g, ' ');
    return flat.length > 90 ? `${flat.slice(0, 87)}…` : flat;
  };
  return `${file}:${line} ${operator}: ${short(original)} → ${short(replacement)}`;
}

function whole(name: 'sample' | 'seed' | 'minutes' | 'tests'): number {
  const value = Number(values[name]);
  if (!Number.isSafeInteger(value) || value < 1)
    throw new Error(`--${name}: a whole number from 1 is expected`);
  return value;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
