/**
 * For each demonstrated attack, removes the lines that prevent it, and requires that the named test fails.
 *
 *   npm run test:demonstrations                     all of them
 *   npm run test:demonstrations -- --only headers   those whose file or name contains the word
 *
 * Works on a copy in a temporary folder. Fails if a line is not found in its file, if a test fails although no line is
 * removed, or if no test detects a removed line.
 */
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { DEMONSTRATIONS, NOTICED_LINES, type Check } from './demonstrations.ts';

const COPIED = [
  'src',
  'demo',
  'test',
  'scripts',
  'deploy',
  'package.json',
  'package-lock.json',
  '.npmrc',
  'tsconfig.json',
  'vitest.config.ts',
];
/**
 * A removal counts as detected only if its test also fails in this number of retries, because a test may fail once on a
 * slow machine.
 */
const RETRIES = 1;

const root = join(import.meta.dirname, '../..');
const { only = '' } = parseArgs({ options: { only: { type: 'string' } } }).values;
const chosen = [
  ...DEMONSTRATIONS.map(({ number, checks }) => ({ name: `demonstration ${number}`, checks })),
  { name: 'noticed lines', checks: NOTICED_LINES },
]
  .flatMap(({ name, checks }) =>
    checks.map((check) => ({ ...check, name: `${name}: ${check.testFile} ${check.test}` })),
  )
  .filter(({ name, file }) => `${file} ${name}`.includes(only));

async function main(): Promise<number> {
  const stale = chosen.filter(
    ({ file, find }) => readFileSync(join(root, file), 'utf8').split(find).length !== 2,
  );
  for (const { file, name, find } of stale) say(`does not fit ${file}: ${name}: ${JSON.stringify(find)}`);
  if (stale.length > 0 || chosen.length === 0) return 1;
  const copy = mkdtempSync(join(tmpdir(), 'tailcast-demonstrations-'));
  try {
    // test/real and test/mutants are not needed: none of their tests runs here
    const filter = (path: string): boolean => !/\/(?:node_modules|test\/(?:real|mutants))(?:\/|$)/.test(path);
    for (const name of COPIED) cpSync(join(root, name), join(copy, name), { recursive: true, filter });
    for (const name of ['node_modules', 'dist'])
      if (existsSync(join(root, name))) symlinkSync(join(root, name), join(copy, name));
    const suites = [...new Set(chosen.map(({ testFile }) => testFile))];
    if (!(await passes(copy, suites))) {
      say('the tests fail without a change, so they would prove nothing');
      return 1;
    }
    let unnoticed = 0;
    for (const check of chosen) {
      const isNoticed = await notices(copy, check);
      if (!isNoticed) unnoticed += 1;
      say(`${isNoticed ? 'noticed' : 'NOT NOTICED'}: ${check.file}: ${check.name}`);
    }
    say(`${chosen.length - unnoticed} of ${chosen.length} noticed`);
    return unnoticed === 0 ? 0 : 1;
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

async function notices(copy: string, { file, find, replace, testFile, test }: Check): Promise<boolean> {
  const path = join(copy, file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(path, source.split(find).join(replace));
  const pattern = test.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`).replaceAll(' > ', '.*');
  try {
    return !(await passes(copy, [testFile], pattern));
  } finally {
    writeFileSync(path, source);
  }
}

/** @param pattern selects tests by name; without a pattern, all tests run and their report is printed */
async function passes(copy: string, suites: readonly string[], pattern?: string): Promise<boolean> {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const args = ['run', ...suites, '--bail=1', `--retry=${RETRIES}`, `--testNamePattern=${pattern ?? ''}.*`];
  const stdio = pattern === undefined ? 'inherit' : 'ignore';
  const child = spawn(process.execPath, [vitest, ...args], { cwd: copy, stdio });
  return await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code === 0));
  });
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

process.exitCode = await main();
