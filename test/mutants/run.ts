/**
 * Removes one check after the other, and runs the tests to see if one fails.
 *
 *   npm run test:mutants:named                     all of them
 *   npm run test:mutants:named -- --only headers   those whose file or name contains the word
 *   npm run test:mutants:named -- --fresh          without what an earlier run over the same files found out
 *   npm run test:mutants:named -- --list           names them
 *   npm run test:demonstrations                     the lines that prevent a demonstrated attack, and the test of each
 *
 * Works on a copy in a temporary folder. The only written file of the work tree is
 * `node_modules/.cache/tailcast-mutants.jsonl` with the results and the hashes of their files. A stopped run
 * continues there if no file has changed. After a change, each mutation is tested again, starting with the test that
 * detected it the last time.
 *
 * Fails if a mutation no longer matches its file, if the tests fail without a mutation, or if fewer than 98 % are
 * detected.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { DEMONSTRATIONS, NOTICED_LINES, type Check } from './demonstrations.ts';
import { ALL_SUITES, FIRST_SUITES, MUTATIONS, type Mutation } from './mutations.ts';

const REQUIRED = 0.98;
const COPIED = ['src', 'test', 'scripts', 'deploy', 'package.json', 'tsconfig.json', 'vitest.config.ts'];
/** A slow machine must not look like a detected mutation. */
const RETRIES = 1;

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const journalFile = join(root, 'node_modules/.cache/tailcast-mutants.jsonl');
const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    fresh: { type: 'boolean' },
    list: { type: 'boolean' },
    demonstrations: { type: 'boolean' },
  },
});
/** A mutation, and the only test that may notice it. */
type Tried = Mutation & { readonly proof?: Pick<Check, 'testFile' | 'test'> };
const DEMONSTRATED: readonly Tried[] = [
  ...DEMONSTRATIONS.map(({ number, checks }) => ({ name: `demonstration ${number}`, checks })),
  { name: 'noticed lines', checks: NOTICED_LINES },
].flatMap(({ name, checks }) =>
  checks.map(({ file, find, replace, testFile, test }) => ({
    name: `${name}: ${testFile} ${test}`,
    file,
    find,
    replace,
    proof: { testFile, test },
  })),
);
const only = values.only;
const all: readonly Tried[] = values.demonstrations === true ? DEMONSTRATED : MUTATIONS;
const chosen = all.filter(({ name, file }) => only === undefined || `${file} ${name}`.includes(only));
/** Suites that must pass without a mutation. */
const suites = [...new Set(chosen.flatMap(({ proof }) => proof?.testFile ?? ALL_SUITES))];

/** One line of the journal: the result of a mutation. */
const finding = z.object({
  /** Hash of all copied files. */
  tree: z.string(),
  mutation: z.string(),
  /** The failed test; undefined if all passed. */
  by: z.object({ file: z.string(), test: z.string() }).optional(),
});
type Finding = z.infer<typeof finding>;

/** Result without a mutation: the tests pass. */
const UNCHANGED = suites.join(' ');

async function main(): Promise<number> {
  const stale = chosen.filter(
    (mutation) => readFileSync(join(root, mutation.file), 'utf8').split(mutation.find).length !== 2,
  );
  for (const { file, name, find } of stale) say(`does not fit ${file}: ${name}: ${JSON.stringify(find)}`);
  if (stale.length > 0 || chosen.length === 0) return 1;
  const copy = mkdtempSync(join(tmpdir(), 'tailcast-mutants-'));
  try {
    for (const name of COPIED) {
      // the peers of the real tests have their own trees, and none of those tests runs here
      const wanted = (path: string): boolean =>
        !/\/(?:node_modules|test\/(?:real|mutants))(?:\/|$)/.test(path);
      if (existsSync(join(root, name)))
        cpSync(join(root, name), join(copy, name), { recursive: true, filter: wanted });
    }
    const tree = hashOfTree(copy);
    for (const name of ['node_modules', 'dist'])
      if (existsSync(join(root, name))) symlinkSync(join(root, name), join(copy, name));
    return await judge(copy, tree, readJournal());
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

async function judge(copy: string, tree: string, earlier: ReadonlyMap<string, Finding>): Promise<number> {
  const known = (id: string): Finding | undefined => {
    const found = values.fresh === true ? undefined : earlier.get(id);
    return found?.tree === tree ? found : undefined;
  };
  const complete = chosen.every((mutation) => known(idOf(mutation)) !== undefined);
  if (!complete && known(UNCHANGED) === undefined) {
    const broken = await firstFailure(copy, { suites });
    if (broken !== undefined) {
      say(`without any mutation ${broken.file} fails, so that it would prove nothing: ${broken.test}`);
      return 1;
    }
    keep({ tree, mutation: UNCHANGED });
  }
  const survivors: Tried[] = [];
  for (const [index, mutation] of chosen.entries()) {
    const id = idOf(mutation);
    const { by } = known(id) ?? (await tryOut(copy, tree, mutation, earlier.get(id)?.by));
    if (by === undefined) survivors.push(mutation);
    const result = by === undefined ? 'SURVIVED' : `noticed by ${by.file}: ${by.test}`;
    say(`${index + 1}/${chosen.length} ${mutation.file}: ${mutation.name}: ${result}`);
  }
  const share = (chosen.length - survivors.length) / chosen.length;
  say(`${chosen.length - survivors.length} of ${chosen.length} noticed (${(share * 100).toFixed(1)} %)`);
  for (const { file, name } of survivors) say(`not noticed: ${file}: ${name}`);
  return share >= (values.demonstrations === true ? 1 : REQUIRED) ? 0 : 1;
}

async function tryOut(
  copy: string,
  tree: string,
  mutation: Tried,
  last: Finding['by'],
): Promise<Pick<Finding, 'by'>> {
  const by = await noticedBy(copy, mutation, last);
  keep({ tree, mutation: idOf(mutation), ...(by === undefined ? {} : { by }) });
  return { by };
}

/**
 * Returns the first test that fails with the mutation; tries the test of the last time, the likeliest suites, then
 * all.
 */
async function noticedBy(
  copy: string,
  { file, find, replace, proof }: Tried,
  last: Finding['by'],
): Promise<Finding['by']> {
  const path = join(copy, file);
  const source = readFileSync(path, 'utf8');
  writeFileSync(path, source.split(find).join(replace));
  const first = FIRST_SUITES[file];
  try {
    if (proof !== undefined)
      return await firstFailure(copy, {
        suites: [proof.testFile],
        pattern: escapeForRegExp(proof.test).replaceAll(' > ', '.*'),
      });
    const again =
      last === undefined
        ? undefined
        : await firstFailure(copy, { suites: [last.file], pattern: `^${escapeForRegExp(last.test)}$` });
    const early = again ?? (first === undefined ? undefined : await firstFailure(copy, { suites: first }));
    return early ?? (await firstFailure(copy, { suites: ALL_SUITES }));
  } finally {
    writeFileSync(path, source);
  }
}

const report = z.object({
  success: z.boolean(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string(),
      assertionResults: z.array(
        z.object({ ancestorTitles: z.array(z.string()), title: z.string(), status: z.string() }),
      ),
    }),
  ),
});

