/** Output of `tailcast doctor`: one line per check, followed by the remedy. Pure. */
import type { CheckFinding, Status } from '../doctor/checks.ts';
import { plain } from './output.ts';

const MARKS = { ok: 'ok  ', warning: 'warn', failed: 'FAIL', skipped: 'skip' } as const satisfies Record<
  Status,
  string
>;
const TITLE_WIDTH = 24;

/** Returns the lines for one check. */
export function formatFinding(finding: CheckFinding): string {
  const line = `${MARKS[finding.status]}  ${plain(finding.title).padEnd(TITLE_WIDTH - 2)}  ${plain(finding.summary)}\n`;
  return 'remedy' in finding ? `${line}      → ${plain(finding.remedy)}\n` : line;
}

/** Returns the last line, with the number of results per status. */
export function formatSummary(counts: Readonly<Record<Status, number>>): string {
  const { ok, warning, failed, skipped } = counts;
  return `\n${ok} ok, ${warning} ${warning === 1 ? 'warning' : 'warnings'}, ${failed} failed, ${skipped} skipped\n`;
}
