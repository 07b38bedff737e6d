/** Named searches that are saved in this browser. */
import type { SavedSearch } from '../wire/recorder-api/saved-search.ts';
import { recall, remember } from './remember.ts';

const KEY = 'tailcast.searches';
const MAX_SAVED = 50;

export function savedSearches(): readonly SavedSearch[] {
  return parseSaved(recall(KEY));
}

/** Stores the saved searches. */
export function keepSearches(searches: readonly SavedSearch[]): void {
  remember(KEY, JSON.stringify(searches));
}

/** Parses saved searches. Invalid entries are skipped. */
export function parseSaved(text: string | undefined): readonly SavedSearch[] {
  try {
    const saved: unknown = JSON.parse(text ?? '[]');
    return Array.isArray(saved) ? saved.filter(isSaved).slice(0, MAX_SAVED) : [];
  } catch {
    return [];
  }
}

/** Adds or replaces a search, and sorts by name. Returns the list unchanged if it is full. */
export function withSearch(searches: readonly SavedSearch[], added: SavedSearch): readonly SavedSearch[] {
  const others = searches.filter(({ name }) => name !== added.name);
  if (others.length >= MAX_SAVED) return searches;
  return [...others, added].toSorted((left, right) => left.name.localeCompare(right.name));
}

function isSaved(value: unknown): value is SavedSearch {
  return (
    typeof value === 'object' &&
    value !== null &&
    'name' in value &&
    typeof value.name === 'string' &&
    value.name !== '' &&
    'query' in value &&
    typeof value.query === 'string'
  );
}
