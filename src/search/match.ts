/**
 * Matches sessions with queries while they are recorded, without an index. It finds the same sessions as an index. A
 * query matches a session if it matches one of its moments. Pure.
 */
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import { hitOf, markedPhrases, type MarkedPhrases } from './hit.ts';
import { isWord, type CompareTerm, type FieldTerm, type Query, type Term, type TextTerm } from './query.ts';
import { joinNames, ruledNamespaces, type Hit, type Moment, type SessionNames } from './search-index.ts';
import { findPhrase, phraseOf, tokenize, type Token } from './tokens.ts';
import type { ViewerTerms } from './viewer-terms.ts';

/** A query that is matched with each new session. Plain data. */
export interface WatchedRule {
  readonly id: string;
  readonly query: Query;
  /** Sessions that the owner of the rule may see. */
  readonly may: ViewerTerms;
  /**
   * The rule applies to running sessions, and to sessions that ended after this time, in milliseconds since the epoch.
   */
  readonly sinceMs: number;
}

/** A rule that matches a session. Plain data. */
export interface RuleMatch {
  readonly rule: string;
  /** Position of the matching words. */
  readonly hit?: Hit;
}

/** Moment of a session without text. */
const WITHOUT_TEXT: Moment = { t0: 0, t1: 0, rows: [] };

/** Matches one session with all rules, and reports each match once. */
export class RuleWatch {
  readonly #rules: Map<string, CompiledRule>;
  #hadMoments = false;

  constructor(rules: readonly WatchedRule[]) {
    this.#rules = new Map(rules.map((rule) => [rule.id, compileRule(rule)]));
  }

