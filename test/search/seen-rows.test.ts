import { describe, expect, it } from 'vitest';
import { createSeenRows } from '../../src/search/seen-rows.ts';

describe('rows that stood there before', () => {
  it('are known for ten minutes', () => {
    const wasSeen = createSeenRows();
    expect([0, 599, 600, 601].map((at) => wasSeen(at, 'load 0.1'))).toEqual([false, true, false, true]);
  });

  it('are never taken for one of another text', () => {
    const wasSeen = createSeenRows();
    // NOTE: these two texts have the same hash
    expect([wasSeen(1, 'pod-80b5b929 is ready'), wasSeen(2, 'pod-1d9911bb is ready')]).toEqual([
      false,
      false,
    ]);
    expect(wasSeen(3, 'pod-1d9911bb is ready')).toBe(true);
  });

  it('are forgotten, the oldest first, when there are too many', () => {
    const wasSeen = createSeenRows();
    for (let index = 0; index < 20_100; index += 1) wasSeen(1, `row ${index}`);
    expect(wasSeen(2, 'row 20099')).toBe(true);
    expect(wasSeen(2, 'row 0')).toBe(false);
  });
});
