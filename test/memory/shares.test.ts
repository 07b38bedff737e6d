import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Shares } from '../../src/memory/shares.ts';

const LIMIT = 128 * 100;

describe('shares', () => {
  it('leave a part for each further user when one user takes everything', () => {
    const shares = new Shares(LIMIT);
    while (shares.take('greedy', 10));
    expect(shares.usedBy('greedy')).toBe(LIMIT * (7 / 8) + 100);
    expect(shares.spaceOf('greedy')).toBe(0);
    expect(shares.isScarceFor('greedy')).toBe(true);
    for (let user = 0; user < 15; user += 1) {
      expect(shares.isScarceFor(`user ${user}`)).toBe(false);
      expect(shares.take(`user ${user}`, 101)).toBe(false);
      expect(shares.take(`user ${user}`, 100)).toBe(true);
    }
    expect(shares.bytes).toBe(LIMIT);
    expect(shares.take('one more', 1)).toBe(false);
  });

  it('keep the parts of other users free even if a user exceeds the share', () => {
    const shares = new Shares(LIMIT);
    shares.keep('greedy', 2 * LIMIT);
    expect(shares.take('greedy', 1)).toBe(false);
    expect(shares.take('calm', 100)).toBe(true);
    expect(shares.take('calm', 1)).toBe(false);
  });

  it('never exceed the limit, leave a part for a new user, and count to zero', () => {
    const step = fc.record({
      user: fc.integer({ min: 0, max: 40 }).map(String),
      bytes: fc.integer({ min: 1, max: LIMIT }),
      gives: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const shares = new Shares(LIMIT);
        for (const { user, bytes, gives } of steps) {
          const space = shares.spaceOf(user);
          if (gives) shares.give(user, Math.min(bytes, shares.usedBy(user)));
          else expect(shares.take(user, bytes)).toBe(bytes <= space);
          expect(shares.bytes).toBeLessThanOrEqual(LIMIT);
          const users = new Set(steps.map((other) => other.user).filter((other) => shares.usedBy(other) > 0));
          if (users.size < 16) expect(shares.spaceOf('new')).toBeGreaterThanOrEqual(100);
        }
        for (const { user } of steps) shares.give(user, shares.usedBy(user));
        expect([shares.bytes, shares.spaceOf('new')]).toEqual([0, LIMIT * (7 / 8) + 100]);
      }),
    );
  });

  it('wake once each waiting user whose space grew, also when another user gave the bytes', async () => {
    const shares = new Shares(LIMIT);
    const woken: string[] = [];
    const wait = (user: string): void => shares.whenSpace(user, () => woken.push(user));
    while (shares.take('one', 100));
    while (shares.take('other', 100));
    const forgotten = (): number => woken.push('forgotten');
    shares.whenSpace('other', forgotten);
    shares.forget('other', forgotten);
    wait('one');
    wait('other');
    shares.give('one', 100);
    expect(woken).toEqual([]);
    await Promise.resolve();
    expect(woken).toEqual(['one', 'other']);
    shares.give('one', 100);
    await Promise.resolve();
    expect(woken).toHaveLength(2);
  });

  it('do not wake a user who still exceeds the share', async () => {
    const shares = new Shares(LIMIT);
    let wakes = 0;
    shares.keep('greedy', 2 * LIMIT);
    shares.whenSpace('greedy', () => void (wakes += 1));
    shares.give('greedy', LIMIT);
    await Promise.resolve();
    expect(wakes).toBe(0);
    shares.give('greedy', LIMIT / 2);
    await Promise.resolve();
    expect(wakes).toBe(1);
  });
});
