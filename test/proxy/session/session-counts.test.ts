import { describe, expect, it } from 'vitest';
import { createSessionCounts } from '../../../src/proxy/session/session-counts.ts';
import { codeOf } from '../../support/error-code.ts';

describe('session limits', () => {
  it('apply to each user separately', async () => {
    const limits = createSessionCounts({ perUser: 2, total: 3 });
    const leave = [await limits.enter('a'), await limits.enter('a')];
    expect(await codeOf(limits.enter('a'))).toBe('OVERLOADED');
    await limits.enter('b');
    expect(await codeOf(limits.enter('c'))).toBe('OVERLOADED');
    leave[0]!();
    await limits.enter('a');
    expect(await codeOf(limits.enter('a'))).toBe('OVERLOADED');
  });

  it('count the end of a session once', async () => {
    const limits = createSessionCounts({ perUser: 2, total: 10 });
    const leave = await limits.enter('a');
    await limits.enter('a');
    leave();
    leave();
    await limits.enter('a');
    expect(await codeOf(limits.enter('a'))).toBe('OVERLOADED');
  });
});
