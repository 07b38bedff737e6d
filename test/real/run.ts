/**
 * Builds the peers and runs the suites against them.
 *
 *   node test/real/run.ts [suite…]
 *
 * `REAL_REPORT` names the file that is to hold vitest's JSON report.
 * A machine without Go skips everything with one printed reason. Where `CI` is set that is a failure.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GoMissingError, ensurePeer } from './rig/build.ts';
import { enterNetwork, type Entry } from './rig/network.ts';
import type { PeerName } from './rig/peers.ts';
import { SUITES, type Suite } from './suites.ts';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '..', '..');

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
  // One after the other: what is in a network of its own is in a process of its own.
  const shared = suites.filter(({ ownNetwork }) => ownNetwork !== true);
  const apart = suites.filter(({ ownNetwork }) => ownNetwork === true);
  let counts: Counts = { passed: 0, failed: 0, skipped: 0 };
  for (const [group, enter] of [
    [shared, undefined],
    [apart, enterNetwork()],
  ] as const) {
    if (group.length > 0) counts = sum(counts, await runVitest(group, enter));
  }
  return close(counts);
}

function sum(left: Counts, right: Counts): Counts {
  return {
    passed: left.passed + right.passed,
    failed: left.failed + right.failed,
    skipped: left.skipped + right.skipped,
  };
}

function peersOf(suites: readonly Suite[]): readonly PeerName[] {
  return [...new Set(suites.flatMap((suite) => suite.peers))];
}

/** The closing line that scripts read. */
function close({ passed, failed, skipped }: Counts): number {
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  return failed > 0 ? 1 : 0;
}

async function runVitest(suites: readonly Suite[], enter?: Entry): Promise<Counts> {
  const folder = mkdtempSync(join(tmpdir(), 'tcreal-'));
  const output = process.env['REAL_REPORT'] ?? join(folder, 'result.json');
  const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
  const files = suites.map((suite) => join(here, suite.file));
  const args = [vitest, 'run', '--config', join(here, 'vitest.config.ts')];
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${output}`];
  try {
    const [program = '', ...rest] = [
      ...(enter?.command ?? []),
      process.execPath,
      ...args,
      ...reporters,
      ...files,
    ];
    const env = { ...process.env, ...enter?.env };
    const code = await exitCode(spawn(program, rest, { cwd: root, stdio: 'inherit', env }));
    const counts = readCounts(output);
    // A suite that breaks outside its tests fails none of them and still is a failure.
    return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
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

function readCounts(path: string): Counts {
  try {
    const result = JSON.parse(readFileSync(path, 'utf8')) as Record<string, number>;
    return {
      passed: result['numPassedTests'] ?? 0,
      failed: result['numFailedTests'] ?? 0,
      skipped: (result['numPendingTests'] ?? 0) + (result['numTodoTests'] ?? 0),
    };
  } catch {
    return { passed: 0, failed: 0, skipped: 0 };
  }
}

process.exitCode = await main(process.argv.slice(2));
