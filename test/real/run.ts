/**
 * Builds the peers and runs the suites against them.
 *
 *   node test/real/run.ts [suite…]
 *
 * `REAL_REPORT` names the file for vitest's JSON report of all runs together. Without Go, the script skips all suites
 * and prints the reason. If `CI` is set, the script fails in this case.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GoMissingError, ensurePeer } from './rig/build.ts';
import { ensureDebianProgram } from './rig/debian.ts';
import { enterNetwork, type Entry } from './rig/network.ts';
import type { PeerName } from './rig/peers.ts';
import { runsOf, SUITES, type Suite } from './suites.ts';
import { COMPILE_CACHE } from '../support/scratch.ts';
import { releaseFolder } from './support/release.ts';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');

/** The part of vitest's JSON report that this script reads. */
interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    /** Path of the test file. */
    readonly name: string;
    readonly assertionResults: readonly { readonly status: string }[];
  }[];
}

interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

async function main(names: readonly string[]): Promise<number> {
  const unknown = names.filter((name) => SUITES[name] === undefined);
  if (unknown.length > 0) {
    process.stderr.write(`unknown suite: ${unknown.join(' ')}; known: ${Object.keys(SUITES).join(' ')}\n`);
    return 2;
  }
  const chosen = names.length > 0 ? names : Object.keys(SUITES);
  const suites = chosen.flatMap((name) => SUITES[name] ?? []);
  try {
    for (const peer of peersOf(suites)) await ensurePeer(peer);
  } catch (error) {
    if (!(error instanceof GoMissingError)) throw error;
    process.stderr.write(`test:real: ${error.message}\n`);
    const inCi = (process.env['CI'] ?? '') !== '';
    return close(
      inCi
        ? { passed: 0, failed: suites.length, skipped: 0 }
        : { passed: 0, failed: 0, skipped: suites.length },
    );
  }
  const reports: Report[] = [];
  for (const run of runsOf(suites)) reports.push(await runVitest(run));
  const report = reports.reduce(joined);
  const path = process.env['REAL_REPORT'] ?? '';
  if (path !== '') writeFileSync(path, JSON.stringify(report));
  return close(withEmptyFiles(countsOf(report), report));
}

/** Counts each suite without a passed test as a failure. Used in CI, where all peers exist. */
function withEmptyFiles(counts: Counts, { testResults }: Report): Counts {
  if ((process.env['CI'] ?? '') === '') return counts;
  const empty = testResults.filter(
    ({ assertionResults }) => !assertionResults.some(({ status }) => status === 'passed'),
  );
  for (const { name } of empty)
    process.stderr.write(`test:real: no test passed in ${relative(root, name)}\n`);
  return { ...counts, failed: counts.failed + empty.length };
}

/**
 * Fetches the programs and the release that the suites need, and returns the command that starts a process in a network
 * namespace. A missing release is built in `folder`.
 */
function enterFetched(suites: readonly Suite[], folder: string): Entry {
  const entry = enterNetwork();
  if (entry.command.length === 0) return entry;
  const fetched = suites.flatMap((suite) => suite.fetched ?? []);
  for (const program of new Set(fetched.flatMap(({ programs }) => programs))) ensureDebianProgram(program);
  if (!fetched.some(({ release }) => release)) return entry;
  return { ...entry, env: { ...entry.env, INSTALL_RELEASE: releaseFolder(folder) } };
}

function joined(left: Report, right: Report): Report {
  return {
    numPassedTests: left.numPassedTests + right.numPassedTests,
    numFailedTests: left.numFailedTests + right.numFailedTests,
    numPendingTests: left.numPendingTests + right.numPendingTests,
    numTodoTests: left.numTodoTests + right.numTodoTests,
    testResults: [...left.testResults, ...right.testResults],
  };
}

function countsOf(report: Report): Counts {
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

function peersOf(suites: readonly Suite[]): readonly PeerName[] {
  return [...new Set(suites.flatMap((suite) => suite.peers))];
}

/** Prints the last line, which other scripts parse. */
function close({ passed, failed, skipped }: Counts): number {
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  return failed > 0 ? 1 : 0;
}

async function runVitest(suites: readonly Suite[]): Promise<Report> {
  const folder = mkdtempSync(join(tmpdir(), 'tcreal-'));
  const output = join(folder, 'result.json');
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const files = suites.map((suite) => join(here, suite.file));
  const args = [vitest, 'run', '--config', join(here, 'vitest.config.ts')];
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${output}`];
  try {
    const apart = suites.some(({ ownNetwork }) => ownNetwork === true);
    const enter = apart ? enterFetched(suites, folder) : undefined;
    const [program = '', ...rest] = [
      ...(enter?.command ?? []),
      process.execPath,
      ...args,
      ...reporters,
      ...files,
    ];
    const env = { NODE_COMPILE_CACHE: COMPILE_CACHE, ...process.env, ...enter?.env };
    const code = await exitCode(spawn(program, rest, { cwd: root, stdio: 'inherit', env }));
    const report = readReport(output);
    // An error outside all tests is a failure, too.
    return code !== 0 && report.numFailedTests === 0 ? { ...report, numFailedTests: 1 } : report;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function exitCode(child: ReturnType<typeof spawn>): Promise<number> {
  return new Promise((done, fail) => {
    child.once('error', fail);
    child.once('exit', (code) => done(code ?? 1));
  });
}

function readReport(path: string): Report {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Report;
  } catch {
    return { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] };
  }
}

process.exitCode = await main(process.argv.slice(2));
