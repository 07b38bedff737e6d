import { constants, PerformanceObserver } from 'node:perf_hooks';
import { expect, it } from 'vitest';
import { COLLECT_AFTER_BYTES, passedThrough } from '../../src/memory/stream-garbage.ts';

it('collects the young generation, and no more, each time so much has been read', async () => {
  const kinds: (number | undefined)[] = [];
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind, flags = 0 } = Reflect.get(entry, 'detail') as { kind?: number; flags?: number };
      if ((flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0) kinds.push(kind);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  passedThrough(COLLECT_AFTER_BYTES - 1);
  passedThrough(1);
  await expect.poll(() => kinds).toEqual([constants.NODE_PERFORMANCE_GC_MINOR]);
  for (let piece = 0; piece < 64; piece += 1) passedThrough(COLLECT_AFTER_BYTES / 32);
  await expect
    .poll(() => kinds)
    .toEqual(Array.from({ length: 3 }, () => constants.NODE_PERFORMANCE_GC_MINOR));
  observer.disconnect();
});

it('leaves no way to collect behind', () => {
  expect(Reflect.get(globalThis, 'gc')).toBeUndefined();
});
