import { describe, expect, it } from 'vitest';
import { stopAfterFailure, WireError } from '../../src/wire/wire-error.ts';
import { thrownBy } from './bytes.ts';

describe('fuse', () => {
  it('passes results through until the step throws', () => {
    const step = stopAfterFailure((value: number) => value + 1);
    expect([step(1), step(2)]).toEqual([2, 3]);
  });

  it('throws the first error once and then refuses, keeping it as cause', () => {
    const first = new WireError('limit', 'too much');
    let calls = 0;
    const step = stopAfterFailure(() => {
      calls += 1;
      throw first;
    });
    expect(thrownBy(() => step(0))).toBe(first);
    const second = thrownBy(() => step(0));
    expect(second).toMatchObject({ name: 'WireError', code: 'dead', cause: first });
    expect(calls).toBe(1);
  });

  it('is dead also after something was thrown that is falsy', () => {
    const step = stopAfterFailure(() => {
      // oxlint-disable-next-line typescript/only-throw-error -- the point of this test
      throw undefined;
    });
    let thrown = 0;
    try {
      step(0);
    } catch {
      thrown += 1;
    }
    expect(thrown).toBe(1);
    expect(thrownBy(() => step(0)).code).toBe('dead');
  });
});
