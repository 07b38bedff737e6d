/** Resolves when a condition holds. The event loop turns meanwhile. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}
