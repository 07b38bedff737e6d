/**
 * The query language of the page, the command line and the API. Pure.
 *
 * A term is a word, a phrase in quotes, or `key:value`; `*` at the end of a term makes the term a prefix. All terms
 * must match. If `OR` is between two terms, one of the two is enough. `NOT` or `!` before a term excludes the sessions
 * that match the term. A dash before a key (`-user:alice`) also excludes these sessions. A dash before other characters
 * is text, because command lines contain many dashes: `rm -rf` finds the command.
 */
import {
  isRecordingResult,
  RECORDING_STATES,
  RESULT_VALUES,
  RESULT_WORDS,
  TRUST_LEVELS,
} from '../wire/recorder-api/recording-status.ts';
import { phraseOf } from './tokens.ts';

/** A parsed query: at least one term of each clause must match. */
export interface Query {
  readonly clauses: readonly (readonly Term[])[];
}

export type Term = { readonly isNot: boolean } & (TextTerm | FieldTerm | TimeTerm | CompareTerm);

/** Words on the screen (`text`), in commands (`cmd`), or in all text and names (`any`). */
export interface TextTerm {
  readonly kind: 'text';
  readonly field: 'any' | 'cmd' | 'text';
  readonly value: string;
  readonly isPrefix: boolean;
}

export interface FieldTerm {
  readonly kind: 'field';
  readonly field: (typeof FIELDS)[number];
  readonly value: string;
  readonly isPrefix: boolean;
}

/** Condition on the start time of a session. */
export interface TimeTerm {
  readonly kind: 'time';
  readonly field: 'before' | 'after';
  /** Value as written in the query. */
  readonly value: string;
  /** Milliseconds since the epoch. */
  readonly atMs: number;
}

export interface CompareTerm {
  readonly kind: 'compare';
  readonly field: 'duration' | 'exit' | 'hidden';
  readonly operator: Operator;
  /** Value as written in the query. */
  readonly value: string;
  /** Seconds, an exit code, or a number of characters. */
  readonly number: number;
}

export type Operator = '=' | '!=' | '<' | '<=' | '>' | '>=';

export const FIELDS = [
  'user',
  'ns',
  'pod',
  'container',
  'cluster',
  'node',
  'tag',
  'kind',
  'state',
  'result',
  'trust',
  'reviewed',
  'id',
] as const;
export const KEYS = [...FIELDS, 'cmd', 'text', 'before', 'after', 'duration', 'exit', 'hidden'] as const;
const SYNONYMS: ReadonlyMap<string, string> = new Map([
  ['namespace', 'ns'],
  ['command', 'cmd'],
  ['since', 'after'],
  ['until', 'before'],
]);
/** Allowed values of each key that has a fixed set of values. `result` also accepts any exit code. */
export const CHOICES: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ['kind', ['exec', 'attach', 'ssh', 'unknown']],
  ['state', RECORDING_STATES],
  ['result', ['0', ...RESULT_WORDS]],
  ['trust', TRUST_LEVELS],
  ['reviewed', ['yes', 'no']],
]);

export const MAX_QUERY = 512;
const MAX_TERMS = 16;
const MAX_PHRASE = 32;
const MIN_PREFIX = 3;

/** Error for an invalid query. The message tells the author of the query what is wrong. */
export class QueryError extends Error {
  override readonly name = 'QueryError';
  /** Position in the query, in UTF-16 code units. */
  readonly offset: number;
  /** The unknown key, and a similar known key. */
  readonly instead: { readonly written: string; readonly meant: string } | undefined;

  constructor(message: string, offset: number, instead?: QueryError['instead']) {
    super(message);
    this.offset = offset;
    this.instead = instead;
  }
}

interface Piece {
  readonly offset: number;
  readonly isNot: boolean;
  readonly key: string | undefined;
  readonly value: string;
  readonly isQuoted: boolean;
  readonly isPrefix: boolean;
}

/**
 * One term: an optional `NOT`, `!` or `-`, an optional `key:`, quoted or plain text, and an optional `*`. Plain text
 * ends at the next space.
 */
