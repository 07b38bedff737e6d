import { describe, expect, it } from 'vitest';
import { createSessionFacts, finalState, problemOf } from '../../../src/tsrecorder/library/session-facts.ts';
import { encodeAnnotation, type Annotation } from '../../../src/wire/recorder-api/annotation.ts';

function factsOf(...annotations: readonly Annotation[]): ReturnType<typeof createSessionFacts> {
  const facts = createSessionFacts();
  for (const annotation of annotations) {
    const text = encodeAnnotation(annotation).trimEnd();
    facts.note({ at: 0, size: text.length, text });
  }
  return facts;
}

const end = (outcome: 'completed' | 'violated', reason?: string): Annotation => ({
  kind: 'end',
  outcome,
  outputBytes: 0,
  outputLines: 0,
  ...(reason === undefined ? {} : { reason }),
});

describe('what is wrong with a recording', () => {
  it.each<[string, readonly Annotation[], number, string | undefined, string | undefined]>([
    ['nothing, and nobody said how it ended', [], 0, undefined, undefined],
    ['nothing, and it was completed', [end('completed')], 0, undefined, undefined],
    ['how it ended', [end('violated')], 0, undefined, 'session violated'],
    ['how it ended, and why', [end('violated', 'x')], 0, undefined, 'session violated: x'],
    ['a gap', [{ kind: 'gap', reason: 'x' }], 0, undefined, 'output is missing in 1 place'],
    [
      'gaps',
      [
        { kind: 'gap', reason: 'x' },
        { kind: 'gap', reason: 'y' },
      ],
      0,
      undefined,
      'output is missing in 2 places',
    ],
    ['an odd line', [], 1, undefined, '1 line is not asciicast'],
    ['odd lines, of an upload that was cut', [], 2, 'cut', 'cut; 2 lines are not asciicast'],
  ])('is %s', (_what, annotations, oddLines, cutReason, problem) => {
    expect(problemOf(factsOf(...annotations), oddLines, cutReason)).toBe(problem);
  });

  it('names the first hundred gaps, and counts them all', () => {
    const facts = factsOf(
      ...Array.from({ length: 102 }, (_, number): Annotation => ({ kind: 'gap', reason: `${number}` })),
    );
    expect([facts.gaps.length, facts.gaps.at(-1)?.reason, facts.gapCount]).toEqual([100, '99', 102]);
  });

  it('counts a note that is not JSON', () => {
    const facts = createSessionFacts();
    facts.note({ at: 0, size: 4, text: undefined });
    expect([facts.noteCount, facts.oddCount]).toEqual([1, 1]);
  });

  it('goes with how it is listed', () => {
    expect(finalState(factsOf(end('completed')), true)).toBe('closed');
    expect(finalState(factsOf(end('violated')), true)).not.toBe('closed');
    expect(finalState(factsOf(), false)).not.toBe('closed');
  });
});
