/**
 * Maximum time of a wait, in milliseconds: less than the time limit of a test. Without a limit, a wait continues after
 * its test has failed, and the process of the tests never exits.
 */
export const UNTIL_MS = 170_000;

/** Resolves when `holds` returns true. Calls `holds` once per turn of the event loop. @throws Error after UNTIL_MS */
export async function until(holds: () => boolean): Promise<void> {
  const deadlineMs = performance.now() + UNTIL_MS;
  while (!holds()) {
    if (performance.now() > deadlineMs) throw new Error(`the condition was not met within ${UNTIL_MS} ms`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}