const PIECE =
  /\s*(?<not>NOT\s+!?|!|-(?=[A-Za-z_]+:))?(?:(?<key>[A-Za-z_]+):)?(?:"(?<quoted>(?:[^"\\]|\\.)*)"(?<star>\*)?(?=\s|$)|(?<plain>[^\s"][^\s]*))/suy;

/**
 * Parses a query. The empty query matches all sessions.
 *
 * @param nowMs current time in milliseconds since the epoch, for relative times such as `7d`
 * @throws QueryError
 */
export function parseQuery(text: string, nowMs: number): Query {
  checkLength(text);
  const clauses: Term[][] = [];
  let joins = false;
  let terms = 0;
  const end = text.trimEnd().length;
  PIECE.lastIndex = 0;
  for (let at = 0; at < end; at = PIECE.lastIndex) {
    PIECE.lastIndex = at;
    const piece = readPiece(PIECE.exec(text.slice(0, end)), text, at);
    if (piece.value === 'OR' && isBare(piece)) {
      if (piece.isNot || clauses.length === 0 || joins)
        throw new QueryError('OR must be between two terms', piece.offset);
      joins = true;
      continue;
    }
    terms += 1;
    if (terms > MAX_TERMS) throw new QueryError(`a query has at most ${MAX_TERMS} terms`, piece.offset);
    const term = readTerm(piece, nowMs);
    const joined = joins ? clauses.at(-1) : undefined;
    if (joined !== undefined) {
      joined.push(term);
      checkJoined(joined, piece.offset);
    } else clauses.push([term]);
    joins = false;
  }
  if (joins) throw new QueryError('OR must be between two terms', end);
  // Also check the length of the printed query, because escapes can make it longer than the input.
  checkLength(printQuery({ clauses }));
  return { clauses };
}

function checkLength(text: string): void {
  if (text.length > MAX_QUERY)
    throw new QueryError(`a query is at most ${MAX_QUERY} characters long, written out`, MAX_QUERY);
}

/** Prints a query. Parsing the result gives the same query. */
export function printQuery({ clauses }: Query): string {
  return clauses.map((terms) => terms.map(printTerm).join(' OR ')).join(' ');
}

/** Returns true for a term that is looked up in the index; other terms are conditions. */
export function isWord(term: Term): boolean {
  return term.kind === 'text' || (term.kind === 'field' && !term.isPrefix);
}

/**
 * Returns true for a term about reviews. Tags that start with `tag:` belong to tailnet nodes. All other tags belong to
 * reviews.
 */
export function isReviewTerm({ field, value }: Term): boolean {
  return field === 'reviewed' || (field === 'tag' && !value.startsWith('tag:'));
}

/**
 * Returns true if the term excludes recordings. `reviewed:no` excludes reviewed recordings, and `NOT` reverses a term.
 */
export function isExcluded({ field, value, isNot }: Term): boolean {
  return field === 'reviewed' && value === 'no' ? !isNot : isNot;
}

/** Checks that `OR` joins words with words, or conditions with conditions. */
function checkJoined(terms: readonly Term[], offset: number): void {
  if (terms.every((term) => isWord(term) && !isExcluded(term))) return;
  if (terms.every((term) => !isWord(term) && !isReviewTerm(term))) return;
  throw new QueryError(
    'OR joins words and complete names (not excluded ones), or times, numbers and prefixes of names',
    offset,
  );
}

function isBare({ key, isQuoted, isPrefix }: Piece): boolean {
  return key === undefined && !isQuoted && !isPrefix;
}

function readPiece(match: RegExpExecArray | null, text: string, at: number): Piece {
  const offset = at + (/^\s*/.exec(text.slice(at))?.[0].length ?? 0);
  const { not, key, quoted, plain, star } = match?.groups ?? {};
  if (match === null) throw new QueryError(brokenPiece(text.slice(offset)), offset);
  const isNot = not !== undefined;
  if (quoted !== undefined) {
    const value = quoted.replaceAll(/\\(.)/gsu, '$1');
    return { offset, isNot, key, value, isQuoted: true, isPrefix: star !== undefined };
  }
  const value = plain ?? '';
  checkPlain(value, key, offset);
  if (key === undefined && /^[A-Za-z_]+:$/.test(value)) throw new QueryError(brokenPiece(value), offset);
  const isPrefix = value.endsWith('*');
  return { offset, isNot, key, value: isPrefix ? value.slice(0, -1) : value, isQuoted: false, isPrefix };
}

