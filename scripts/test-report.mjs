// Summarises vitest's JSON report for the last lines of `scripts/ci.mjs`.

/** Maximum number of characters of a test's error message. */
const SHOWN_MESSAGE = 300;

/**
 * Returns the numbers of tests, and a line for each test that failed or passed only in its second run. A test file that
 * fails outside of its tests counts as one failed test. A run that fails without the name of a file also counts as one.
 */
export function readTestReport(report) {
  const failures = [];
  const flaky = [];
  let broken = 0;
  for (const file of report.testResults) {
    const name = file.name.split('/').slice(-2).join('/');
    const failed = file.assertionResults.filter(({ status }) => status === 'failed');
    if (failed.length === 0 && file.status === 'failed') {
      broken += 1;
      failures.push(line('failed', name, file.message));
    }
    for (const test of failed)
      failures.push(line('failed', `${name}: ${test.fullName}`, test.failureMessages?.[0]));
    // If a test passed in its second run, the report still contains the error messages of the first run.
    for (const test of file.assertionResults)
      if (test.status === 'passed' && test.failureMessages?.length > 0)
        flaky.push(line('flaky', `${name}: ${test.fullName}`, test.failureMessages[0]));
  }
  return {
    passed: report.numPassedTests,
    failed: report.numFailedTests + broken,
    skipped: report.numPendingTests + report.numTodoTests,
    failures,
    flaky,
  };
}

function line(what, where, message = '') {
  return `${what}: ${where}: ${message.replaceAll(/\s+/g, ' ').slice(0, SHOWN_MESSAGE)}`;
}
