/**
 * Prints the size of the code as a table, and exits with 1 if a value exceeds its budget in `structure.json`.
 *
 * Lines with only comments or white space are not counted. When a value of the table decreases, decrease its budget as
 * well.
 */
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'vite';
import { z } from 'zod';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const MOST_IMPORTS = 30;
const HOT_FILE = 'src/proxy/session/upgrade.ts';

const BUDGETS = z.strictObject({
  /** Budget of each row of the table. `was` is the value at commit 9719fbc, and `goal` is the target. */
  total: z.record(
    z.string(),
    z.strictObject({ budget: z.number(), was: z.number().optional(), goal: z.number().optional() }),
  ),
  /** Maximum number of code lines for each folder of `src`. */
  folders: z.record(z.string(), z.number()),
});

interface Row {
  readonly name: string;
  readonly now: number;
  readonly budget: number | undefined;
  readonly was?: number | undefined;
  readonly goal?: number | undefined;
}

interface ParsedFile {
  readonly path: string;
  readonly codeLines: number;
  /** Imported modules, including type-only imports. */
  readonly imports: number;
  /** Files of the repository that this file imports at run time. */
  readonly loads: readonly string[];
}

/** Returns the number of lines of a text that contain code, not only comments or white space. */
export function countCodeLines(
  text: string,
  comments: readonly { readonly start: number; readonly end: number }[],
): number {
  let code = '';
  let at = 0;
  for (const { start, end } of comments) {
    code += text.slice(at, start) + text.slice(start, end).replaceAll(/[^\n]/g, '');
    at = end;
  }
  code += text.slice(at);
  return code.split('\n').filter((line) => line.trim() !== '').length;
}

/** @throws Error if the file has a syntax error */
export function parseFile(path: string, text: string): ParsedFile {
  if (path.endsWith('.css')) {
    const comments = [...text.matchAll(/\/\*[^]*?\*\//g)].map((match) => ({
      start: match.index,
      end: match.index + match[0].length,
    }));
    return { path, codeLines: countCodeLines(text, comments), imports: 0, loads: [] };
  }
  const { comments, errors, module } = parseSync(path, text);
  if (errors[0] !== undefined) throw new Error(`${path}: ${errors[0].message}`);
  const exported = module.staticExports.flatMap(({ entries }) => entries);
  const reExports = exported.filter(({ moduleRequest }) => moduleRequest !== null);
  const loaded = [
    ...module.staticImports
      .filter(({ entries }) => entries.length === 0 || entries.some(({ isType }) => !isType))
      .map(({ moduleRequest }) => moduleRequest.value),
    ...reExports.filter(({ isType }) => !isType).map(({ moduleRequest }) => moduleRequest?.value ?? ''),
  ];
  return {
    path,
    codeLines: countCodeLines(text, comments),
    imports:
      module.staticImports.length + new Set(reExports.map(({ moduleRequest }) => moduleRequest?.value)).size,
    loads: loaded
      .filter((specifier) => specifier.startsWith('.'))
      .map((specifier) => relative(ROOT, resolve(ROOT, dirname(path), specifier)).replaceAll(sep, '/')),
  };
}

/** Returns the files that are loaded when `entry` is loaded, including `entry`. */
export function reachOf(entry: string, files: readonly ParsedFile[]): readonly ParsedFile[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const reached = new Set([entry]);
  for (const path of reached) for (const next of byPath.get(path)?.loads ?? []) reached.add(next);
  return files.filter(({ path }) => reached.has(path));
}

/** Returns one line for each row above its budget. Also returns a line for each row without a budget. */
export function overBudget(rows: readonly Row[]): readonly string[] {
  return rows.flatMap(({ name, now, budget }) => {
    if (budget === undefined) return [`${name} has no budget in scripts/structure.json`];
    return now > budget
      ? [
          `${name}: ${now} is above its budget of ${budget}: delete something, or raise the budget in ` +
            'scripts/structure.json and say why in the commit',
        ]
      : [];
  });
}

