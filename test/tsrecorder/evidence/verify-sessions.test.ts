import { describe, expect, it } from 'vitest';
import { checkSessions } from '../../../src/tsrecorder/evidence/verify-sessions.ts';
import type { VerifiedPart } from '../../../src/tsrecorder/evidence/verify-recording.ts';

const part = (
  recording: string,
  from: number,
  to: number,
  more: Partial<VerifiedPart> = {},
): VerifiedPart => ({
  recording,
  session: 's',
  from,
  to,
  isEnd: false,
  after: [],
  ...more,
});
const THERE = { after: ['10.0.0.2:80'] };
const said = (parts: readonly VerifiedPart[], isAll: boolean): readonly string[] =>
  checkSessions(parts, isAll).map(({ severity, code, message }) => `${severity} ${code}: ${message}`);

describe('the parts of a session', () => {
  it.each<[string, readonly VerifiedPart[]]>([
    ['whole', [part('a', 0, 9)]],
    ['cut, with its end at another recorder', [part('a', 0, 9, THERE), part('b', 5, 20)]],
    ['cut at the end, which came again', [part('a', 0, 9, THERE), part('b', 9, 9)]],
    ['cut, and brought in pieces', [part('b', 9, 12, THERE), part('a', 0, 9, THERE), part('c', 12, 20)]],
    ['of several sessions', [part('a', 0, 9), part('b', 0, 5, { session: 't' })]],
  ])('cause no finding if it is %s', (_what, parts) => {
    expect(said(parts, true)).toEqual([]);
    expect(said(parts, false)).toEqual([]);
  });

  it('that start in the middle are a fault with all stores, else a notice with the earlier recorder', () => {
    const parts = [part('b', 9, 20, { before: '10.0.0.1:80' })];
    expect(said(parts, true)).toEqual([
      'fault part-missing: bytes 0 to 9 of its session are in none of the stores',
    ]);
    expect(said(parts, false)).toEqual([
      'notice part-missing: bytes 0 to 9 of its session are with 10.0.0.1:80: name its store as well',
    ]);
    expect(said([part('b', 9, 20)], false)).toEqual([
      'notice part-missing: bytes 0 to 9 of its session are with another recorder: name its store as well',
    ]);
  });

  it('that were interrupted cause a notice with the recorders of the rest, and no fault', () => {
    const parts = [
      part('a', 0, 9, { after: ['10.0.0.2:80', '10.0.0.3:80'] }),
      part('z', 0, 3, { session: 't' }),
    ];
    expect(said(parts, true)).toEqual([
      'notice part-after: its session was interrupted at byte 9; it may continue at 10.0.0.2:80 or 10.0.0.3:80: ' +
        'nothing of that is in any of the stores',
    ]);
    expect(said(parts, false)).toEqual([
      'notice part-after: its session was interrupted at byte 9; it may continue at 10.0.0.2:80 or 10.0.0.3:80: ' +
        'name its store as well',
    ]);
  });

  it('may lack their middle and their end', () => {
    const parts = [part('a', 0, 9, THERE), part('c', 12, 20, THERE)];
    expect(said(parts, true).map((text) => text.split(':', 1)[0])).toEqual([
      'fault part-missing',
      'notice part-after',
    ]);
  });
});
