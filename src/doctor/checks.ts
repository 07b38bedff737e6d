/**
 * Type of a check, and the function that runs checks. Checks run sequentially, each with a time limit. If a check
 * fails, the checks that depend on it are skipped.
 */
import { TailcastError, errorText } from '../errors.ts';
import { unlessAborted } from '../async/with-timeout.ts';

export type Status = 'ok' | 'warning' | 'failed' | 'skipped';

/** Result of a check. Warnings and failures contain a remedy. */
export type CheckVerdict =
  | { readonly status: 'ok' | 'skipped'; readonly summary: string }
  | { readonly status: 'warning' | 'failed'; readonly summary: string; readonly remedy: string };

export interface Check {
  /**
   * Id of the check in the output of `--json` and in `needs` of other checks. Scripts use this id, so it must not
   * change.
   */
  readonly id: string;
  readonly title: string;
  /** Ids of earlier checks. If one of these checks fails or is skipped, this check is skipped. */
  readonly needs?: readonly string[];
  /** Default: 20 s. */
  readonly timeoutMs?: number;
  /** Runs the check. If it throws, the check fails with the message of the error. */
  run(signal: AbortSignal): Promise<CheckVerdict>;
  /** Remedy if `run` throws. */
  readonly remedy: string;
}

export type CheckFinding = CheckVerdict & { readonly id: string; readonly title: string };

const TIMEOUT_MS = 20_000;

/**
 * Runs the checks in order.
 *
 * @param onFinding called with each result as soon as the check has finished
 * @throws the reason of `signal` when it aborts
 */
export async function runChecks(
  checks: readonly Check[],
  signal: AbortSignal,
  onFinding: (finding: CheckFinding) => void | Promise<void> = () => {},
): Promise<readonly CheckFinding[]> {
  const findings: CheckFinding[] = [];
  for (const check of checks) {
    signal.throwIfAborted();
    const verdict = blockedBy(check, findings) ?? (await runOne(check, signal));
    const finding = { id: check.id, title: check.title, ...verdict };
    findings.push(finding);
    await onFinding(finding);
  }
  return findings;
}

function blockedBy({ needs = [] }: Check, findings: readonly CheckFinding[]): CheckVerdict | undefined {
  const broken = findings.find(
    ({ id, status }) => needs.includes(id) && (status === 'failed' || status === 'skipped'),
  );
  return broken === undefined ? undefined : skipped(`not checked because of “${broken.title}”`);
}

async function runOne(check: Check, signal: AbortSignal): Promise<CheckVerdict> {
  const timeoutMs = check.timeoutMs ?? TIMEOUT_MS;
  const limit = AbortSignal.timeout(timeoutMs);
  const either = AbortSignal.any([signal, limit]);
  try {
    return await unlessAborted(check.run(either), either);
  } catch (error) {
    signal.throwIfAborted();
    if (limit.aborted) return failed(`no result within ${timeoutMs / 1000} s`, check.remedy);
    // The result shows only the detail of the error, because the general message of the error code would repeat the
    // title of the check.
    const detail = error instanceof TailcastError ? error.detail : undefined;
    return failed(detail ?? errorText(error), check.remedy);
  }
}

export function ok(summary: string): CheckVerdict {
  return { status: 'ok', summary };
}

/** Result of a skipped check, with the reason. */
export function skipped(summary: string): CheckVerdict {
  return { status: 'skipped', summary };
}

/** Result for a problem that does not prevent operation. */
export function warning(summary: string, remedy: string): CheckVerdict {
  return { status: 'warning', summary, remedy };
}

/** Result for a problem that prevents operation. */
export function failed(summary: string, remedy: string): CheckVerdict {
  return { status: 'failed', summary, remedy };
}

/** Calls `load` once. Later calls return the same promise, even if it was rejected. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= load());
}
