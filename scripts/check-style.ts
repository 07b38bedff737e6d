/**
 * Checks the writing style of pages, comments and messages (docs/writing.md), and the length of lines and table rows.
 *
 *   npm run style                  fails if a folder has more violations than in style-baseline.json
 *   npm run style -- src/proxy     prints the violations of files below a path
 *   npm run style -- --update      lowers the baseline to the current counts
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { cellsOf, listFiles, proseOf, readSource, ROOT, withoutCode } from './prose.ts';
import { MAX_CELL_WORDS, MAX_SOURCE_LINE, MAX_TABLE_ROW, STYLE_RULES } from './style-rules.ts';

const BASELINE = join(ROOT, 'scripts/style-baseline.json');
/** Maximum number of violations that are printed for a folder. */
const MAX_SHOWN = 30;
/** Pages that `npm run docs:generate` writes from strings of the source. The strings are checked in the source. */
const GENERATED = /^docs\/(?:config|errors|metrics)\.md$/;

export interface Violation {
  readonly file: string;
  readonly line: number;
  readonly rule: string;
  readonly found: string;
  readonly reason: string;
}

/** Returns the violations of one file. */
export function violationsOf(file: string, source: string): readonly Violation[] {
  const prose = proseOf(file, source).flatMap(({ kind, line, text }) =>
    STYLE_RULES.filter(
      ({ scope }) => scope !== 'code' && !(scope === 'statement' && kind === 'heading'),
    ).flatMap(({ name, pattern, reason }) =>
      [...withoutCode(text).matchAll(pattern)].map(([found]) => ({
        file,
        line,
        rule: name,
        found: found.trim(),
        reason,
      })),
    ),
  );
  return [...prose, ...(file.endsWith('.md') ? tableViolations(file, source) : lineViolations(file, source))];
}

