// Runs every check and a fixed list of test suites, and prints a summary. The last lines contain one line for each
// failed or flaky test, and the numbers of flaky, passed, failed and skipped tests. The exit code is 1 if a test
// failed, a step failed or took too long, or no test of a suite passed.
//
// `node scripts/ci.mjs` runs the checks for each change. It takes about 55 minutes if the peer programs are cached, and
// longer otherwise.
//
// `node scripts/ci.mjs --nightly` runs all suites with real peers, and longer runs of faults, mutants, evidence and
// fuzzing.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readTestReport } from './test-report.mjs';

const MINUTE = 60_000;
/**
 * Maximum number of characters of a step's output that the script keeps. The script searches this text for the line
 * with the numbers of tests.
 */
const KEPT_OUTPUT = 64 * 1024;
const SHOWN_FAILURES = 40;
/**
 * Number of failed tests after which `npm test` starts no further test file, because each failed test may run twice
 * until its time limit.
 */
const MAX_FAILURES = 10;
/**
 * Minutes after which the script ends all steps, so that it prints the summary before CI ends the script after 90
 * minutes.
 */
const TOTAL_MINUTES = 80;
const isNightly = process.argv.includes('--nightly');
const deadline = isNightly ? Infinity : Date.now() + TOTAL_MINUTES * MINUTE;
/** Suites with real peers that run for each change. `npm run test:real` without arguments runs all suites. */
const REAL_SUITES = [
  'tailnet',
  'tailnet-people',
  'tailnet-changes',
  'host',
  'reference-client',
  'reference-proxy',
  'reference-grants',
  'reference-archive',
  'reference-crd',
  'differential-requests',
  'differential-spdy',
  'differential-websocket',
  'differential-tailnet',
  'differential-api-server',
  's3',
  'search',
  'failover',
  'live-control',
  'lock',
  'coverage',
  'browser',
  'clients',
  'proxy-group',
  'chart',
  'chart-tailnet',
  'load',
  'watches',
  'exec-upstream',
  'kubectl',
  'operator',
];
/** Minutes after which the suite `load` starts no further cells (combinations of test parameters). */
process.env['REAL_LOAD_MINUTES'] ??= isNightly ? '60' : '3';
/**
 * Tested versions of kubectl and API servers. `all`: each kubectl with each API server. `ends`: only the oldest and the
 * newest kubectl, and only some of the combinations. A run with `all` takes several times as long.
 */
process.env['REAL_MATRIX'] ??= isNightly ? 'all' : 'ends';
/**
 * With this variable, random tests use a fixed seed, generated pages are compared instead of written, failed tests run
 * a second time, and missing Go is an error.
 */
process.env['CI'] ??= 'true';
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const scratch = mkdtempSync(join(tmpdir(), 'tailcast-ci-'));
const total = { passed: 0, failed: 0, skipped: 0 };
const broken = [];
/**
 * One line for each failed test. These lines are printed again at the end, because CI systems may truncate the start of
 * a log.
 */
const failures = [];
/** One line for each test that passed only in its second run. Such a test, or the code that it tests, has a defect. */
const flaky = [];

// `run.mjs` remembers that it has run `npm ci`, so later steps do not run `npm ci` again
await step('npm ci', ['node', 'scripts/run.mjs', 'install'], 10 * MINUTE);
if (broken.length === 0) await (isNightly ? runNightly() : runForEachChange());
rmSync(scratch, { recursive: true, force: true });

for (const lines of [failures, flaky]) {
  for (const shown of lines.slice(0, SHOWN_FAILURES)) console.log(shown);
  if (lines.length > SHOWN_FAILURES) console.log(`and ${lines.length - SHOWN_FAILURES} more of these`);
}
for (const problem of broken) console.log(`ci: ${problem}`);
console.log(`${flaky.length} flaky`);
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = broken.length > 0 || total.failed > 0 ? 1 : 0;