/** `undefined` if every test of the suites passes; with `pattern`, only tests with such names run. */
async function firstFailure(
  copy: string,
  { suites, pattern = '' }: { readonly suites: readonly string[]; readonly pattern?: string },
): Promise<Finding['by']> {
  const output = join(copy, 'report.json');
  rmSync(output, { force: true });
  const args = [
    join(root, 'node_modules/vitest/vitest.mjs'),
    'run',
    ...suites,
    '--bail=1',
    `--retry=${RETRIES}`,
    '--reporter=json',
    `--outputFile.json=${output}`,
    ...(pattern === '' ? [] : [`--testNamePattern=${pattern}`]),
  ];
  const code = await new Promise<number | null>((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: copy, stdio: 'ignore' });
    child.once('error', reject);
    child.once('exit', resolve);
  });
  if (code === 0) return undefined;
  // a suite that cannot be loaded has no test names
  const nameless = { file: suites.join(' '), test: `vitest ended with ${code}` };
  if (!existsSync(output)) return nameless;
  const { testResults } = report.parse(JSON.parse(readFileSync(output, 'utf8')));
  for (const result of testResults) {
    const failed = result.assertionResults.find(({ status }) => status === 'failed');
    if (failed !== undefined)
      return { file: relative(copy, result.name), test: patternName(failed.ancestorTitles, failed.title) };
  }
  const broken = testResults.find(({ status }) => status === 'failed');
  return broken === undefined
    ? nameless
    : { file: relative(copy, broken.name), test: broken.message.split('\n', 1)[0] ?? '' };
}

/** In the format of `--testNamePattern`; the report's `fullName` is joined with blanks, which never match. */
function patternName(suites: readonly string[], title: string): string {
  return [...suites, title].join(' > ');
}

function escapeForRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`);
}

function idOf(mutation: Mutation): string {
  return createHash('sha256').update(JSON.stringify(mutation)).digest('hex').slice(0, 16);
}

function hashOfTree(folder: string): string {
  const hash = createHash('sha256');
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  for (const file of files.toSorted()) {
    const content = readFileSync(file);
    hash.update(`${relative(folder, file)} ${content.length}\n`).update(content);
  }
  return hash.digest('hex').slice(0, 16);
}

/** The last result of each mutation. An incomplete line is skipped. */
function readJournal(): ReadonlyMap<string, Finding> {
  const found = new Map<string, Finding>();
  if (!existsSync(journalFile)) return found;
  for (const line of readFileSync(journalFile, 'utf8').split('\n')) {
    const parsed = finding.safeParse(parseJson(line));
    if (parsed.success) found.set(parsed.data.mutation, parsed.data);
  }
  return found;
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function keep(entry: Finding): void {
  mkdirSync(dirname(journalFile), { recursive: true });
  appendFileSync(journalFile, `${JSON.stringify(entry)}\n`);
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

if (values.list === true) {
  for (const { file, name } of chosen) process.stdout.write(`${file}: ${name}\n`);
} else {
  process.exitCode = await main();
}
