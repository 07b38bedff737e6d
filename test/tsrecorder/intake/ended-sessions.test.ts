import { describe, expect, it } from 'vitest';
import { EndedSessions } from '../../../src/tsrecorder/intake/ended-sessions.ts';

describe('sessions that have ended', () => {
  it('are known by their token, and the oldest of a thousand is forgotten for the next', () => {
    const ended = new EndedSessions();
    ended.remember(undefined, 1);
    expect(ended.bytesOf(undefined)).toBeUndefined();
    for (let bytes = 0; bytes < 1000; bytes += 1) ended.remember(`t${bytes}`, bytes);
    expect([ended.bytesOf('t0'), ended.bytesOf('t999')]).toEqual([0, 999]);
    ended.remember('t1000', 1000);
    expect([ended.bytesOf('t0'), ended.bytesOf('t1'), ended.bytesOf('t1000')]).toEqual([undefined, 1, 1000]);
  });
});