function tableViolations(file: string, source: string): readonly Violation[] {
  let isCode = false;
  return source.split('\n').flatMap((row, index) => {
    if (/^ *```/.test(row)) isCode = !isCode;
    if (file === 'CHANGELOG.md' && row.length > MAX_TABLE_ROW) {
      const reason = `one line of at most ${MAX_TABLE_ROW} characters below Added, Changed, Fixed or Security`;
      return [{ file, line: index + 1, rule: 'change', found: row.slice(0, 40), reason }];
    }
    if (isCode || !/^ *\|/.test(row)) return [];
    const found = row.slice(0, 40);
    if (row.length > MAX_TABLE_ROW)
      return [
        {
          file,
          line: index + 1,
          rule: 'table-row',
          found,
          reason: `at most ${MAX_TABLE_ROW} characters; use a list`,
        },
      ];
    const isLong = cellsOf(row).some((cell) => cell.split(/\s+/).length > MAX_CELL_WORDS);
    return isLong
      ? [
          {
            file,
            line: index + 1,
            rule: 'cell',
            found,
            reason: `at most ${MAX_CELL_WORDS} words; use a list`,
          },
        ]
      : [];
  });
}

/**
 * Matches a line that contains only a regular expression. Such a line may exceed the limit, because a regular
 * expression in several pieces is hard to read.
 */
const UNDIVIDED = /^\s*(?:\/[^/*].*\/[a-z]*|String\.raw`.*`)\W*$/;
const FIXTURE = /^\s*(?:\w+ \w+ = |\+ |\[|\.\.\.)?(['"`]).*\1[^'"`]*$/;

function isUndivided(file: string, text: string): boolean {
  return UNDIVIDED.test(text) || (!/^(?:src|demo)\//.test(file) && FIXTURE.test(text));
}

function lineViolations(file: string, source: string): readonly Violation[] {
  if (/\.ya?ml$/.test(file)) return [];
  const rules = STYLE_RULES.filter(({ scope }) => scope === 'code');
  return source.split('\n').flatMap((text, index) => {
    const line = index + 1;
    const long =
      text.length > MAX_SOURCE_LINE && !isUndivided(file, text)
        ? [
            {
              file,
              line,
              rule: 'line-length',
              found: `${text.length} characters`,
              reason: `at most ${MAX_SOURCE_LINE}`,
            },
          ]
        : [];
    return [
      ...long,
      ...rules.flatMap(({ name, pattern, reason }) =>
        [...text.matchAll(pattern)].map(([found]) => ({ file, line, rule: name, found, reason })),
      ),
    ];
  });
}

/**
 * Returns the unit to which the baseline adds the violations of a file: the page itself, or the folder of a source file
 * (at most the first two or three folders of its path). All ADRs are one unit.
 */
export function unitOf(file: string): string {
  const parts = file.split('/');
  if (file.endsWith('.md') && !file.startsWith('docs/adr/')) return file;
  const depth = /^src\/(?:proxy|tsrecorder|operator|wire)\/[^/]+\//.test(file) ? 3 : 2;
  return parts.slice(0, Math.min(depth, Math.max(1, parts.length - 1))).join('/');
}

export interface Comparison {
  readonly grown: readonly string[];
  readonly shrunk: readonly string[];
}

/**
 * Compares the number of violations of each unit (`unitOf`) with the baseline. A unit that is missing in the baseline
 * must have no violations.
 */
export function compareCounts(
  baseline: Readonly<Record<string, number>>,
  counts: Readonly<Record<string, number>>,
): Comparison {
  const units = [...new Set([...Object.keys(baseline), ...Object.keys(counts)])].toSorted();
  return {
    grown: units.filter((unit) => (counts[unit] ?? 0) > (baseline[unit] ?? 0)),
    shrunk: units.filter((unit) => (counts[unit] ?? 0) < (baseline[unit] ?? 0)),
  };
}

/**
 * Returns the files that differ from the branch main or are not committed. Returns no files if git is not available.
 */
function changedFiles(): ReadonlySet<string> {
  try {
    const git = (...args: readonly string[]): string =>
      execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    const base = git('merge-base', 'HEAD', 'main').trim();
    return new Set(git('diff', '--name-only', base).trim().split('\n'));
  } catch {
    return new Set();
  }
}

function print(violations: readonly Violation[]): void {
  for (const { file, line, rule, found, reason } of violations)
    process.stdout.write(`  ${file}:${line} ${rule}: "${found}". Write: ${reason}\n`);
}

function main(args: readonly string[]): number {
  const violations = listFiles()
    .filter((file) => !GENERATED.test(file))
    .flatMap((file) => violationsOf(file, readSource(file)));
  const [path] = args.filter((arg) => !arg.startsWith('--'));
  if (path !== undefined) {
    print(violations.filter(({ file }) => file.startsWith(path)));
    return 0;
  }
  const byUnit = Map.groupBy(violations, ({ file }) => unitOf(file));
  const counts: Readonly<Record<string, number>> = Object.fromEntries(
    [...byUnit.keys()].toSorted().map((unit) => [unit, byUnit.get(unit)?.length ?? 0]),
  );
  const baseline = z.record(z.string(), z.number()).parse(JSON.parse(readFileSync(BASELINE, 'utf8')));
  const { grown, shrunk } = compareCounts(baseline, counts);
  if (args.includes('--update')) {
    const lowered = Object.entries(counts).map(([unit, count]) => [
      unit,
      Math.min(count, baseline[unit] ?? 0),
    ]);
    const kept = lowered.filter(([, count]) => count !== 0);
    writeFileSync(BASELINE, `${JSON.stringify(Object.fromEntries(kept), undefined, 2)}\n`);
  }
  for (const unit of shrunk)
    process.stdout.write(
      `${unit}: ${counts[unit] ?? 0} violations, baseline ${baseline[unit]}; run with --update\n`,
    );
  const changed = changedFiles();
  for (const unit of grown) {
    process.stdout.write(
      `${unit}: ${counts[unit]} violations, allowed ${baseline[unit] ?? 0} (docs/writing.md)\n`,
    );
    const found = byUnit.get(unit) ?? [];
    const own = found.filter(({ file }) => changed.has(file));
    print((own.length > 0 ? own : found).slice(0, MAX_SHOWN));
  }
  return grown.length > 0 ? 1 : 0;
}

if (import.meta.main) process.exitCode = main(process.argv.slice(2));
