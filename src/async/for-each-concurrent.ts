/**
 * Calls `step` with each item and its index, in the order of the items. At most `limit` calls are in progress.
 *
 * @throws the first error of a call. Other calls may still be in progress at that time
 */
export async function forEachConcurrent<T>(
  items: readonly T[],
  limit: number,
  step: (item: T, index: number) => Promise<void>,
): Promise<void> {
  const left = items.entries();
  const next = async (): Promise<void> => {
    for (const [index, item] of left) await step(item, index);
  };
  await Promise.all(Array.from({ length: limit }, next));
}
