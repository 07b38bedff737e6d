/** Functions of the page for queries: parse a query, add and remove terms, complete the input. Pure. */
import { CHOICES, KEYS, parseQuery, printQuery, QueryError, type Query, type Term } from '../search/query.ts';
import { withoutPart } from '../search/nearest-query.ts';
import { EMPTY_FILTER, filterQuery, type Filter } from './addresses.ts';

/** Input of the search field: a valid query, or a problem. */
export type ReadQuery =
  | { readonly query: Query; readonly problem?: undefined; readonly meant?: undefined }
  | {
      readonly query?: undefined;
      /** Message for the user. */
      readonly problem: string;
      /** Suggested correction of the query, if any. */
      readonly meant: string | undefined;
    };

/** @param nowMs milliseconds since the epoch */
export function readQuery(text: string, nowMs: number): ReadQuery {
  try {
    return { query: parseQuery(text, nowMs) };
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    const { message, offset, instead } = error;
    const meant =
      instead === undefined
        ? undefined
        : text.slice(0, offset) + text.slice(offset).replace(instead.written, () => instead.meant);
    return { problem: `${message.charAt(0).toUpperCase()}${message.slice(1)}.`, meant };
  }
}

/** Keys with suggested values. */
export type OfferedKey = 'user' | 'cluster' | 'ns' | 'kind' | 'state' | 'result' | 'trust' | 'after';

/** Index of the top-level clause `key:value` in a query, or -1. */
export function findPart({ clauses }: Query, key: OfferedKey, value: string): number {
  return clauses.findIndex(
    ([term, ...others]) => others.length === 0 && term !== undefined && isSame(term, key, value),
  );
}

function isSame(term: Term, key: OfferedKey, value: string): boolean {
  return !term.isNot && term.field === key && term.value === value && !('isPrefix' in term && term.isPrefix);
}

/**
 * Adds `key:value`, or removes it if present. A new `after` replaces the existing `after`, because otherwise both would
 * apply.
 */
export function toggled(query: Query, key: OfferedKey, value: string, nowMs: number): string {
  const at = findPart(query, key, value);
  if (at >= 0) return withoutPart(query, at);
  const clauses = query.clauses.filter(
    ([term, ...others]) => key !== 'after' || others.length > 0 || term?.field !== key,
  );
  const added = parseQuery(`${key}:"${value.replaceAll(/["\\]/g, '\\$&')}"`, nowMs);
  return printQuery({ clauses: [...clauses, ...added.clauses] });
}

/** Converts a filter to a query, for a link that was created by a recorder without search. */
export function queryOfFilter(filter: Filter): string {
  const { text, user, cluster, namespace, pod, state, from, to } = filterQuery(filter);
  const quoted = (key: string, value: string | undefined): readonly string[] =>
    value === undefined ? [] : [`${key}"${value.replaceAll(/["\\]/g, '\\$&')}"`];
  return [
    ...quoted('user:', user),
    ...quoted('cluster:', cluster),
    ...quoted('ns:', namespace),
    ...quoted('pod:', pod),
    ...quoted('state:', state),
    ...(from === undefined ? [] : [`after:${from}`]),
    ...(to === undefined ? [] : [`before:${to}`]),
    ...quoted('', text),
  ].join(' ');
}

/** Returns the text of a query that consists of one text term, for use as a filter; otherwise an empty string. */
export function plainText({ clauses }: Query): string {
  const [term, ...others] = clauses.flat();
  return term?.kind === 'text' && term.field === 'any' && others.length === 0 ? term.value : '';
}

/** Names that the page has seen in recordings. Keys: query key. */
export type KnownNames = Readonly<Record<'user' | 'cluster' | 'ns' | 'pod', ReadonlySet<string>>>;

const MAX_OFFERED = 20;

/** Suggested completions of the input, as complete queries: keys, and values of keys. */
export function queryOffers(text: string, known: KnownNames): readonly string[] {
  const [, before = '', key, value = ''] = /^(.*?(?:^|\s)-?)(?:([a-z]+):"?)?([^\s":]*)$/is.exec(text) ?? [];
  if (key === undefined) {
    if (value === '') return [];
    return KEYS.filter((name) => name.startsWith(value.toLowerCase())).map((name) => `${before}${name}:`);
  }
  const names = new Map<string, Iterable<string>>([...CHOICES, ...Object.entries(known)]);
  return Array.from(names.get(key.toLowerCase()) ?? [])
    .filter((name) => name.toLowerCase().startsWith(value.toLowerCase()) && name !== value)
    .toSorted()
    .slice(0, MAX_OFFERED)
    .map((name) => `${before}${key}:${/[\s"]/.test(name) ? `"${name.replaceAll(/["\\]/g, '\\$&')}"` : name}`);
}

/** Returns a filter that finds a text literally, for recorders without an index. */
export function filterOfText(text: string): Filter {
  return { ...EMPTY_FILTER, text };
}
