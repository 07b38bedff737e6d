import { describe, expect, it } from 'vitest';
import {
  SessionFacts,
  finalResult,
  finalState,
  problemOf,
} from '../../../src/tsrecorder/library/session-facts.ts';
import {
  encodeAnnotation,
  type Annotation,
  type EndAnnotation,
} from '../../../src/wire/recorder-api/annotation.ts';

function factsOf(...annotations: readonly Annotation[]): SessionFacts {
  const facts = new SessionFacts();
  for (const annotation of annotations) {
    const text = encodeAnnotation(annotation).trimEnd();
    facts.note({ at: 0, size: text.length, text });
  }
  return facts;
}

const end = (outcome: EndAnnotation['outcome'], reason?: string, outputBytes = 0): Annotation => ({
  kind: 'end',
  outcome,
  outputBytes,
  outputLines: 0,
  ...(reason === undefined ? {} : { reason }),
});

describe('the problem of a recording', () => {
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

  it('lists the first hundred gaps, and counts all of them', () => {
    const facts = factsOf(
      ...Array.from({ length: 102 }, (_, number): Annotation => ({ kind: 'gap', reason: `${number}` })),
    );
    expect([facts.gaps.length, facts.gaps.at(-1)?.reason, facts.gapCount]).toEqual([100, '99', 102]);
  });

  it('counts a note that is not JSON', () => {
    const facts = new SessionFacts();
    facts.note({ at: 0, size: 4, text: undefined });
    expect([facts.noteCount, facts.oddCount]).toEqual([1, 1]);
  });

  it('matches the state in the list', () => {
    expect(finalState(factsOf(end('completed')), true)).toBe('completed');
    expect(finalState(factsOf(end('violated')), true)).not.toBe('completed');
    expect(finalState(factsOf(), false)).not.toBe('completed');
  });

  const NOT_FOUND = 'exec: "nosuch": executable file not found in $PATH';
  const failed: Annotation = { kind: 'exit', message: NOT_FOUND };
  it.each<[string, readonly Annotation[], ReturnType<typeof finalState>, ReturnType<typeof finalResult>]>([
    ['nobody said how it ended', [], 'completed', {}],
    ['an exit code', [{ kind: 'exit', code: 0 }, end('completed')], 'completed', { result: '0' }],
    [
      'another exit code',
      [{ kind: 'exit', code: 42, message: 'x' }, end('completed')],
      'completed',
      { result: '42', resultMessage: 'x' },
    ],
    [
      'a command that failed to start',
      [failed, end('completed')],
      'completed',
      { result: 'failed to start', resultMessage: NOT_FOUND },
    ],
    ['a failure of a command that had begun to write', [failed, end('completed', 'x', 5)], 'interrupted', {}],
    [
      'a client that vanished',
      [end('client-disconnected')],
      'interrupted',
      { result: 'client disconnected' },
    ],
    ['a failure without proof of the end', [failed, end('interrupted')], 'interrupted', {}],
    [
      'an exit code without proof of the output',
      [{ kind: 'exit', code: 3 }, end('interrupted')],
      'interrupted',
      { result: '3' },
    ],
    ['a violation', [{ kind: 'exit', code: 37 }, end('violated')], 'violated', { result: '37' }],
    [
      'a code that is no exit code',
      [{ kind: 'exit', code: Number.MAX_SAFE_INTEGER }],
      'completed',
      { result: '9007199254740991' },
    ],
  ])('determines a state and a result: %s', (_what, annotations, state, result) => {
    const facts = factsOf(...annotations);
    expect([finalState(facts, true), finalResult(facts)]).toEqual([state, result]);
  });

  it("contains the API server's message about a command that had started", () => {
    const facts = factsOf({ kind: 'exit', message: 'the runtime is gone' }, end('completed', undefined, 5));
    expect(problemOf(facts, 0, undefined)).toBe(
      'the session ended without an exit code: the runtime is gone',
    );
  });
});
