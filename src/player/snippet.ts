/** A hit as text for people: what matched is marked, and what is far from it left out. Pure. */
import type { Hit } from '../search/search-index.ts';

export interface SnippetPart {
  readonly text: string;
  readonly isMatch: boolean;
}

/** Characters that are shown at most, and of those how many before what matched first. */
const MAX_SHOWN = 160;
const MAX_BEFORE = 40;

/** The pieces of a hit's row, one after another. */
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
  // what comes from elsewhere may overlap, or lie outside
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
