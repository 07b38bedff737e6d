/**
 * Maximum time of a wait, in milliseconds: less than the time limit of a test. Without a limit, a wait continues after
 * its test has failed, and the process of the tests never exits.
 */
export const UNTIL_MS = 170_000;

/** Resolves when `holds` returns true. @param pauseMs as for `eventually`. Default: one turn of the event loop */
export async function until(holds: () => boolean, pauseMs = 0): Promise<void> {
  await eventually('the expected state', () => (holds() ? true : undefined), UNTIL_MS, pauseMs);
}

/**
 * Repeats `look` until it returns a value. Use this function to wait for states whose changes cause no event.
 * @param pauseMs pause between two calls, in milliseconds. 0: one turn of the event loop
 * @throws Error with `what` after `timeoutMs`
 */
export async function eventually<T>(
  what: string,
  look: () => T | undefined | Promise<T | undefined>,
  timeoutMs = 60_000,
  pauseMs = 25,
): Promise<T> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > deadlineMs) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => (pauseMs === 0 ? setImmediate(resolve) : setTimeout(resolve, pauseMs)));
  }
}