  /**
   * Matches new moments.
   * @param moments moments since the last call
   * @param isOver true if no moments follow
   */
  match(names: SessionNames, moments: readonly Moment[], isOver: boolean): readonly RuleMatch[] {
    if (this.#rules.size === 0) return [];
    const endMs =
      names.startedAtMs + Math.max(names.durationSeconds ?? 0, ...moments.map(({ t1 }) => t1)) * 1000;
    const given = moments.length === 0 && !this.#hadMoments ? [WITHOUT_TEXT] : moments;
    this.#hadMoments ||= moments.length > 0;
    const asked = [...this.#rules.values()].filter(
      ({ rule, conditions }) =>
        !(isOver && endMs < rule.sinceMs) &&
        maySee(rule.may, names) &&
        conditions.every((clause) => clause.some((term) => isTrue(term, names))),
    );
    if (asked.length === 0) return [];
    const inNames = tokenize(joinNames(names));
    const found: RuleMatch[] = [];
    // In groups, because the words of all moments of a long session need much memory.
    for (let at = 0; at < given.length && asked.length > found.length; at += BATCH_MOMENTS) {
      const words = given.slice(at, at + BATCH_MOMENTS).map((moment) => new MomentWords(moment, inNames));
      for (const compiled of asked) {
        if (!this.#rules.has(compiled.rule.id)) continue;
        const matching = compiled.hasText
          ? matchingMoments(compiled, names, words)
          : matchingNames(compiled, names);
        if (matching === undefined) continue;
        this.#rules.delete(compiled.rule.id);
        const hit = matching.flatMap((moment) => hitOf(moment, compiled.marked) ?? []).at(0);
        found.push({ rule: compiled.rule.id, ...(hit === undefined ? {} : { hit }) });
      }
    }
    return found;
  }
}

/** Number of moments whose words are in memory at once. */
const BATCH_MOMENTS = 256;
/** Number of matching moments in which words are highlighted, as in an index. */
const MARKED_MOMENTS = 3;

/** Returns the first matching moments of a rule; undefined if there are none. */
function matchingMoments(
  { all, none }: CompiledRule,
  names: SessionNames,
  moments: readonly MomentWords[],
): readonly Moment[] | undefined {
  const found: Moment[] = [];
  for (const words of moments) {
    if (found.length === MARKED_MOMENTS) break;
    const has = (term: Term): boolean => hasWord(term, names, words);
    if (all.every((clause) => clause.some(has)) && !none.some(has)) found.push(words.moment);
  }
  return found.length === 0 ? undefined : found;
}

/** Matches a rule without words, whose matches have no moment. */
function matchingNames(compiled: CompiledRule, names: SessionNames): readonly Moment[] | undefined {
  const found = matchingMoments(compiled, names, [new MomentWords(WITHOUT_TEXT, [])]);
  return found === undefined ? undefined : [];
}

interface CompiledRule {
  readonly rule: WatchedRule;
  /** Clauses, of which one term each must match. */
  readonly conditions: readonly (readonly Term[])[];
  readonly all: readonly (readonly Term[])[];
  readonly none: readonly Term[];
  readonly marked: MarkedPhrases;
  readonly hasText: boolean;
}

function compileRule(rule: WatchedRule): CompiledRule {
  const { clauses } = rule.query;
  const words = clauses.filter((clause) => clause.some(isWord));
  return {
    rule,
    conditions: clauses.filter((clause) => !clause.some(isWord)),
    all: words.filter((clause) => clause.every(({ isNot }) => !isNot)),
    none: words.filter((clause) => clause.some(({ isNot }) => isNot)).flat(),
    marked: markedPhrases(rule.query),
    hasText: clauses.flat().some(({ kind }) => kind === 'text'),
  };
}

/** The words of a moment in rows, command and names. The words are split on first use. */
class MomentWords {
  readonly moment: Moment;
  readonly #inNames: readonly Token[];
  #inRows: readonly Token[] | undefined;
  #inCommand: readonly Token[] | undefined;

  constructor(moment: Moment, inNames: readonly Token[]) {
    this.moment = moment;
    this.#inNames = inNames;
  }

  has({ field, value, isPrefix }: TextTerm): boolean {
    const phrase = phraseOf(value, isPrefix);
    const isIn = (tokens: readonly Token[]): boolean => findPhrase(tokens, phrase).length > 0;
    if (field !== 'text' && isIn((this.#inCommand ??= tokenize(this.moment.command?.text ?? ''))))
      return true;
    if (field === 'cmd') return false;
    this.#inRows ??= tokenize(this.moment.rows.map(({ text }) => text).join('\n'));
    return isIn(this.#inRows) || (field === 'any' && isIn(this.#inNames));
  }
}

function maySee(may: ViewerTerms, { user, cluster, namespace, tags }: SessionNames): boolean {
  if (may === 'everything') return true;
  return may.some(({ kind, value }) => {
    if (kind === 'tag') return tags.includes(value);
    if (kind === 'namespace') return ruledNamespaces({ cluster, namespace }).includes(value);
    return value === (kind === 'user' ? user : cluster);
  });
}

function hasWord(term: Term, names: SessionNames, words: MomentWords): boolean {
  if (term.kind === 'text') return words.has(term);
  return term.kind === 'field' && namesOf(term.field, names).includes(term.value);
}

function isTrue(term: Term, names: SessionNames): boolean {
  return isPlainlyTrue(term, names) !== term.isNot;
}

function isPlainlyTrue(term: Term, names: SessionNames): boolean {
  switch (term.kind) {
    case 'time': {
      const isBefore = Math.floor(names.startedAtMs) < Math.max(0, Math.floor(term.atMs));
      return term.field === 'before' ? isBefore : !isBefore;
    }
    case 'compare': {
      const value = { exit: exitCodeOf(names.result), duration: names.durationSeconds, hidden: names.hidden }[
        term.field
      ];
      return value !== undefined && compare(value, term);
    }
    case 'field':
      return namesOf(term.field, names).some((name) => name.startsWith(term.value));
    case 'text':
      return false;
  }
}

function compare(value: number, { operator, number }: CompareTerm): boolean {
  switch (operator) {
    case '=':
      return value === number;
    case '!=':
      return value !== number;
    case '<':
      return value < number;
    case '<=':
      return value <= number;
    case '>':
      return value > number;
    case '>=':
      return value >= number;
  }
}

/** Returns the values of a field of a session. */
function namesOf(field: FieldTerm['field'], names: SessionNames): readonly string[] {
  if (field === 'tag') return names.tags;
  if (field === 'node') return names.nodes;
  // Reviews are not part of a session.
  if (field === 'reviewed') return [];
  const name = field === 'ns' ? names.namespace : names[field];
  return name === undefined || name === '' ? [] : [name];
}
