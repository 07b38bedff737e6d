/**
 * Compiles a query for SQLite: words for FTS5, and conditions on sessions. The text of a query is never part of the
 * SQL.
 */
import { markedPhrases } from '../../../search/hit.ts';
import { isWord, type CompareTerm, type Query, type Term } from '../../../search/query.ts';
import { commandWord, phraseOf, tokenize } from '../../../search/tokens.ts';
import type { ViewerTerm, ViewerTerms } from '../../../search/viewer-terms.ts';
import {
  durationSize,
  durationWord,
  EVERY,
  EXIT_FAILED,
  HIDES,
  exitWord,
  facetWord,
  GROWS,
  MAX_DURATION_SIZE,
  type FacetKind,
} from './facets.ts';
import { numberOf } from './database.ts';

export type CompiledQuery = ReturnType<typeof compileQuery>;

interface Condition {
  readonly sql: string;
  readonly values: readonly (string | number)[];
}

/** Compiles a query and the rules of a viewer. */
export function compileQuery(query: Query, may: ViewerTerms, key: string) {
  const all: string[] = [];
  const none: string[] = [];
  const around: string[] = [];
  const conditions: Condition[] = [];
  for (const clause of query.clauses) {
    if (clause.every((term) => !isWord(term))) {
      const parts = clause.map(conditionOf);
      conditions.push({
        sql: `(${parts.map(({ sql }) => sql).join(' OR ')})`,
        values: parts.flatMap(({ values }) => values),
      });
      const wider = clause.map(wordsAround);
      if (wider.every((words) => words !== undefined)) around.push(wider.join(' OR '));
    } else if (clause.every((term) => isWord(term) && !term.isNot))
      all.push(clause.map((term) => wordOf(term, key)).join(' OR '));
    else none.push(...clause.map((term) => wordOf(term, key)));
  }
  if (may !== 'everything') all.push(rules(may, key));
  if (all.length === 0 && none.length > 0) all.push(inFacets(EVERY));
  return {
    /**
     * FTS5 expression that finds candidates. The expression contains the words of the query, and words that the
     * conditions imply. Undefined if all sessions are candidates.
     */
    match: matchOf([...all, ...around], none),
    /**
     * FTS5 expression that contains only the words of the query, for a search within one session whose conditions
     * match.
     */
    words: matchOf(all, none),
    /** True if at least one term of the query is compared with the text of moments. */
    hasText: query.clauses.flat().some(({ kind }) => kind === 'text'),
    /** SQL condition on table `s`. */
    where: conditions.map(({ sql }) => sql).join(' AND ') || 'TRUE',
    values: conditions.flatMap(({ values }) => values),
    /** Range of session numbers: `from` inclusive, `to` exclusive. */
    from: Math.max(0, ...timesOf(query, 'after')),
    to: Math.min(Number.MAX_SAFE_INTEGER, ...timesOf(query, 'before')),
    marked: markedPhrases(query),
  };
}

/** Returns the time limits of the query that apply to every result, as session numbers. */
function timesOf({ clauses }: Query, field: 'before' | 'after'): readonly number[] {
  return clauses.flatMap(([term, ...others]) =>
    others.length === 0 && term?.kind === 'time' && term.field === field && !term.isNot
      ? [numberOf(Math.floor(term.atMs))]
      : [],
  );
}

/** Combines required and excluded expressions. @returns undefined if no expression is required */
function matchOf(all: readonly string[], none: readonly string[]): string | undefined {
  if (all.length === 0) return undefined;
  const match = all.map((part) => `(${part})`).join(' AND ');
  return none.length === 0 ? match : `(${match}) NOT (${none.join(' OR ')})`;
}

/** Returns the expression for the rules of a viewer. Sessions that match no rule are excluded. */
function rules(may: Exclude<ViewerTerms, 'everything'>, key: string): string {
  const facetOf = ({ kind, value }: ViewerTerm): FacetKind =>
    kind === 'namespace' ? (value.includes('/') ? 'place' : 'ns') : kind;
  const words = may.map((term) => inFacets(facetWord(key, facetOf(term), term.value)));
  return words.length === 0 ? inFacets('nothing') : words.join(' OR ');
}

