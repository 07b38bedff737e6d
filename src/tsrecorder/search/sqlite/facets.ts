/** Names of sessions as words of the index, so that rules and filters are part of the search and not of a join. */
import { createHmac } from 'node:crypto';
import { exitCodeOf } from '../../../wire/recorder-api/recording-status.ts';
import { joinNames, type SessionNames } from '../../../search/search-index.ts';
import type { FieldTerm } from '../../../search/query.ts';
import { indexText } from '../../../search/tokens.ts';

/** Exit codes and durations: words that all have that a condition on them is true of, and some others. */
export const GROWS = 'grows';
export const EXIT_FAILED = 'exit_failed';
/** The word of sessions with characters that never became visible. */
export const HIDES = 'hides';

/** The word for an exit code. */
export function exitWord(code: number): string {
  return `exit_${code}`;
}

/** The word for durations of that size: each is twice as long as the one before. */
export function durationWord(size: number): string {
  return `duration_${size}`;
}

/** The largest size that a duration may have. */
export const MAX_DURATION_SIZE = 31;

export function durationSize(seconds: number): number {
  return Math.max(0, Math.min(MAX_DURATION_SIZE, Math.floor(Math.log2(Math.max(1, seconds)))));
}

/** What a facet is about. */
export type FacetKind = FieldTerm['field'];

/** Stands in every row. */
export const EVERY = 'every';

/** The word for a name: exact, whatever characters it has. */
export function facetWord(key: string, kind: FacetKind, value: string): string {
  const hash = createHmac('sha256', key).update(`${kind}\0${value}`).digest('hex').slice(0, 15);
  return `${kind}_${hash}`;
}

/** Names that are kept with their words: an archive has few that are in many of its sessions. */
const MAX_KEPT = 20_000;

/** Makes the words of sessions, and keeps those of names that many have. */
export function createFacetWords(key: string): (names: SessionNames) => string {
  const kept = new Map<string, string>();
  const wordOf = (kind: FacetKind, value: string): string => {
    const name = `${kind}\0${value}`;
    const known = kept.get(name);
    if (known !== undefined) return known;
    const word = facetWord(key, kind, value);
    // an id is of one session alone
    if (kind === 'id') return word;
    if (kept.size >= MAX_KEPT) kept.clear();
    kept.set(name, word);
    return word;
  };
  return (names) => facetWords(wordOf, names);
}

/** All words of a session. */
function facetWords(wordOf: (kind: FacetKind, value: string) => string, names: SessionNames): string {
  const { user, namespace, pod, container, tags, nodes, kind, state, result, trust, id, durationSeconds } =
    names;
  const exitCode = exitCodeOf(result);
  const words: string[] = [EVERY];
  const add = (of: FacetKind, value: string | undefined): void => {
    if (value !== undefined && value !== '') words.push(wordOf(of, value));
  };
  add('user', user);
  add('ns', namespace);
  add('pod', pod);
  add('container', container);
  for (const tag of tags) add('tag', tag);
  for (const node of new Set(nodes)) add('node', node);
  add('kind', kind);
  add('state', state);
  add('result', result);
  add('trust', trust);
  add('id', id);
  // what these are changes while a session runs, and its first words stay
  if (state === 'running') words.push(GROWS);
  if (exitCode !== undefined) words.push(exitWord(exitCode), ...(exitCode === 0 ? [] : [EXIT_FAILED]));
  if (names.hidden !== undefined && names.hidden > 0) words.push(HIDES);
  if (durationSeconds !== undefined) words.push(durationWord(durationSize(durationSeconds)));
  return words.join(' ');
}

/** Words of its names, for those who do not say which name they mean. */
export function nameWords(names: SessionNames): string {
  return indexText(joinNames(names));
}
