/**
 * Definition of a check, and the runner. Checks run sequentially with a time limit each. A check that depends on a
 * failed check is skipped.
 */
import { TailcastError, errorText } from '../errors.ts';

export type Status = 'ok' | 'warning' | 'failed' | 'skipped';

/** Result of a check. Every problem has a remedy. */
export type CheckVerdict =
  | { readonly status: 'ok' | 'skipped'; readonly summary: string }
  | { readonly status: 'warning' | 'failed'; readonly summary: string; readonly remedy: string };

export interface Check {
  /** Stable id in `--json` and in `needs` of other checks. */
  readonly id: string;
  readonly title: string;
  /** Ids of earlier checks. If one of these checks fails, this check is skipped. */
  readonly needs?: readonly string[];
  /** Default: 20 s. */
  readonly timeoutMs?: number;
  /** Runs the check. An exception is a failure with the text of the error. */
  run(signal: AbortSignal): Promise<CheckVerdict>;
  /** Remedy if `run` throws. */
  readonly remedy: string;
}

export type CheckFinding = CheckVerdict & { readonly id: string; readonly title: string };

const TIMEOUT_MS = 20_000;

/**
 * Runs the checks in order.
 *
 * @param onFinding called with each result immediately
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
  const expired = Promise.withResolvers<never>();
  const onAbort = (): void => expired.reject(new Error(`no result within ${timeoutMs / 1000} s`));
  either.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([check.run(either), expired.promise]);
  } catch (error) {
    signal.throwIfAborted();
    // the sentence of the error table would repeat the title of the check
    const detail = error instanceof TailcastError ? error.detail : undefined;
    return failed(detail ?? errorText(error), check.remedy);
  } finally {
    either.removeEventListener('abort', onAbort);
  }
}

export function ok(summary: string): CheckVerdict {
  return { status: 'ok', summary };
}

/** A skipped check with its reason. */
export function skipped(summary: string): CheckVerdict {
  return { status: 'skipped', summary };
}

/** A problem that does not prevent operation. */
export function warning(summary: string, remedy: string): CheckVerdict {
  return { status: 'warning', summary, remedy };
}

/** A problem that prevents operation. */
export function failed(summary: string, remedy: string): CheckVerdict {
  return { status: 'failed', summary, remedy };
}

/** Calls `load` once. Later calls return the same promise, even a rejected one. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= load());
}
