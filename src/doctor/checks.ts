/**
 * What a check is, and how a list of them is run: one after the other, each with a time limit, and one that builds on
 * something broken is skipped instead of repeating the same failure in other words.
 */
import { TailcastError, errorText } from '../errors.ts';

export type Status = 'ok' | 'warning' | 'failed' | 'skipped';

/** What a check found. Everything that is not in order says what to do. */
export type CheckVerdict =
  | { readonly status: 'ok' | 'skipped'; readonly summary: string }
  | { readonly status: 'warning' | 'failed'; readonly summary: string; readonly remedy: string };

export interface Check {
  /** Stable; `--json` and other checks' `needs` name it. */
  readonly id: string;
  readonly title: string;
  /** Ids of earlier checks without which this one says nothing new. */
  readonly needs?: readonly string[];
  /** Default: 20 s. */
  readonly timeoutMs?: number;
  /** May throw: that is a failure whose text is the error's. */
  run(signal: AbortSignal): Promise<CheckVerdict>;
  /** What to do when `run` throws. */
  readonly remedy: string;
}

export type CheckFinding = CheckVerdict & { readonly id: string; readonly title: string };

const TIMEOUT_MS = 20_000;

/**
 * Runs the checks in order.
 *
 * @param onFinding told of each as it is known
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
  return broken === undefined ? undefined : skipped(`needs what “${broken.title}” looks at`);
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
    // The table's sentence says what the check's title says already.
    const detail = error instanceof TailcastError ? error.detail : undefined;
    return failed(detail ?? errorText(error), check.remedy);
  } finally {
    either.removeEventListener('abort', onAbort);
  }
}

export function ok(summary: string): CheckVerdict {
  return { status: 'ok', summary };
}

export function skipped(summary: string): CheckVerdict {
  return { status: 'skipped', summary };
}

export function warning(summary: string, remedy: string): CheckVerdict {
  return { status: 'warning', summary, remedy };
}

export function failed(summary: string, remedy: string): CheckVerdict {
  return { status: 'failed', summary, remedy };
}

/** `load` once; later calls get the same promise, failed or not. */
export function once<T>(load: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  return () => (result ??= load());
}
