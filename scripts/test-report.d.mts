/** Summarises the JSON report of vitest (`--reporter=json`), see `test-report.mjs`. */
export function readTestReport(report: unknown): {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly string[];
  readonly flaky: readonly string[];
};
