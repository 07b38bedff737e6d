/** Finds the phrases of a query in a moment, which is a few consecutive rows of a session (`moments.ts`). Pure. */
import type { Query } from './query.ts';
import type { Hit, Moment } from './search-index.ts';
import { findPhrase, phraseOf, tokenize, type TokenPhrase } from './tokens.ts';

/** Phrases to highlight in rows and in commands. */
export interface MarkedPhrases {
  readonly inRows: readonly TokenPhrase[];
  readonly inCommands: readonly TokenPhrase[];
}

const MAX_SNIPPET = 300;

/** Returns the phrases of a query that are highlighted in matching text. */
export function markedPhrases({ clauses }: Query): MarkedPhrases {
  const terms = clauses.flat().filter((term) => term.kind === 'text');
  const positive = terms.filter((term) => !term.isNot);
  return {
    inRows: positive
      .filter(({ field }) => field !== 'cmd')
      .map(({ value, isPrefix }) => phraseOf(value, isPrefix)),
    inCommands: positive
      .filter(({ field }) => field !== 'text')
      .map(({ value, isPrefix }) => phraseOf(value, isPrefix)),
  };
}

/**
 * Returns the match in the command of a moment. If the command does not match, returns the match in the first matching
 * row.
 */
export function hitOf({ command, rows, t0 }: Moment, marked: MarkedPhrases): Hit | undefined {
  const inCommand = command === undefined ? undefined : mark(command.text, marked.inCommands, t0, true);
  if (inCommand !== undefined) return inCommand;
  for (const { at, text } of rows) {
    const hit = mark(text, marked.inRows, at, false);
    if (hit !== undefined) return hit;
  }
  return undefined;
}

function mark(
  text: string,
  phrases: readonly TokenPhrase[],
  at: number,
  isCommand: boolean,
): Hit | undefined {
  const tokens = tokenize(text);
  const marks = phrases
    .flatMap((phrase) => findPhrase(tokens, phrase))
    .toSorted(([left], [right]) => left - right);
  return marks.length === 0 ? undefined : shownHit(text, marks, at, isCommand);
}

/** Returns a hit with the part of the text around the first match. */
export function shownHit(text: string, marks: Hit['marks'], at: number, isCommand: boolean): Hit {
  const [first = [0, 0]] = marks;
  const start =
    text.length <= MAX_SNIPPET ? 0 : Math.max(0, Math.min(first[0] - 60, text.length - MAX_SNIPPET));
  const snippet = text.slice(start, start + MAX_SNIPPET).toWellFormed();
  const inside = marks.filter(([, end]) => end <= start + snippet.length);
  return { at, text: snippet, marks: inside.map(([from, to]) => [from - start, to - start]), isCommand };
}
