import { describe, expect, it } from 'vitest';
import { describeFailure } from '../../src/tailnet/local-api-failure.ts';

describe('describing a failure of the LocalAPI socket', () => {
  it.each([
    ['EACCES', 'may not be opened by this user'],
    ['EPERM', 'may not be opened by this user'],
    ['ECONNRESET', 'closed the connection'],
    ['ECONNREFUSED', 'nothing is listening'],
  ])('explains %s', (code, part) => {
    const sentence = describeFailure(Object.assign(new Error('x'), { code }), '/run/ts.sock');
    expect(sentence).toContain(part);
    expect(sentence).toContain('/run/ts.sock');
  });

  it('falls back on the words of the error', () => {
    expect(describeFailure(new Error('odd'), '/run/ts.sock')).toBe('talking to /run/ts.sock failed: odd');
    expect(describeFailure('odd', '/run/ts.sock')).toContain('odd');
  });
});
