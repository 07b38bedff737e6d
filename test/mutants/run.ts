/**
 * Takes out one check after the other and asks the tests whether they notice.
 *
 *   npm run test:mutants                     all of them
 *   npm run test:mutants -- --only headers   those whose file or name contains the word
 *   npm run test:mutants -- --from 50        without the first 49, to go on where a run was stopped
 *   npm run test:mutants -- --list           names them
 *
 * Works on a copy in a temporary folder; the work tree is only read. Fails when a mutation does not fit its file any more,
 * when the tests fail without any mutation, or when fewer than 98 % are noticed.
 */
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { ALL_SUITES, FIRST_SUITES, MUTATIONS, type Mutation } from './mutations.ts';

const REQUIRED = 0.98;
const COPIED = ['src', 'test', 'scripts', 'package.json', 'tsconfig.json', 'vitest.config.ts'];
/** A slow machine must not look like a check that was noticed. */
const RETRIES = 1;

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const { values } = parseArgs({
  options: { only: { type: 'string' }, from: { type: 'string' }, list: { type: 'boolean' } },
});
const only = values.only;
const chosen = MUTATIONS.slice(Number(values.from ?? 1) - 1).filter(
  ({ name, file }) => only === undefined || `${file} ${name}`.includes(only),
);

if (values.list === true) {
  for (const { file, name } of chosen) process.stdout.write(`${file}: ${name}\n`);
} else {
  process.exitCode = await main();
}

async function main(): Promise<number> {
  const stale = chosen.filter(
    (mutation) => readFileSync(join(root, mutation.file), 'utf8').split(mutation.find).length !== 2,
  );
  for (const { file, name, find } of stale) say(`does not fit ${file}: ${name}: ${JSON.stringify(find)}`);
  if (stale.length > 0 || chosen.length === 0) return 1;
  const copy = mkdtempSync(join(tmpdir(), 'tailcast-mutants-'));
  try {
    for (const name of COPIED) {
      // the peers of the real tests bring trees of their own, and none of those tests is run here
      const wanted = (path: string): boolean => !/\/(?:node_modules|test\/real)(?:\/|$)/.test(path);
      if (existsSync(join(root, name)))
        cpSync(join(root, name), join(copy, name), { recursive: true, filter: wanted });
    }
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
    if (!(await passes(copy, ALL_SUITES, 'inherit'))) {
      say('the tests fail without any mutation, so they would prove nothing');
      return 1;
    }
    return await judge(copy);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

async function judge(copy: string): Promise<number> {
  const survivors: Mutation[] = [];
  for (const [index, mutation] of chosen.entries()) {
    const noticed = await isNoticed(copy, mutation);
    if (!noticed) survivors.push(mutation);
    say(
      `${index + 1}/${chosen.length} ${noticed ? 'noticed ' : 'SURVIVED'} ${mutation.file}: ${mutation.name}`,
    );
  }
  const share = (chosen.length - survivors.length) / chosen.length;
  say(`${chosen.length - survivors.length} of ${chosen.length} noticed (${(share * 100).toFixed(1)} %)`);
  for (const { file, name } of survivors) say(`not noticed: ${file}: ${name}`);
  return share >= REQUIRED ? 0 : 1;
}

async function isNoticed(copy: string, { file, find, replace }: Mutation): Promise<boolean> {
  const path = join(copy, file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(path, source.split(find).join(replace));
  try {
    const first = FIRST_SUITES[file];
    if (first !== undefined && !(await passes(copy, first))) return true;
    return !(await passes(copy, ALL_SUITES));
  } finally {
    writeFileSync(path, source);
  }
}

/** True when every test of the suites passes. */
function passes(
  copy: string,
  suites: readonly string[],
  output: 'ignore' | 'inherit' = 'ignore',
): Promise<boolean> {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', ...suites, '--bail=1', '--reporter=dot', `--retry=${RETRIES}`];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: copy, stdio: output });
    child.once('error', reject);
    child.once('exit', (code) => resolve(code === 0));
  });
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