function wordOf(term: Term, key: string): string {
  if (term.kind === 'field') return inFacets(facetWord(key, term.field, term.value));
  if (term.kind !== 'text') throw new TypeError(`${term.kind} is no word`);
  const { tokens, isPrefix } = phraseOf(term.value, term.isPrefix);
  const end = isPrefix ? ' *' : '';
  // Words of commands have a prefix instead of a column of their own. To search in one column, FTS5 would read the
  // entries of all columns.
  const inCommands = `"${tokens.map(commandWord).join(' ')}"${end}`;
  if (term.field === 'cmd') return inCommands;
  const inText = `{${term.field === 'text' ? 'text' : 'text d'}} : "${tokens.join(' ')}"${end}`;
  return term.field === 'text' ? inText : `${inText} OR ${inCommands}`;
}

function inFacets(word: string): string {
  return `{f} : "${word}"`;
}

/**
 * Returns words that the condition implies: every matching session contains these words. These words reduce the number
 * of sessions to check.
 *
 * @returns undefined if the condition implies no words
 */
function wordsAround(term: Term): string | undefined {
  if (term.isNot) return undefined;
  if (term.kind === 'compare') {
    const words = WORDS_OF_NUMBERS[term.field](term);
    return words && [...words, GROWS].map(inFacets).join(' OR ');
  }
  if (term.kind !== 'field' || !IN_NAMES.has(term.field)) return undefined;
  // Leave out the last word, because the value may be the beginning of a longer text.
  const whole = tokenize(term.value).slice(0, -1);
  return whole.length === 0 ? undefined : `{d} : "${whole.map(({ text }) => text).join(' ')}"`;
}

/** Fields whose values are also words of a session. */
const IN_NAMES: ReadonlySet<string> = new Set(['user', 'cluster', 'ns', 'pod', 'container', 'tag', 'node']);

function exitWords({ operator, number }: CompareTerm): readonly string[] | undefined {
  if (operator === '=') return [exitWord(number)];
  const isFailed =
    (operator === '!=' && number === 0) ||
    (operator === '>' && number >= 0) ||
    (operator === '>=' && number > 0);
  return isFailed ? [EXIT_FAILED] : undefined;
}

function hiddenWords({ operator, number }: CompareTerm): readonly string[] | undefined {
  const isAny = (operator === '>' && number >= 0) || ((operator === '>=' || operator === '=') && number > 0);
  return isAny ? [HIDES] : undefined;
}

const WORDS_OF_NUMBERS = { exit: exitWords, duration: durationWords, hidden: hiddenWords } as const;

function durationWords({ operator, number }: CompareTerm): readonly string[] | undefined {
  if (operator === '!=') return undefined;
  const size = durationSize(number);
  const first = operator === '<' || operator === '<=' ? 0 : size;
  const last = operator === '>' || operator === '>=' ? MAX_DURATION_SIZE : size;
  return Array.from({ length: last - first + 1 }, (_, at) => durationWord(first + at));
}

const NUMBERS = { duration: '+dur', exit: 'exit', hidden: 'hid' } as const;

const COLUMNS = {
  user: 'usr',
  cluster: 'cluster',
  ns: 'ns',
  pod: 'pod',
  container: 'container',
  kind: 'kind',
  state: 'state',
  result: 'result',
  trust: 'trust',
  id: 'id',
} as const;

function conditionOf(term: Term): Condition {
  const found = plainCondition(term);
  return term.isNot ? { sql: `NOT coalesce(${found.sql}, FALSE)`, values: found.values } : found;
}

function plainCondition(term: Term): Condition {
  if (term.kind === 'time')
    return {
      sql: `s.n ${term.field === 'before' ? '<' : '>='} ?`,
      values: [numberOf(Math.floor(term.atMs))],
    };
  if (term.kind === 'compare')
    return { sql: `${NUMBERS[term.field]} ${term.operator} ?`, values: [term.number] };
  if (term.kind !== 'field') throw new TypeError(`${term.kind} is no condition`);
  if (term.field === 'tag' || term.field === 'node') {
    const list = term.field === 'tag' ? 'tags' : 'nodes';
    return {
      sql: `EXISTS (SELECT 1 FROM json_each(${list}) WHERE value >= ? AND value < ?)`,
      values: beginning(term.value),
    };
  }
  // The API replaces this term before the query is compiled.
  if (term.field === 'reviewed') return { sql: 'FALSE', values: [] };
  const column = COLUMNS[term.field];
  return { sql: `(${column} >= ? AND ${column} < ?)`, values: beginning(term.value) };
}

/** Returns the range of the texts that start with a prefix. */
function beginning(value: string): readonly string[] {
  return [value, `${value}\u{10ffff}`];
}
