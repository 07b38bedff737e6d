/**
 * Compares sessions with the queries of rules while the sessions are recorded. No index is used, but the result is the
 * same as with an index of unlimited size. A query matches a session if all its terms match the same moment of the
 * session (`moments.ts`). Pure.
 */
import { exitCodeOf } from '../wire/recorder-api/recording-status.ts';
import { replaceSecrets } from '../secrets.ts';
import { hitOf, markedPhrases, shownHit } from './hit.ts';
import {
  findPattern,
  PatternSet,
  type PatternLine,
  type RulePattern,
  type SessionPatterns,
} from './patterns.ts';
import { isWord, type CompareTerm, type Query, type Term, type TextTerm } from './query.ts';
import {
  joinNames,
  fieldNames,
  ruledNamespaces,
  type Hit,
  type Moment,
  type SessionNames,
} from './search-index.ts';
import { findPhrase, phraseOf, tokenize, type Token } from './tokens.ts';
import type { ViewerTerms } from './viewer-terms.ts';

/** A rule whose query is compared with each new session. Plain data. */
export interface WatchedRule {
  readonly id: string;
  readonly query: Query;
  /** Sessions that the owner of the rule may see, as terms. */
  readonly may: ViewerTerms;
  /**
   * The rule applies to running sessions, and to sessions that ended after this time, in milliseconds since the epoch.
   */
  readonly sinceMs: number;
  /** Pattern that a line of the session must also match. The query of a rule with a pattern contains no words. */
  readonly pattern?: RulePattern;
}

/** A rule that matches a session. Plain data. */
export interface RuleMatch {
  readonly rule: string;
  /** Position of the matching words. */
  readonly hit?: Hit;
  /** True if the pattern of the rule is too slow for this session, and was switched off before it matched. */
  readonly isSlow?: true;
}

/** The patterns of all rules, for one session. */
interface RulePatterns {
  readonly output: SessionPatterns;
  readonly command: SessionPatterns;
}

/**
 * Returns a function that creates the {@link RuleWatch} of a session. All sessions share the compiled patterns.
 * @param cpuMs CPU time of this thread, in milliseconds
 */
export function createWatches(rules: readonly WatchedRule[], cpuMs: () => number): () => RuleWatch {
  const hasPatterns = rules.some(({ pattern }) => pattern !== undefined);
  const patterns = hasPatterns ? compilePatterns(rules, cpuMs) : undefined;
  return () => new RuleWatch(rules, patterns?.());
}

function compilePatterns(rules: readonly WatchedRule[], cpuMs: () => number): () => RulePatterns {
  const of = (kind: RulePattern['in']): PatternSet =>
    new PatternSet(
      rules.flatMap(({ id, pattern }) => (pattern?.in === kind ? [{ id, source: pattern.source }] : [])),
      cpuMs,
    );
  const output = of('output');
  const command = of('command');
  return () => ({ output: output.forSession(), command: command.forSession() });
}

/** Number of characters that are collected before they are compared with the patterns. */
const BATCH_CHARACTERS = 16_384;

/** Empty moment, for sessions without text. */
const WITHOUT_TEXT: Moment = { t0: 0, t1: 0, rows: [] };

/** Compares one session with all rules, and reports each matching rule once. */
export class RuleWatch {
  readonly #rules: Map<string, CompiledRule>;
  readonly #patterns: RulePatterns | undefined;
  /** The first matching line of each pattern. */
  readonly #lines = new Map<string, PatternLine>();
  #output: PatternLine[] = [];
  #waiting = 0;
  #commands: PatternLine[] = [];
  #hadMoments = false;
  #hadNames = false;

  /** @param patterns compiled patterns of these rules; undefined if the rules have no pattern */
  constructor(rules: readonly WatchedRule[], patterns?: RulePatterns) {
    this.#rules = new Map(rules.map((rule) => [rule.id, compileRule(rule)]));
    this.#patterns = patterns;
  }

  /** True if the session uses a pattern for output. */
  get readsOutput(): boolean {
    return this.#patterns?.output.isEmpty === false;
  }

  /** Adds a row of the screen or a written line, for a later comparison with the patterns. */
  output(line: PatternLine): void {
    if (!this.readsOutput) return;
    this.#output.push(line);
    this.#count(line);
  }

