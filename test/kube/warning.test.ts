import { describe, expect, it } from 'vitest';
import { formatWarning } from '../../src/kube/warning.ts';

describe('formatWarning', () => {
  it('quotes as RFC 7234 says', () => {
    expect(formatWarning('not "recorded" \\ here')).toBe('299 - "not \\"recorded\\" \\\\ here"');
  });

  it('stays on one line of ASCII and within bounds', () => {
    expect(formatWarning('a\r\nb€')).toBe('299 - "a??b?"');
    expect(formatWarning('x'.repeat(10_000)).length).toBeLessThan(600);
  });
});
