/** Writes the scores into test/mutants/scores.md, between two HTML comments. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { scores, type Score, type Verdict } from './judging.ts';
import { shown } from './trial.ts';

/** Writes the scores of a sample into the page, in place of the scores of the last sample with the same seed. */
export function writeScores(root: string, seed: number, verdicts: readonly Verdict[]): void {
  const path = join(root, 'test/mutants/scores.md');
  writeFileSync(path, withScores(readFileSync(path, 'utf8'), seed, verdicts, stateOf(root)));
}

/**
 * @param state commit and date of the judged source
 * @throws if the page has no HTML comments for this seed
 */
export function withScores(page: string, seed: number, verdicts: readonly Verdict[], state: string): string {
  const [begin, end] = [`<!-- mutants: seed ${seed} -->`, '<!-- mutants: end -->'];
  const from = page.indexOf(begin);
  const to = page.indexOf(end, from);
  if (from === -1 || to === -1) throw new Error(`test/mutants/scores.md has no ${begin}`);
  const text = [summary(verdicts, state), table(verdicts), ...left(verdicts)].join('\n\n');
  return `${page.slice(0, from + begin.length)}\n\n${text}\n\n${page.slice(to)}`;
}

/** Returns the last commit that changed `src`. Later commits may have changed only tests. */
function stateOf(root: string): string {
  const git = (...args: readonly string[]): string =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
  const commit = git('log', '-1', '--format=%h', '--', 'src');
  const changes = git('status', '--porcelain', '--', 'src') === '' ? '' : ', with changes';
  return `source of commit ${commit}${changes}, ${new Date().toISOString().slice(0, 10)}`;
}

function summary(verdicts: readonly Verdict[], state: string): string {
  const [{ noticed, accepted, judged, all } = { noticed: 0, accepted: 0, judged: 0, all: 0 }] = scores(
    verdicts,
    () => 'all',
  );
  return (
    `Judged ${judged} of ${all} (${state}): tests noticed ${noticed}, ${accepted} are accepted, ` +
    `and tests missed ${judged - noticed - accepted}. The other ${all - judged} are not completely judged.`
  );
}

function table(verdicts: readonly Verdict[]): string {
  const byFolder = scores(verdicts).toSorted((a, b) => a.folder.localeCompare(b.folder));
  const rows = [...byFolder, ...scores(verdicts, () => 'all')].map(rowOf);
  const head = ['folder', 'changes', 'judged', 'noticed', 'accepted', 'at least'];
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), `|${head.map(() => '---|').join('')}`, ...rows.map(line)].join('\n');
}

function rowOf({ folder, noticed, accepted, judged, all }: Score): readonly string[] {
  return [
    folder.includes('/') ? `\`${folder}\`` : folder,
    ...[all, judged, noticed, accepted].map(String),
    `${Math.floor((100 * (noticed + accepted)) / all)} %`,
  ];
}

function left(verdicts: readonly Verdict[]): readonly string[] {
  const lines = verdicts
    .filter(({ noticed, accepted }) => !noticed && accepted === undefined)
    .map(
      ({ mutant, isJudged }) =>
        `- ${isJudged ? 'Noticed by no test' : 'Not noticed so far'}: \`\` ${shown(mutant)} \`\``,
    )
    .toSorted();
  return lines.length === 0 ? [] : ['Not noticed:', lines.join('\n')];
}
