/** The scores in docs/testing.md, between two marks. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Score } from './judging.ts';

/** Puts the scores of a whole sample in place of those of the last one with the same seed. */
export function writeScores(root: string, seed: number, found: readonly Score[]): void {
  const path = join(root, 'docs/testing.md');
  const page = readFileSync(path, 'utf8');
  writeFileSync(path, withScores(page, seed, found));
}

/** @throws when the page has no place for this seed */
export function withScores(page: string, seed: number, found: readonly Score[]): string {
  const [begin, end] = [`<!-- mutants: seed ${seed} -->`, '<!-- mutants: end -->'];
  const from = page.indexOf(begin);
  const to = page.indexOf(end, from);
  if (from === -1 || to === -1) throw new Error(`docs/testing.md has no ${begin}`);
  return `${page.slice(0, from + begin.length)}\n\n${table(found)}\n\n${page.slice(to)}`;
}

function table(found: readonly Score[]): string {
  const sum = (of: (score: Score) => number): number => found.reduce((total, score) => total + of(score), 0);
  const whole: Score = {
    folder: 'all',
    noticed: sum((score) => score.noticed),
    accepted: sum((score) => score.accepted),
    all: sum((score) => score.all),
  };
  const rows = [...found.toSorted((a, b) => a.folder.localeCompare(b.folder)), whole].map(
    ({ folder, noticed, accepted, all }) => [
      folder === 'all' ? folder : `\`${folder}\``,
      String(all),
      String(noticed),
      String(accepted),
      `${Math.floor((100 * (noticed + accepted)) / all)} %`,
    ],
  );
  const head = ['folder', 'changes', 'noticed', 'accepted', 'share'];
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]!.length)),
  );
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`;
  return [line(head), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...rows.map(line)].join(
    '\n',
  );
}
