// Summarises vitest's JSON report for the closing lines of `scripts/ci.mjs`.

/** Maximum characters of a test's message. */
const SHOWN_MESSAGE = 300;

/**
 * Returns counts, and a line for each test that failed or needed a second try. A file with an error outside its tests
 * counts as one failed test, and so does a failed run without a location.
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
    // the report keeps the messages of a test's first try
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
