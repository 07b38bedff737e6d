// Runs every check and every test suite and sums them up in one closing line:
//   N passed, N failed, N skipped
// Exits non-zero when anything failed, when a step did not run to its end, or when fewer tests passed than the floor.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Raised as the suite grows: fewer passing tests than this means that a suite silently did not run. */
const FLOOR = 20;
const MINUTE = 60_000;
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const scratch = mkdtempSync(join(tmpdir(), 'tailcast-ci-'));
const total = { passed: 0, failed: 0, skipped: 0 };
const broken = [];

await step('npm ci', ['npm', 'ci', '--no-audit', '--no-fund'], 10 * MINUTE);
if (broken.length === 0) {
  await step('npm run check', ['npm', 'run', 'check'], 10 * MINUTE);
  await suite('npm test', ['npm', 'test'], 25 * MINUTE);
  await suite('npm run test:real', ['npm', 'run', 'test:real'], 45 * MINUTE);
}
rmSync(scratch, { recursive: true, force: true });

if (total.passed < FLOOR) broken.push(`only ${total.passed} tests passed; the floor is ${FLOOR}`);
for (const problem of broken) console.log(`ci: ${problem}`);
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`);
process.exitCode = broken.length > 0 || total.failed > 0 ? 1 : 0;

/** A test command whose JSON report is added to the total. */
async function suite(title, command, limitMs) {
  const report = join(scratch, `${title.replaceAll(/\W+/g, '-')}.json`);
  await step(
    title,
    [...command, '--', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`],
    limitMs,
  );
  if (!existsSync(report)) {
    broken.push(`${title}: no report was written`);
    return;
  }
  const { numPassedTests, numFailedTests, numPendingTests, numTodoTests } = JSON.parse(
    readFileSync(report, 'utf8'),
  );
  total.passed += numPassedTests;
  total.failed += numFailedTests;
  total.skipped += numPendingTests + numTodoTests;
}

async function step(title, [program, ...args], limitMs) {
  console.log(`\n=== ${title}`);
  const started = Date.now();
  const code = await new Promise((resolve) => {
    const child = spawn(program, args, {
      cwd: root,
      stdio: ['ignore', 'inherit', 'inherit'],
      detached: true,
    });
    const timer = setTimeout(() => {
      console.log(`ci: ${title} took longer than ${limitMs / MINUTE} minutes and is ended`);
      process.kill(-child.pid, 'SIGKILL');
    }, limitMs);
    child.on('error', (error) => resolve(error.message));
    child.on('exit', (exitCode, signal) => {
      clearTimeout(timer);
      resolve(exitCode ?? signal);
    });
  });
  console.log(
    `=== ${title}: ${code === 0 ? 'ok' : `failed (${code})`} after ${Math.round((Date.now() - started) / 1000)} s`,
  );
  if (code !== 0) broken.push(`${title} failed (${code})`);
}
