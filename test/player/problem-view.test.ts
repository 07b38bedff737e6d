import { expect, it } from 'vitest';
import { RecorderProblem } from '../../src/player/problem-view.tsx';
import { ScriptError } from '../../src/player/script-error.ts';

it.each([
  [new Error('The recorder cannot be reached.'), 'tailnet'],
  [new ScriptError('A script of this page cannot be loaded.'), 'another version'],
])('the advice for the problem "%s" contains "%s"', (problem, advice) => {
  const texts = JSON.stringify(RecorderProblem({ problem, seenAt: 0 }));
  expect(texts).toContain(advice);
  expect(texts.includes('does not respond')).toBe(advice === 'tailnet');
});
