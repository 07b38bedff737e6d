import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createSessionLimits } from '../../src/proxy/session-limits.ts';

function codeOf(act: () => unknown): string | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    return error instanceof TailcastError ? error.code : String(error);
  }
}

describe('session limits', () => {
  it('hold for one user and leave room for others', () => {
    const limits = createSessionLimits({ perUser: 2, total: 3 });
    const leave = [limits.enter('a'), limits.enter('a')];
    expect(codeOf(() => limits.enter('a'))).toBe('OVERLOADED');
    limits.enter('b');
    expect(codeOf(() => limits.enter('c'))).toBe('OVERLOADED');
    leave[0]!();
    limits.enter('a');
    expect(codeOf(() => limits.enter('a'))).toBe('OVERLOADED');
  });

  it('count one leaving once', () => {
    const limits = createSessionLimits({ perUser: 1, total: 10 });
    const leave = limits.enter('a');
    leave();
    leave();
    limits.enter('a');
    expect(codeOf(() => limits.enter('a'))).toBe('OVERLOADED');
  });
});
