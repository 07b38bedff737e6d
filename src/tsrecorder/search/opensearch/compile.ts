/**
 * Compiles a query for OpenSearch. The text of a query is never parsed by the server. Words become terms, and the rules
 * of the viewer become an additional condition.
 */
import { markedPhrases } from '../../../search/hit.ts';
import { isWord, type Query, type Term } from '../../../search/query.ts';
import { phraseOf } from '../../../search/tokens.ts';
import type { ViewerTerms } from '../../../search/viewer-terms.ts';

/** A condition in the query language of OpenSearch. */
export type SearchCondition = Readonly<Record<string, unknown>>;

export type CompiledSearch = ReturnType<typeof compileSearch>;

/** Compiles a query and the rules of a viewer. */
export function compileSearch(query: Query, may: ViewerTerms) {
  const filter: SearchCondition[] = [];
  const mustNot: SearchCondition[] = [];
  let hasWords = may !== 'everything';
  for (const clause of query.clauses) {
    if (clause.every((term) => !isWord(term))) {
      filter.push(anyOf(clause.map(conditionOf)));
      continue;
    }
    hasWords = true;
    if (clause.every((term) => !term.isNot)) filter.push(anyOf(clause.map(wordOf)));
    else mustNot.push(...clause.map(wordOf));
  }
  if (may !== 'everything') filter.push(rules(may));
  return {
    filter,
    mustNot,
    /** True if the query contains words to find in moments. */
    hasText: query.clauses.flat().some(({ kind }) => kind === 'text'),
    /** True if a term of the query is looked up in the index ({@link isWord}), or if the viewer is restricted. */
    hasWords,
    marked: markedPhrases(query),
  };
}

/** Combines conditions with the compiled query. */
export function searchFor(
  { filter, mustNot }: Pick<CompiledSearch, 'filter' | 'mustNot'>,
  ...more: readonly SearchCondition[]
): SearchCondition {
  return { bool: { filter: [...more, ...filter], must_not: mustNot } };
}

/** Returns the condition for a phrase of words. */
function phraseIn(field: string, tokens: readonly string[], isPrefix = false): SearchCondition {
  const last = tokens.at(-1);
  if (last === undefined) return { match_none: {} };
  if (tokens.length === 1) return isPrefix ? beginsWith(field, last) : { term: { [field]: { value: last } } };
  if (!isPrefix) return { match_phrase: { [field]: { query: tokens.join(' ') } } };
  const before = tokens.slice(0, -1).map((value) => ({ span_term: { [field]: { value } } }));
  const clauses = [...before, { span_multi: { match: beginsWith(field, last) } }];
  return { span_near: { clauses, slop: 0, in_order: true } };
}

function beginsWith(field: string, value: string): SearchCondition {
  return { prefix: { [field]: { value } } };
}

/** Returns the condition for the rules of a viewer. Sessions that match no rule are excluded. */
function rules(may: Exclude<ViewerTerms, 'everything'>): SearchCondition {
  if (may.length === 0) return { match_none: {} };
  const values = (kind: (typeof may)[number]['kind']): readonly string[] =>
    may.filter((term) => term.kind === kind).map(({ value }) => value);
  const namespaces = Map.groupBy(values('namespace'), (name) => name.includes('/'));
  return anyOf([
    { terms: { user: values('user') } },
    { terms: { cluster: values('cluster') } },
    { terms: { ns: namespaces.get(false) ?? [] } },
    { terms: { place: namespaces.get(true) ?? [] } },
    { terms: { tag: values('tag') } },
  ]);
}

function anyOf(parts: readonly SearchCondition[]): SearchCondition {
  const [first] = parts;
  return parts.length === 1 && first !== undefined
    ? first
    : { bool: { should: parts, minimum_should_match: 1 } };
}

const COLUMNS = { any: ['text', 'cmd', 'words'], text: ['text'], cmd: ['cmd'] } as const;

function wordOf(term: Term): SearchCondition {
  if (term.kind === 'field') return { term: { [columnOf(term.field)]: { value: term.value } } };
  if (term.kind !== 'text') throw new TypeError(`${term.kind} is no word`);
  const { tokens, isPrefix } = phraseOf(term.value, term.isPrefix);
  return anyOf(COLUMNS[term.field].map((field) => phraseIn(field, tokens, isPrefix)));
}

function columnOf(field: Extract<Term, { kind: 'field' }>['field']): string {
  return field === 'id' ? 'session' : field;
}

function conditionOf(term: Term): SearchCondition {
  const found = plainCondition(term);
  return term.isNot ? { bool: { must_not: [found] } } : found;
}

const RANGES = { '<': 'lt', '<=': 'lte', '>': 'gt', '>=': 'gte' } as const;

function plainCondition(term: Term): SearchCondition {
  if (term.kind === 'time') {
    const ms = Math.max(0, Math.floor(term.atMs));
    return { range: { started: term.field === 'before' ? { lt: ms } : { gte: ms } } };
  }
  if (term.kind === 'compare') {
    const { field, operator, number } = term;
    if (operator === '=') return { term: { [field]: { value: number } } };
    if (operator === '!=')
      return {
        bool: { filter: [{ exists: { field } }], must_not: [{ term: { [field]: { value: number } } }] },
      };
    return { range: { [field]: { [RANGES[operator]]: number } } };
  }
  if (term.kind !== 'field') throw new TypeError(`${term.kind} is no condition`);
  return beginsWith(columnOf(term.field), term.value);
}
