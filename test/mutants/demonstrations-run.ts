/**
 * Removes the fix of each demonstrated hole in a copy, and expects its test to fail; then does the same with each
 * line that no test covered once: npm run test:demonstrations [-- --only 7|lines]
 */
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { DEMONSTRATIONS, NOTICED_LINES, type Check } from './demonstrations.ts';

const COPIED = ['src', 'test', 'scripts', 'deploy', 'package.json', 'tsconfig.json', 'vitest.config.ts'];
const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const { values } = parseArgs({ options: { only: { type: 'string' } } });
const REPORT = z.object({
  testResults: z.array(
    z.object({ assertionResults: z.array(z.object({ fullName: z.string(), status: z.string() })) }),
  ),
});

function makeCopy(): string {
  const copy = mkdtempSync(join(tmpdir(), 'tailcast-demonstrations-'));
  const wanted = (path: string): boolean => !/\/(?:node_modules|test\/real)(?:\/|$)/.test(path);
  for (const name of COPIED) cpSync(join(root, name), join(copy, name), { recursive: true, filter: wanted });
  for (const name of ['node_modules', 'dist'])
    if (existsSync(join(root, name))) symlinkSync(join(root, name), join(copy, name));
  return copy;
}

/** Returns the number of passed tests of a check in the copy and the failed ones; undefined if they cannot run. */
async function runTests(
  copy: string,
  { testFile, test }: Check,
): Promise<{ readonly passed: number; readonly failed: readonly string[] } | undefined> {
  const output = join(copy, 'report.json');
  rmSync(output, { force: true });
  const name = test.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`).replaceAll(' > ', '.*');
  const filter = test === '' ? [] : [`--testNamePattern=${name}`];
  const reporter = ['--reporter=json', `--outputFile.json=${output}`];
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const child = spawn(process.execPath, [vitest, 'run', testFile, ...filter, ...reporter], {
    cwd: copy,
    stdio: 'ignore',
  });
  await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  if (!existsSync(output)) return undefined;
  const { testResults } = REPORT.parse(JSON.parse(readFileSync(output, 'utf8')));
  const results = testResults.flatMap(({ assertionResults }) => assertionResults);
  const named = (wanted: string): readonly string[] =>
    results.filter(({ status }) => status === wanted).map(({ fullName }) => fullName);
  return { passed: named('passed').length, failed: named('failed') };
}

/** Tests that pass with all fixes. */
const sound = new Set<string>();

/** @returns the test that fails, or the problem */
async function judge(
  copy: string,
  check: Check,
): Promise<{ readonly by: string } | { readonly fault: string }> {
  const path = join(copy, check.file);
  const source = readFileSync(path, 'utf8');
  if (source.split(check.find).length !== 2) return { fault: 'the line is not there once' };
  const tests = `${check.testFile} ${check.test}`;
  if (!sound.has(tests)) {
    const before = await runTests(copy, check);
    if (before === undefined || before.failed.length > 0 || before.passed === 0) {
      const failing = before?.failed.join(', ') ?? 'nothing could be run';
      return { fault: `with the fix ${before?.passed ?? 0} tests pass; ${failing}` };
    }
    sound.add(tests);
  }
  writeFileSync(
    path,
    source.replace(check.find, () => check.replace),
  );
  try {
    const [by] = (await runTests(copy, check))?.failed ?? [];
    return by === undefined ? { fault: 'no test fails without the fix' } : { by };
  } finally {
    writeFileSync(path, source);
  }
}

const copy = makeCopy();
try {
  const all = [
    ...DEMONSTRATIONS.map(({ number, checks }) => ({ number: String(number), checks })),
    { number: 'lines', checks: NOTICED_LINES },
  ];
  for (const { number, checks } of all) {
    if (values.only !== undefined && values.only !== number) continue;
    for (const check of checks) {
      const result = await judge(copy, check);
      if ('fault' in result) process.exitCode = 1;
      const said = 'fault' in result ? `NOT NOTICED, ${result.fault}` : `noticed by “${result.by}”`;
      process.stdout.write(`${number} ${check.file}: ${said} (${check.testFile})\n`);
    }
  }
} finally {
  rmSync(copy, { recursive: true, force: true });
}
