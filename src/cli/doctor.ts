import type { CommandContext } from '../config/command-context.ts';
import { runChecks, type Check, type CheckFinding, type Status } from '../doctor/checks.ts';
import { formatFinding, formatSummary } from './doctor-report.ts';
import { print, printJson } from './output.ts';
import { VERSION } from '../version.ts';

export interface DoctorRun {
  readonly role: 'gateway' | 'recorder' | 'operator';
  readonly json: boolean;
  /** Returns the checks. `signal` aborts at the end of the run. */
  readonly checks: (signal: AbortSignal) => Promise<readonly Check[]>;
}

/**
 * Runs `tailcast doctor <role>`. Prints the result of each check immediately.
 *
 * @returns the exit code: 0 if no check failed (warnings are allowed), 1 otherwise
 * @throws TailcastError if the settings are invalid
 */
export async function examineRole(run: DoctorRun, context: CommandContext): Promise<0 | 1> {
  const over = new AbortController();
  const signal = AbortSignal.any([context.signal, over.signal]);
  try {
    const checks = await run.checks(signal);
    const findings = await runChecks(checks, signal, async (finding) => {
      if (!run.json) await print(context.stdout, formatFinding(finding));
    });
    const counts = countStatuses(findings);
    const report = { role: run.role, version: VERSION, ok: counts.failed === 0, counts, checks: findings };
    if (run.json) await printJson(context.stdout, report, 2);
    else await print(context.stdout, formatSummary(counts));
    return counts.failed === 0 ? 0 : 1;
  } finally {
    over.abort(new Error('the doctor is done'));
  }
}

export type StatusCounts = Readonly<Record<Status, number>>;

function countStatuses(findings: readonly CheckFinding[]): StatusCounts {
  const of = (wanted: Status): number => findings.filter(({ status }) => status === wanted).length;
  return { ok: of('ok'), warning: of('warning'), failed: of('failed'), skipped: of('skipped') };
}
