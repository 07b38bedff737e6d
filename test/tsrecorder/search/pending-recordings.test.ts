import { describe, expect, it } from 'vitest';
import { PendingRecordings } from '../../../src/tsrecorder/search/pending-recordings.ts';
import type { StoredRecording } from '../../../src/tsrecorder/store/store.ts';

const stored = (second: number): StoredRecording => ({
  key: { nodeId: 'nA', time: `2026-02-03T04:05:0${second}.000000000Z` },
  hasSidecar: true,
});
const idOf = (second: number): string => `nA_2026-02-03T04:05:0${second}.000000000Z`;

describe('recordings that are not in the index', () => {
  it('are those of the backlog until they are written, and those that arrived since', () => {
    const pending = new PendingRecordings();
    pending.add(idOf(1));
    pending.replace([stored(7), stored(5), stored(3)], [idOf(9)]);
    expect([...pending]).toEqual([idOf(9), idOf(7), idOf(5), idOf(3)]);
    expect([pending.size, pending.backlog]).toEqual([4, 3]);
    expect([1, 3, 5, 6, 7, 9].filter((second) => pending.has(idOf(second)))).toEqual([3, 5, 7, 9]);
    expect(pending.take()).toBe(idOf(7));
    // the recording is being read, but is not written to the index yet
    expect([pending.has(idOf(7)), pending.size, pending.backlog]).toEqual([true, 4, 2]);
    pending.delete(idOf(7));
    pending.delete(idOf(9));
    expect([...pending]).toEqual([idOf(5), idOf(3)]);
    expect([pending.has(idOf(7)), pending.has('nobody'), pending.size]).toEqual([false, false, 2]);
    expect([pending.take(), pending.take(), pending.take()]).toEqual([idOf(5), idOf(3), undefined]);
    expect([pending.size, pending.backlog]).toEqual([2, 0]);
    pending.delete(idOf(5));
    expect([...pending]).toEqual([idOf(3)]);
  });
});