  /** Adds a command, for a later comparison with the patterns. */
  command(line: PatternLine): void {
    if (this.#patterns?.command.isEmpty !== false) return;
    this.#commands.push(line);
    this.#count(line);
  }

  /** Compares the collected lines with the patterns if the lines exceed the memory limit. */
  #count({ text }: PatternLine): void {
    this.#waiting += text.length + 1;
    if (this.#waiting > BATCH_CHARACTERS) this.#matchLines();
  }

  /**
   * Compares new moments with the rules.
   * @param moments moments since the last call
   * @param isOver true if no moments follow
   */
  match(names: SessionNames, moments: readonly Moment[], isOver: boolean): readonly RuleMatch[] {
    if (this.#rules.size === 0) return [];
    this.#readNames(names);
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
    const found = this.#matchPatterns(asked, names);
    // The moments are processed in groups, because the words of a complete long session need much memory.
    for (let at = 0; at < given.length && asked.length > found.length; at += BATCH_MOMENTS) {
      const words = given.slice(at, at + BATCH_MOMENTS).map((moment) => new MomentWords(moment, inNames));
      for (const compiled of asked) {
        if (!this.#rules.has(compiled.rule.id) || compiled.rule.pattern !== undefined) continue;
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

  #readNames({ command }: SessionNames): void {
    if (command !== undefined && !this.#hadNames) this.command({ at: 0, text: command });
    this.#hadNames = true;
    this.#matchLines();
  }

  #matchLines(): void {
    if (this.#patterns === undefined) return;
    const { output, command } = this.#patterns;
    for (const [set, lines] of [
      [output, this.#output],
      [command, this.#commands],
    ] as const) {
      for (const [id, line] of set.match(lines)) if (!this.#lines.has(id)) this.#lines.set(id, line);
    }
    this.#output = [];
    this.#waiting = 0;
    this.#commands = [];
  }

  /** Returns the matches of rules with a pattern. `isSlow` marks a rule whose pattern was switched off. */
  #matchPatterns(asked: readonly CompiledRule[], names: SessionNames): RuleMatch[] {
    const found: RuleMatch[] = [];
    const slow = [...(this.#patterns?.output.slow ?? []), ...(this.#patterns?.command.slow ?? [])];
    for (const compiled of asked) {
      const { id, pattern } = compiled.rule;
      if (pattern === undefined) continue;
      const line = this.#lines.get(id);
      if (line !== undefined && matchingNames(compiled, names) !== undefined)
        found.push({ rule: id, hit: patternHit(pattern, line) });
      else if (line === undefined && slow.includes(id)) found.push({ rule: id, isSlow: true });
      else continue;
      this.#rules.delete(id);
    }
    return found;
  }
}

function patternHit({ in: kind, source }: RulePattern, { at, text }: PatternLine): Hit {
  const shown = replaceSecrets(text);
  const mark = findPattern(source, shown);
  return shownHit(shown, mark === undefined ? [] : [mark], at, kind === 'command');
}

/** Number of moments whose words are in memory at once. */
const BATCH_MOMENTS = 256;
/** Maximum number of moments in which words are highlighted. The index has the same limit. */
const MARKED_MOMENTS = 3;

/** Returns the earliest moments that match a rule; undefined if no moment matches. */
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

/**
 * Compares a rule that searches no text with the names of a session. Returns undefined if the rule does not match. If
 * it matches, returns an empty list, because names have no position in the session.
 */
function matchingNames(compiled: CompiledRule, names: SessionNames): readonly Moment[] | undefined {
  const found = matchingMoments(compiled, names, [new MomentWords(WITHOUT_TEXT, [])]);
  return found === undefined ? undefined : [];
}

type CompiledRule = ReturnType<typeof compileRule>;

function compileRule(rule: WatchedRule) {
  const { clauses } = rule.query;
  const words = clauses.filter((clause) => clause.some(isWord));
  return {
    rule,
    /** Clauses without words. At least one term of each clause must match. */
    conditions: clauses.filter((clause) => !clause.some(isWord)),
    all: words.filter((clause) => clause.every(({ isNot }) => !isNot)),
    none: words.filter((clause) => clause.some(({ isNot }) => isNot)).flat(),
    marked: markedPhrases(rule.query),
    hasText: clauses.flat().some(({ kind }) => kind === 'text'),
  };
}

/**
 * The words of a moment, and of the names of its session. The words in the rows and the command are extracted on first
 * use.
 */
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
  return term.kind === 'field' && fieldNames(term.field, names).includes(term.value);
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
      return fieldNames(term.field, names).some((name) => name.startsWith(term.value));
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