async function runForEachChange() {
  await step('npm run check', ['npm', 'run', 'check'], 10 * MINUTE);
  await vitestSuite('npm test', ['npm', 'test'], 40 * MINUTE);
  await countedSuite('npm run test:real', ['npm', 'run', 'test:real', '--', ...REAL_SUITES], 60 * MINUTE);
  const faults = ['--runs', '32', '--minutes', '8'];
  await countedSuite('npm run test:faults', ['npm', 'run', 'test:faults', '--', ...faults], 10 * MINUTE);
  const mutants = ['--known', '--minutes', '2', '--workers', '2'];
  await countedSuite('npm run test:mutants', ['npm', 'run', 'test:mutants', '--', ...mutants], 5 * MINUTE);
}

async function runNightly() {
  const hours = 60 * MINUTE;
  await countedSuite('npm run test:real', ['npm', 'run', 'test:real'], 6 * hours);
  await countedSuite('npm run test:faults', ['npm', 'run', 'test:faults', '--', '--runs', '400'], 3 * hours);
  await countedSuite('npm run test:mutants', ['npm', 'run', 'test:mutants', '--', '--known'], 2 * hours);
  await countedSuite('npm run test:evidence', ['npm', 'run', 'test:evidence'], 2 * hours);
  await step('npm run fuzz', ['npm', 'run', 'fuzz'], 2 * hours);
}

/** Runs vitest and adds its JSON report to the total. */
async function vitestSuite(title, command, limitMs) {
  const report = newReport();
  await step(
    title,
    [
      ...command,
      '--',
      `--bail=${MAX_FAILURES}`,
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
    ],
    limitMs,
  );
  if (!existsSync(report)) {
    broken.push(`${title}: no report was written`);
    return;
  }
  const { passed, failed, skipped } = take(report);
  add(title, passed, failed, skipped);
}

/** Returns the path for the next suite's JSON report of vitest. */
function newReport() {
  return join(mkdtempSync(join(scratch, 'suite-')), 'report.json');
}

/** Adds the failed and flaky tests of a report to the lists. @returns the numbers of tests in the report */
function take(report) {
  const result = readTestReport(JSON.parse(readFileSync(report, 'utf8')));
  failures.push(...result.failures);
  flaky.push(...result.flaky);
  return result;
}

/** Runs a test command that prints the numbers of tests in its last line. */
async function countedSuite(title, command, limitMs) {
  const report = newReport();
  process.env['REAL_REPORT'] = report;
  const output = await step(title, command, limitMs);
  if (existsSync(report)) take(report);
  const closing = [...output.matchAll(/^(\d+) passed, (\d+) failed, (\d+) skipped$/gm)].at(-1);
  if (closing === undefined) broken.push(`${title}: it did not say how many tests ran`);
  else add(title, ...closing.slice(1).map(Number));
}

function add(title, passed, failed, skipped) {
  if (passed === 0) broken.push(`${title}: no test passed`);
  total.passed += passed;
  total.failed += failed;
  total.skipped += skipped;
}

/** Runs a command and prints its output. Resolves with the last part of the output. */
async function step(title, [program, ...args], longestMs) {
  console.log(`\n=== ${title}`);
  const limitMs = Math.max(1000, Math.min(longestMs, deadline - Date.now()));
  const started = Date.now();
  let output = '';
  const code = await new Promise((resolve) => {
    const child = spawn(program, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'], detached: true });
    child.stdout.on('data', (chunk) => {
      process.stdout.write(chunk);
      output = (output + chunk.toString()).slice(-KEPT_OUTPUT);
    });
    const timer = setTimeout(() => {
      console.log(`ci: ${title} took longer than ${Math.round(limitMs / MINUTE)} minutes and is ended`);
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    }, limitMs);
    child.on('error', (error) => resolve(error.message));
    child.on('exit', (exitCode, signal) => {
      clearTimeout(timer);
      // The step does not wait for the end of the output, because a process that the command has left behind may keep
      // the output open.
      setTimeout(() => resolve(exitCode ?? signal), 200);
    });
  });
  const seconds = Math.round((Date.now() - started) / 1000);
  console.log(`=== ${title}: ${code === 0 ? 'ok' : `failed (${code})`} after ${seconds} s`);
  if (code !== 0) broken.push(`${title} failed (${code})`);
  return output;
}
