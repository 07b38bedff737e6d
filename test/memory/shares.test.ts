import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Shares } from '../../src/memory/shares.ts';

const LIMIT = 128 * 100;

describe('shares', () => {
  it('give one user at most half of the limit, and a further user half of the rest', () => {
    const shares = new Shares(LIMIT);
    while (shares.take('greedy', 10));
    expect(shares.usedBy('greedy')).toBe(LIMIT / 2);
    expect([shares.spaceOf('greedy'), shares.isScarceFor('greedy')]).toEqual([0, true]);
    expect([shares.spaceOf('calm'), shares.isScarceFor('calm')]).toEqual([LIMIT / 4, false]);
    expect(shares.take('calm', LIMIT / 4 + 1)).toBe(false);
    expect(shares.take('calm', LIMIT / 4)).toBe(true);
    expect(shares.bytes).toBe((LIMIT * 3) / 4);
  });

  it('leave much for a further user if 16 other users have a little and one takes everything', () => {
    const shares = new Shares(LIMIT);
    for (let user = 0; user < 16; user += 1) expect(shares.take(`user ${user}`, LIMIT / 128)).toBe(true);
    while (shares.take('greedy', 10));
    expect(shares.spaceOf('17th')).toBeGreaterThan(LIMIT / 8);
  });

  it.each(['take', 'keep'] as const)('leave something if many users %s as much as they can', (way) => {
    const shares = new Shares(1 << 30);
    for (let user = 0; user < 20; user += 1) {
      if (way === 'keep') shares.keep(`user ${user}`, 1 << 30);
      else while (shares.take(`user ${user}`, Math.max(1, shares.spaceOf(`user ${user}`))));
    }
    expect(shares.spaceOf('one more')).toBeGreaterThan(0);
  });

  it('keep the space of other users free even if a user exceeds the share', () => {
    const shares = new Shares(LIMIT);
    shares.keep('greedy', 2 * LIMIT);
    expect(shares.take('greedy', 1)).toBe(false);
    expect(shares.spaceOf('calm')).toBe(LIMIT / 4);
  });

  it('never exceed the limit, leave space for a new user, and count to zero', () => {
    const step = fc.record({
      user: fc.integer({ min: 0, max: 40 }).map(String),
      bytes: fc.integer({ min: 1, max: LIMIT }),
      way: fc.constantFrom('take', 'keep', 'give'),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.boolean(), (steps, keeps) => {
        const shares = new Shares(LIMIT);
        for (const { user, bytes, way } of steps) {
          const space = shares.spaceOf(user);
          if (way === 'give') shares.give(user, Math.min(bytes, shares.usedBy(user)));
          else if (way === 'keep' && keeps) shares.keep(user, bytes);
          else expect(shares.take(user, bytes)).toBe(bytes <= space);
          if (!keeps) expect(shares.bytes).toBeLessThanOrEqual(LIMIT);
          const users = new Set(steps.map((other) => other.user).filter((other) => shares.usedBy(other) > 0));
          expect(shares.spaceOf('new')).toBeGreaterThanOrEqual(Math.floor(LIMIT / 2 ** (users.size + 1)));
        }
        for (const { user } of steps) shares.give(user, shares.usedBy(user));
        expect([shares.bytes, shares.spaceOf('new')]).toEqual([0, LIMIT / 2]);
      }),
    );
  });

  it('wake once each waiting user whose space grew, also when another user gave the bytes', async () => {
    const shares = new Shares(300);
    const woken: string[] = [];
    const wait = (user: string): void => shares.whenSpace(user, () => woken.push(user));
    while (shares.take('one', 10) && shares.take('other', 10));
    expect([shares.spaceOf('one'), shares.spaceOf('other')]).toEqual([0, 0]);
    const forgotten = (): number => woken.push('forgotten');
    shares.whenSpace('other', forgotten);
    shares.forget('other', forgotten);
    wait('one');
    wait('other');
    shares.give('one', 10);
    expect(woken).toEqual([]);
    await Promise.resolve();
    expect(woken).toEqual(['one', 'other']);
    shares.give('one', 10);
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
    shares.give('greedy', (LIMIT * 3) / 4);
    await Promise.resolve();
    expect(wakes).toBe(1);
  });
});
