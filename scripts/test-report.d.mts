/** What vitest writes with `--reporter=json`. */
export function readTestReport(report: unknown): {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly string[];
  readonly flaky: readonly string[];
};