/** Rejects unquoted text that looks like an operator. @throws QueryError */
function checkPlain(value: string, key: string | undefined, offset: number): void {
  if (key === undefined && value === 'NOT') throw new QueryError('NOT must be before a term', offset);
  if (/^-+"/.test(value)) throw new QueryError('to exclude a phrase, write NOT before it', offset);
  if (!isBalanced(value))
    throw new QueryError(
      `parentheses do not group terms; to search for ${value}, write it in quotes`,
      offset,
    );
}

/** True if all parentheses are balanced. */
function isBalanced(value: string): boolean {
  let open = 0;
  for (const letter of value) {
    if (letter === '(') open += 1;
    else if (letter === ')' && (open -= 1) < 0) return false;
  }
  return open === 0;
}

function brokenPiece(rest: string): string {
  const [, key] = /^(?:NOT\s+|[-!])?([A-Za-z_]+):(?:\s|$)/.exec(rest) ?? [];
  if (key !== undefined) return `the key ${key}: needs a value directly after it`;
  return rest.includes('"')
    ? 'a quote is not closed, or something follows it without a space'
    : 'a term is empty';
}

function readTerm(piece: Piece, nowMs: number): Term {
  const { key, isNot, value, isPrefix, offset } = piece;
  if (key === undefined) return { isNot, ...textTerm('any', piece) };
  const name = findKey(key, piece);
  const isAny = isPrefix && FIELDS.some((field) => field === name);
  if (value === '' && !isAny) throw new QueryError(`the key ${key}: needs a value directly after it`, offset);
  if (name === 'cmd' || name === 'text') return { isNot, ...textTerm(name, piece) };
  if (name === 'before' || name === 'after') {
    const atMs = isPrefix ? undefined : readTime(value, nowMs);
    if (atMs === undefined)
      throw new QueryError(
        `the key ${key}: takes a date (2026-01-31), a time (2026-01-31T08:00:00Z) or an age (90m, 12h, 7d)`,
        offset,
      );
    return { isNot, kind: 'time', field: name, value, atMs };
  }
  if (name === 'duration' || name === 'exit' || name === 'hidden')
    return { isNot, ...compareTerm(name, piece) };
  return { isNot, ...fieldTerm(name, piece) };
}

function findKey(key: string, { offset, value }: Piece): (typeof KEYS)[number] {
  const lower = key.toLowerCase();
  const name = SYNONYMS.get(lower) ?? lower;
  const found = KEYS.find((known) => known === name);
  if (found !== undefined) return found;
  const near = [...KEYS, ...SYNONYMS.keys()].find(
    (known) => distance(known, lower) <= Math.max(1, Math.floor(known.length / 3)),
  );
  const hint = near === undefined ? `known are ${KEYS.join(', ')}` : `did you mean ${near}:?`;
  throw new QueryError(
    `there is no key ${key}: – ${hint} To look for it as text, write "${key}:${value}"`,
    offset,
    near === undefined ? undefined : { written: key, meant: near },
  );
}

function textTerm(field: TextTerm['field'], { value, isPrefix, offset }: Piece): TextTerm {
  const { tokens } = phraseOf(value, isPrefix);
  const last = tokens.at(-1);
  if (last === undefined)
    throw new QueryError(`there is no word in ${value === '' ? 'an empty term' : value}`, offset);
  if (tokens.length > MAX_PHRASE) throw new QueryError(`a phrase has at most ${MAX_PHRASE} words`, offset);
  if (isPrefix && last.length < MIN_PREFIX && !/[^\0-\x7f]/.test(last))
    throw new QueryError(`write at least ${MIN_PREFIX} characters before *`, offset);
  return { kind: 'text', field, value, isPrefix };
}

function fieldTerm(field: FieldTerm['field'], { value, isPrefix, isQuoted, offset }: Piece): FieldTerm {
  const choices = CHOICES.get(field);
  if (choices === undefined)
    return { kind: 'field', field, value, isPrefix: isPrefix || (!isQuoted && isPartialUser(field, value)) };
  const meant = value.toLowerCase();
  const isKnown = field === 'result' ? isRecordingResult(meant) : choices.includes(meant);
  if (isPrefix || !isKnown)
    throw new QueryError(
      field === 'result'
        ? `result: is ${RESULT_VALUES}; to compare exit codes, use exit:!=0`
        : `${field}: is one of ${choices.join(', ')}`,
      offset,
    );
  return { kind: 'field', field, value: meant, isPrefix };
}

/** True if `value` is a prefix of a user name: `user:alice` finds alice@example.com, `user:"alice"` only alice. */
function isPartialUser(field: string, value: string): boolean {
  return field === 'user' && !value.includes('@');
}

function compareTerm(field: CompareTerm['field'], { value, isPrefix, offset }: Piece): CompareTerm {
  const [, written = '', amount = ''] = /^(!=|<=|>=|<|>|=)?(.+)$/s.exec(value) ?? [];
  const operator: Operator = written === '' ? '=' : (OPERATORS.find((known) => known === written) ?? '=');
  const number = field === 'duration' ? readDuration(amount) : readInteger(amount);
  if (number === undefined || isPrefix) {
    throw new QueryError(`the key ${field}: takes ${EXAMPLES[field]}`, offset);
  }
  return { kind: 'compare', field, operator, value: amount, number };
}

const EXAMPLES = {
  duration: 'a time: duration:>1h, duration:<=90s',
  exit: 'a code: exit:0, exit:!=0',
  hidden: 'a number of characters: hidden:>0, hidden:>=1000',
} as const;
const OPERATORS: readonly Operator[] = ['=', '!=', '<', '<=', '>', '>='];
const UNITS: ReadonlyMap<string, number> = new Map([
  ['s', 1],
  ['m', 60],
  ['h', 3600],
  ['d', 86_400],
  ['w', 604_800],
]);

function readInteger(text: string): number | undefined {
  return /^-?\d{1,10}$/.test(text) ? Number(text) : undefined;
}

function readDuration(text: string): number | undefined {
  const [, amount, unit = 's'] = /^(\d{1,9}(?:\.\d{1,3})?)([smhdw])?$/.exec(text) ?? [];
  return amount === undefined ? undefined : Number(amount) * (UNITS.get(unit) ?? 1);
}

/** Parses a date (UTC), a time, or an age (`90m`, `7d`) into milliseconds since the epoch; undefined if invalid. */
export function readTime(text: string, nowMs: number): number | undefined {
  if (/^\d{1,5}[smhdw]$/.test(text)) return nowMs - (readDuration(text) ?? 0) * 1000;
  if (!/^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/.test(text))
    return undefined;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? undefined : atMs;
}

function printTerm(term: Term): string {
  const not = term.isNot ? (term.field === 'any' ? 'NOT ' : '-') : '';
  if (term.kind === 'time') return `${not}${term.field}:${term.value}`;
  if (term.kind === 'compare')
    return `${not}${term.field}:${term.operator === '=' ? '' : term.operator}${term.value}`;
  const key = term.field === 'any' ? '' : `${term.field}:`;
  const isExact = !term.isPrefix && isPartialUser(term.field, term.value);
  return `${not}${key}${printValue(term.value, key === '', isExact)}${term.isPrefix ? '*' : ''}`;
}

function printValue(value: string, isBareWord: boolean, isExact: boolean): string {
  const isPlain = !isExact && /^[^\s"*][^\s"]*$/u.test(value) && !value.endsWith('*') && isBalanced(value);
  const isOperator = isBareWord && (/^(?:OR|NOT)$/.test(value) || /^(?:!|-?[A-Za-z_]+:)/.test(value));
  return isPlain && !isOperator ? value : `"${value.replaceAll(/["\\]/g, '\\$&')}"`;
}

/** Returns the edit distance of two short words. */
function distance(left: string, right: string): number {
  if (Math.abs(left.length - right.length) > 3) return Infinity;
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (const [index, letter] of Array.from(left).entries()) {
    const next = [index + 1];
    for (let column = 1; column <= right.length; column += 1) {
      const change = (row[column - 1] ?? 0) + (right[column - 1] === letter ? 0 : 1);
      next.push(Math.min(change, (row[column] ?? 0) + 1, (next[column - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? Infinity;
}
