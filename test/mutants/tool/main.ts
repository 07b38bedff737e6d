/**
 * Makes small changes to the security-relevant code, one after the other, and runs the tests. At least one test must
 * fail for each change.
 *
 *   npm run test:mutants -- [options]
 *
 *   --sample 20        judges a sample of 20 changes; default 600
 *   --seed 7           judges the sample of this seed; each run prints its seed
 *   --folder src/kube  judges only changes in files with this prefix (or prefixes: a,b)
 *   --minutes 3        starts no further change after 3 minutes
 *   --workers 1        number of test files that run at the same time; default 3
 *   --tests test/kube  runs only test files with this prefix (or prefixes: a,b)
 *   --keep-coverage    records coverage again only for changed test files
 *   --kept             prints the results of earlier runs, and runs no test
 *   --write            writes the known scores into test/mutants/scores.md
 *   --known            judges changes with a known detecting test (known.json), in a minute
 *   --write-known      writes some changes of every folder into known.json
 *   --list             lists the changes without judging them
 *
 * All changes of a file are compiled in at once, in memory, and enabled one by one (schemata.ts). First every test runs
 * once, to record the changes that it reaches. These lists of changes are cached in node_modules/.cache until a file
 * that the test imports is edited. For each change, only the tests that reach it run, the fastest first, until one
 * fails. The change is detected if this test fails again with the change and passes without it.
 *
 * Exit code: 0 if at least 90 % of the changes were detected or are accepted (accepted.json), in total and in every
 * folder with ten or more changes; 1 if not; 2 if a change could not be judged; 130 after an interruption.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { filesBelow } from './covering-tests.ts';
import { acceptedReason, areEnough, changedFiles, chooseSample, scores, type Verdict } from './judging.ts';
import { createJudge, type Judge } from './judge.ts';
import { readKnown, writeKnown } from './known.ts';
import { mutantsOf, type Mutant } from './operators.ts';
import { writeScores } from './score-page.ts';
import { shown, type Outcome } from './trial.ts';

const root = join(import.meta.dirname, '../../..');
const { values } = parseArgs({
  options: {
    sample: { type: 'string', default: '600' },
    seed: { type: 'string', default: '1' },
    folder: { type: 'string', default: '' },
    minutes: { type: 'string', default: '10000' },
    workers: { type: 'string', default: '3' },
    kept: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
    tests: { type: 'string', default: 'test/' },
    'keep-coverage': { type: 'boolean', default: false },
    known: { type: 'boolean', default: false },
    'write-known': { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
  },
});
const stop = new AbortController();

async function main(): Promise<number> {
  if (values.known) return judgeKnown();
  const mutants = changedFiles(filesBelow(root, 'src')).flatMap((file) =>
    mutantsOf(file, readFileSync(join(root, file), 'utf8')),
  );
  const chosen = chooseSample(mutants, whole('sample'), whole('seed')).filter(({ file }) =>
    beginsWith(file, values.folder),
  );
  say(`${mutants.length} changes in all, ${chosen.length} chosen with --seed ${values.seed}`);
  if (values.list) {
    for (const mutant of chosen) say(shown(mutant));
    return 0;
  }
  if (values.write && (values.folder !== '' || values['keep-coverage']))
    throw new Error('--write: the whole sample, and what holds for the files as they are');
  const judge = await openJudge();
  try {
    const outcomes = values.kept ? judge.kept(chosen) : await judge.judge(chosen);
    if (values['write-known']) writeKnown(root, outcomes);
    const verdicts = verdictsOf(chosen, outcomes);
    for (const { mutant } of verdicts.filter(({ noticed }) => !noticed))
      say(`${outcomes.get(mutant)?.text ?? 'NOT JUDGED'}: ${shown(mutant)}`);
    if (values.write) writeScores(root, whole('seed'), verdictsOf(chosen, judge.kept(chosen)));
    const broken = [...outcomes.values()].filter(({ kind }) => kind === 'broken').length;
    return report(verdicts, broken);
  } finally {
    await judge.close();
  }
}

function verdictsOf(chosen: readonly Mutant[], outcomes: ReadonlyMap<Mutant, Outcome>): readonly Verdict[] {
  return chosen.map((mutant) => {
    const kind = outcomes.get(mutant)?.kind;
    return {
      mutant,
      noticed: kind === 'noticed',
      isJudged: kind === 'survived',
      accepted: acceptedReason(mutant),
    };
  });
}

function openJudge(): Promise<Judge> {
  return createJudge({
    root,
    signal: AbortSignal.any([stop.signal, AbortSignal.timeout(whole('minutes') * 60_000)]),
    say,
    isAsked: (file) => beginsWith(file, values.tests),
    keepCoverage: values['keep-coverage'],
    workers: whole('workers'),
  });
}

/** Judges the known changes. `scripts/ci.mjs` parses the last printed line. */
async function judgeKnown(): Promise<number> {
  const { known, gone } = readKnown(root);
  const judge = await openJudge();
  try {
    const outcomes = await judge.judgeKnown(known);
    const survived = known.filter(({ mutant }) => outcomes.get(mutant)?.kind === 'survived');
    for (const { mutant, by } of survived)
      say(`no longer noticed by ${by.file}: ${by.test}: ${shown(mutant)}`);
    for (const { mutant, by } of known)
      if (!outcomes.has(mutant)) say(`not judged by ${by.file}: ${by.test}: ${shown(mutant)}`);
    if (gone > 0) say(`${gone} are no longer in the code: --write-known keeps others`);
    const passed = outcomes.size - survived.length;
    say(`${passed} passed, ${survived.length} failed, ${known.length - outcomes.size + gone} skipped`);
    // fails if most known changes no longer exist; changes that were skipped for lack of time are no failure
    return survived.length === 0 && passed > 0 && known.length >= gone ? 0 : 1;
  } finally {
    await judge.close();
  }
}

function report(verdicts: readonly Verdict[], broken: number): number {
  const found = scores(verdicts);
  for (const { folder, noticed, accepted, judged, all } of found) {
    const share = Math.floor((100 * (noticed + accepted)) / all);
    say(
      `${folder}: ${noticed} of ${all} noticed, ${accepted} accepted, ${all - judged} open: at least ${share} %`,
    );
  }
  const [all] = scores(verdicts, () => 'all');
  const { noticed = 0, accepted = 0, judged = 0 } = all ?? {};
  say(
    `${noticed} noticed, ${accepted} accepted, ${judged - noticed - accepted} survived, ` +
      `${verdicts.length - judged} open, ${broken} of these could not be judged`,
  );
  if (stop.signal.aborted) return 130;
  if (broken > 0) return 2;
  return areEnough(found) ? 0 : 1;
}

/** @param starts one or more prefixes, separated by commas */
function beginsWith(path: string, starts: string): boolean {
  return starts.split(',').some((start) => path.startsWith(start));
}

function whole(name: 'sample' | 'seed' | 'minutes' | 'workers'): number {
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
  process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exitCode = 2;
}