function readParsed(folder: string): readonly ParsedFile[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(?:tsx?|mts|mjs|js|css)$/.test(name) && !/(?:^|[\\/])node_modules[\\/]/.test(name))
    .map((name) => `${folder}/${name.replaceAll(sep, '/')}`)
    .map((path) => parseFile(path, readFileSync(join(ROOT, path), 'utf8')));
}

const linesOf = (files: readonly ParsedFile[]): number =>
  files.reduce((sum, { codeLines }) => sum + codeLines, 0);

function countIn(folder: string, name: RegExp): number {
  return readdirSync(join(ROOT, folder)).filter((entry) => name.test(entry)).length;
}

/**
 * Returns the number of upload protocols. v1 and v2 of the reference (Tailscale's tsrecorder) count as one protocol.
 */
function countProtocols(): number {
  const names = readdirSync(join(ROOT, 'src/recording')).map(
    (file) => /^recorder-(upgrade|v(?=\d))\d*\.ts$/.exec(file)?.[1],
  );
  return new Set(names.filter((name) => name !== undefined)).size;
}

function measure(): { readonly total: ReadonlyMap<string, number>; readonly folders: Map<string, number> } {
  const src = readParsed('src');
  const reach = reachOf(HOT_FILE, src);
  const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
  const tap = /^export interface Tap \{$([^]*?)^\}$/m.exec(read('src/recording/tap.ts'))?.[1] ?? '';
  const total = new Map([
    ['src', linesOf(src)],
    ['demo', linesOf(readParsed('demo'))],
    ['test and bench', linesOf([...readParsed('test'), ...readParsed('bench')])],
    ['settings', read('docs/config.md').match(/^- `--/gm)?.length ?? 0],
    [
      `files with over ${MOST_IMPORTS} imports`,
      [...src, ...readParsed('demo')].filter(({ imports }) => imports > MOST_IMPORTS).length,
    ],
    ['upload protocols', countProtocols()],
    [
      'list implementations',
      countIn('src/tsrecorder/library', /^(?:.*-list|listing|newest|candidates)\.ts$/),
    ],
    ['deployment frameworks', countIn('src/operator', /^(?:nodes|proxies|workload)$/)],
    ['files loaded by session/upgrade.ts', reach.length],
    ['lines loaded by session/upgrade.ts', linesOf(reach)],
    ['members of Tap', tap.match(/^ {2}(?:readonly )?\w+\??[(:]/gm)?.length ?? 0],
  ]);
  const byFolder = Map.groupBy(src, ({ path }) => {
    const [, folder = '', rest] = path.split('/');
    return rest === undefined ? '(files)' : folder;
  });
  const folders = [...byFolder].map(([name, files]) => [name, linesOf(files)] as const);
  return { total, folders: new Map(folders.toSorted(([a], [b]) => a.localeCompare(b))) };
}

function printTable(title: string, rows: readonly Row[]): void {
  const show = (value: number | undefined): string => (value === undefined ? '' : String(value)).padStart(8);
  console.log(`\n${title.padEnd(36)}     now  budget 9719fbc    goal`);
  for (const { name, now, budget, was, goal } of rows)
    console.log(`${name.padEnd(36)}${show(now)}${show(budget)}${show(was)}${show(goal)}`);
}

if (import.meta.main) {
  const budgets = BUDGETS.parse(JSON.parse(readFileSync(new URL('structure.json', import.meta.url), 'utf8')));
  const { total, folders } = measure();
  const totals = [...total].map(([name, now]) => ({
    name,
    now,
    ...(budgets.total[name] ?? { budget: undefined }),
  }));
  const rows = [...folders].map(([name, now]) => ({
    name: `src/${name}`,
    now,
    budget: budgets.folders[name],
  }));
  printTable('', totals);
  printTable('code lines', rows);
  const problems = overBudget([...totals, ...rows]);
  for (const problem of problems) console.error(`structure: ${problem}`);
  process.exitCode = problems.length > 0 ? 1 : 0;
}
