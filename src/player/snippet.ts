/** Text of a match: matched parts are marked, distant text is omitted. Pure. */
import type { Hit } from '../search/search-index.ts';

export interface SnippetPart {
  readonly text: string;
  readonly isMatch: boolean;
}

/** Maximum number of visible characters. */
const MAX_SHOWN = 160;
/** Maximum number of visible characters before the first match. */
const MAX_BEFORE = 40;

/** Parts of a match's row, in order. */
export function snippetParts({ text, marks }: Pick<Hit, 'text' | 'marks'>): readonly SnippetPart[] {
  const [first = 0] = marks[0] ?? [];
  const start = text.length <= MAX_SHOWN || first <= MAX_BEFORE ? 0 : first - MAX_BEFORE;
  const end = Math.min(text.length, start + MAX_SHOWN);
  const parts: SnippetPart[] = [];
  let at = start;
  const add = (to: number, isMatch: boolean): void => {
    if (to > at) parts.push({ text: text.slice(at, to).toWellFormed(), isMatch });
    at = Math.max(at, to);
  };
  // the recorder is not trusted: its offsets of matches may overlap or be out of range
  for (const [from, to] of marks) {
    add(Math.min(from, end), false);
    add(Math.min(to, end), true);
  }
  add(end, false);
  return [
    ...(start === 0 ? [] : [{ text: '…', isMatch: false }]),
    ...parts,
    ...(end === text.length ? [] : [{ text: '…', isMatch: false }]),
  ];
}
