/** What the page does to a query: takes it apart, puts terms in and out, completes what is typed. Pure. */
import { CHOICES, KEYS, parseQuery, printQuery, QueryError, type Query, type Term } from '../search/query.ts';
import { EMPTY_FILTER, filterQuery, type Filter } from './archive.ts';

/** What is written in the field, understood or not. */
export type ReadQuery =
  | { readonly query: Query; readonly problem?: undefined; readonly meant?: undefined }
  | {
      readonly query?: undefined;
      /** A sentence. */
      readonly problem: string;
      /** The query as it may have been meant. */
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

/** Each part of a query that can be taken out. */
export function partsOf({ clauses }: Query): readonly string[] {
  return clauses.map((clause) => printQuery({ clauses: [clause] }));
}

export function withoutPart({ clauses }: Query, index: number): string {
  return printQuery({ clauses: clauses.filter((_, at) => at !== index) });
}

/** Keys that a page offers values for. */
export type OfferedKey = 'user' | 'ns' | 'kind' | 'state' | 'result' | 'trust' | 'after';

/** Where in a query `key:value` stands by itself; -1 when it does not. */
export function findPart({ clauses }: Query, key: OfferedKey, value: string): number {
  return clauses.findIndex(
    ([term, ...others]) => others.length === 0 && term !== undefined && isSame(term, key, value),
  );
}

function isSame(term: Term, key: OfferedKey, value: string): boolean {
  return !term.isNot && term.field === key && term.value === value && !('isPrefix' in term && term.isPrefix);
}

/** With `key:value`, or without it when it is there. A session begins once: one `after` takes the place of another. */
export function toggled(query: Query, key: OfferedKey, value: string, nowMs: number): string {
  const at = findPart(query, key, value);
  if (at >= 0) return withoutPart(query, at);
  const clauses = query.clauses.filter(
    ([term, ...others]) => key !== 'after' || others.length > 0 || term?.field !== key,
  );
  const added = parseQuery(`${key}:"${value.replaceAll(/["\\]/g, '\\$&')}"`, nowMs);
  return printQuery({ clauses: [...clauses, ...added.clauses] });
}

/** A link to a filtered list of a recorder that had no search, as a query. */
export function queryOfFilter(filter: Filter): string {
  const { text, user, namespace, pod, state, from, to } = filterQuery(filter);
  const quoted = (key: string, value: string | undefined): readonly string[] =>
    value === undefined ? [] : [`${key}"${value.replaceAll(/["\\]/g, '\\$&')}"`];
  return [
    ...quoted('user:', user),
    ...quoted('ns:', namespace),
    ...quoted('pod:', pod),
    ...quoted('state:', state),
    ...(from === undefined ? [] : [`after:${from}`]),
    ...(to === undefined ? [] : [`before:${to}`]),
    ...quoted('', text),
  ].join(' ');
}

/** The text of a query that is nothing else, for what it was found by. */
export function plainText({ clauses }: Query): string {
  const [term, ...others] = clauses.flat();
  return term?.kind === 'text' && term.field === 'any' && others.length === 0 ? term.value : '';
}

/** The same query with its last word begun instead of whole; undefined when that makes no sense. */
export function begunWith(query: Query, nowMs: number): string | undefined {
  const [last] = query.clauses.at(-1) ?? [];
  if (last?.kind !== 'text' || last.isPrefix || last.isNot) return undefined;
  const clauses = query.clauses.with(-1, [{ ...last, isPrefix: true }]);
  const text = printQuery({ clauses });
  return readQuery(text, nowMs).query === undefined ? undefined : text;
}

/** Names that are known here, by key. */
export type KnownNames = Readonly<Record<'user' | 'ns' | 'pod', ReadonlySet<string>>>;

const MAX_OFFERED = 20;

/** Whole queries that what is typed may become: keys, and values of keys. */
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

/** A filter that looks for a text as it stands, where there is no index. */
export function filterOfText(text: string): Filter {
  return { ...EMPTY_FILTER, text };
}
