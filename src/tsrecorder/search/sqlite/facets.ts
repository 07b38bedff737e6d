/**
 * Encodes the names (user, pod and others) of each session as words of the index, so that viewer rules and filters are
 * part of the search and need no join.
 */
import { createHmac } from 'node:crypto';
import { exitCodeOf } from '../../../wire/recorder-api/recording-status.ts';
import { joinNames, fieldNames, placeOf, type SessionNames } from '../../../search/search-index.ts';
import { FIELDS, type FieldTerm } from '../../../search/query.ts';
import { indexText } from '../../../search/tokens.ts';

/** Word of running sessions, whose exit code and duration are not final. */
export const GROWS = 'grows';
/** Word of sessions with an exit code other than 0. */
export const EXIT_FAILED = 'exit_failed';
/** Word of sessions with characters that never became visible. */
export const HIDES = 'hides';

/** Returns the word for an exit code. */
export function exitWord(code: number): string {
  return `exit_${code}`;
}

/** Returns the word for a class of durations. Each class covers durations twice as long as the previous class. */
export function durationWord(size: number): string {
  return `duration_${size}`;
}

/** Number of the class with the longest durations. */
export const MAX_DURATION_SIZE = 31;

/** Returns the class of a duration. */
export function durationSize(seconds: number): number {
  return Math.max(0, Math.min(MAX_DURATION_SIZE, Math.floor(Math.log2(Math.max(1, seconds)))));
}

/** Field of a facet, or `place`: a namespace of a cluster, for viewer rules. */
export type FacetKind = FieldTerm['field'] | 'place';

/** Word that every session has. */
export const EVERY = 'every';

/** Returns the word for the exact value of a field. */
export function facetWord(key: string, kind: FacetKind, value: string): string {
  const hash = createHmac('sha256', key).update(`${kind}\0${value}`).digest('hex').slice(0, 15);
  return `${kind}_${hash}`;
}

/** Maximum number of cached words. Usually only a few values occur in many sessions, so a limited cache is enough. */
const MAX_KEPT = 20_000;

/** Returns a function that creates the words of a session, with a cache for frequent values. */
export function createFacetWords(key: string): (names: SessionNames) => string {
  const kept = new Map<string, string>();
  const wordOf = (kind: FacetKind, value: string): string => {
    const name = `${kind}\0${value}`;
    const known = kept.get(name);
    if (known !== undefined) return known;
    const word = facetWord(key, kind, value);
    // An id belongs to one session, so its word is not cached.
    if (kind === 'id') return word;
    if (kept.size >= MAX_KEPT) kept.clear();
    kept.set(name, word);
    return word;
  };
  return (names) => facetWords(wordOf, names);
}

/** Returns all words of a session. */
function facetWords(wordOf: (kind: FacetKind, value: string) => string, names: SessionNames): string {
  const { state, result, durationSeconds } = names;
  const exitCode = exitCodeOf(result);
  const words: string[] = [EVERY];
  for (const field of FIELDS)
    for (const name of new Set(fieldNames(field, names))) if (name !== '') words.push(wordOf(field, name));
  const place = placeOf(names);
  if (place !== undefined) words.push(wordOf('place', place));
  // The following values change while a session runs, but the words of its earlier moments are not updated. `GROWS`
  // marks a running session, so that searches for these values also check the session.
  if (state === 'running') words.push(GROWS);
  if (exitCode !== undefined) words.push(exitWord(exitCode), ...(exitCode === 0 ? [] : [EXIT_FAILED]));
  if (names.hidden !== undefined && names.hidden > 0) words.push(HIDES);
  if (durationSeconds !== undefined) words.push(durationWord(durationSize(durationSeconds)));
  return words.join(' ');
}

/** Returns the words of all names of a session, for queries without a field. */
export function nameWords(names: SessionNames): string {
  return indexText(joinNames(names));
}
