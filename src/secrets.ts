/**
 * Removes probable secrets from text for an index, a list, an event or an alert. The rules recognise typical
 * forms of secrets, so they miss passwords in prose. The recording itself is never changed. Pure.
 */

import { BETWEEN_WORDS, SECRET_RULES, type SecretRule } from './secret-rules.ts';

/** Replacement of a secret. */
export const SECRET = '[secret]';

/** A word of a rule. */
interface Trigger {
  readonly word: string;
  /** Index of the rule. */
  readonly rule: number;
}
/**
 * Lookup table of the words of all rules by their first three characters. The index consists of the last five bits of
 * each character.
 */
const TRIGGERS: (Trigger[] | undefined)[] = Array.from({ length: 0x8000 }, () => undefined);
for (const [rule, { words }] of SECRET_RULES.entries())
  for (const word of words) {
    const bits = lastBits(word.slice(0, 3));
    // any character can precede a word of two characters
    const indexes =
      word.length > 2 ? [bits] : Array.from({ length: 32 }, (_, before) => (before << 10) | bits);
    for (const index of indexes) (TRIGGERS[index] ??= []).push({ word, rule });
  }
const PEM_BEGIN = /-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----|^Private-Lines: \d/;
const PEM_END = /-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----|^Private-MAC: /;
/**
 * A PEM key in a word of a command. The match ends at the first text that cannot be part of a key, because another
 * command may follow.
 */
const PEM_KEY = new RegExp(
  [
    `(?:${PEM_BEGIN.source})`,
    String.raw`(?:\s+|\\{1,4}[nr]|[A-Za-z0-9+/=]{16,}|(?:Version|Comment|Proc-Type|DEK-Info): [\w ,.-]*)*`,
    String.raw`(?:[A-Za-z0-9+/=]{0,15}(?:\s|\\{1,4}[nr]){0,4}(?:${PEM_END.source})\w*)?`,
  ].join(''),
  'gm',
);
/** The start of a value that a shell replaces with the output of a command. */
const COMMAND_OUTPUT = /^["']?(?:\$\(|`)/;
/** A secret that was already replaced. */
const REPLACED = /^["']?\[secret\]["']?$/;
/** A reference to one variable. */
const VARIABLE = /^["']?\$(?:\w+|\{\w+\})["']?$/;
/** Text that may run a command: a shell may split the text, or an interpreter may call a function in it. */
const MAY_BE_COMMAND = /[\s;|&`$(]/;
/** Programs that run their arguments or parts of their arguments as commands. */
const INTERPRETER = new RegExp(
  [
    String.raw`(?:^|\/)(?:(?:[akrsz]|ba|c|da|fi|mk|nu|o|pdk|pw|tc|tcl|x?on|ya)?sh|busybox|toybox|python|pypy|perl|ruby`,
    'node(?:js)?|deno|bun|php|lua|luajit|[gmn]?awk|env|xargs|exec|nohup|nice|timeout|setsid|flock|chroot|nsenter',
    String.raw`unshare|setpriv|stdbuf|strace|sudo|su|runuser|doas|socat|find|parallel|make|script|expect|java|Rscript|powershell)[\d.]*(?:[:@][^/]*)?$`,
  ].join('|'),
);
/** A word that a shell passes to a program without a change. */
const PLAIN_WORD = /^[\w./:@%,+=-]+$/;
/** zsh and ksh are absent, because they have more commands that run their arguments, such as `repeat`. */
const SHELL = /(?:^|\/)(?:a|ba|da)?sh$/;
/** The option of a shell before a script, which may follow options without a value. */
const SCRIPT_OPTION = /^-[elux]{0,4}c$/;
/** An assignment of a shell, or a command of a shell that can run its arguments as a command. */
const RUNS_ARGUMENTS = /=|^(?:\.|builtin|command|coproc|eval|source|time|trap)$/;
/**
 * A command of Java, up to the main class or the archive.
 */
const JAVA_PROGRAM = new RegExp(
  [
    String.raw`^(?:[\w./-]*\/)?java `,
    String.raw`(?:-X[\w:+.-]+(?:=[\w./%-]+)? |-D[\w.-]+=[^ =]* |-javaagent:[\w./-]+ |`,
    String.raw`--add-[a-z]+[ =](?!-)[\w./=,-]+ |(?:-cp|-classpath|--class-path) (?!-)[^ =]+ )*(?:-jar )?(?![-@])[^ =]+(?: |$)`,
  ].join(''),
);
/** An option with which an interpreter that runs on the JVM runs its arguments. */
const EVALUATES = /^--?(?:[cer]|code|eval|exec|execute|script)$/i;
const PEM_LINE = /^(?:[\sA-Za-z0-9+/=]{16,}|\s*|(?:Version|Comment|Proc-Type|DEK-Info): .*|=[\w+/]{4}\s*)$/;
/** Maximum number of lines in a PEM key. A longer block does not count as a key. */
const MAX_PEM_LINES = 200;

/**
 * Returns a function that replaces secrets in consecutive lines. The function keeps state between lines,
 * because a PEM key has several lines.
 */
export function createSecretFilter(): (line: string) => string {
  let keyLines = 0;
  return (line) => {
    if (keyLines > 0) {
      const isOver = PEM_END.test(line);
      keyLines = isOver || !PEM_LINE.test(line) || keyLines >= MAX_PEM_LINES ? 0 : keyLines + 1;
      if (isOver || keyLines > 0) return SECRET;
    }
    const begin = PEM_BEGIN.exec(line);
    if (begin !== null) {
      if (!PEM_END.test(line)) keyLines = 1;
      return `${line.slice(0, begin.index)}${SECRET}`;
    }
    return replaceSecrets(line);
  };
}

function lastBits(text: string): number {
  let bits = 0;
  for (let at = 0; at < text.length; at += 1) bits = ((bits << 5) | (text.charCodeAt(at) & 31)) & 0x7fff;
  return bits;
}

/**
 * Returns the rules that have a word in the line, in order. Reads the line once for all rules.
 */
function rulesFor(line: string): readonly SecretRule[] {
  let found: boolean[] | undefined;
  let bits = 0;
  for (let at = 0; at < line.length; at += 1) {
    bits = ((bits << 5) | (line.charCodeAt(at) & 31)) & 0x7fff;
    const triggers = TRIGGERS[bits];
    if (triggers === undefined) continue;
    for (const { word, rule } of triggers) {
      if (found?.[rule] === true || !startsWith(line, at + 1 - Math.min(3, word.length), word)) continue;
      found ??= [];
      found[rule] = true;
    }
  }
  return found === undefined ? NO_RULES : SECRET_RULES.filter((_, rule) => found[rule] === true);
}

const NO_RULES: readonly SecretRule[] = [];

/** Returns true if the text at `start` is `word`, which is in lower case. Ignores the case of ASCII letters. */
function startsWith(text: string, start: number, word: string): boolean {
  for (let at = 0; at < word.length; at += 1) {
    const code = text.charCodeAt(start + at);
    if ((code >= 0x41 && code <= 0x5a ? code | 0x20 : code) !== word.charCodeAt(at)) return false;
  }
  return true;
}

/**
 * Returns true if the word names a program, or an image with a program, that runs its arguments as commands.
 * @throws TooManySecretsError
 */
function isInterpreter(word: string, work?: SecretWork): boolean {
  spend(work, word.length);
  return !word.startsWith('-') && INTERPRETER.test(word);
}

/**
 * Returns true if a program in the words can run another word as a command. Two kinds of commands with only plain words
 * run no other word: a shell script that is one simple command, and a Java program that evaluates no option.
 * @throws TooManySecretsError
 */
export function canRunWords(words: readonly string[], work?: SecretWork): boolean {
  const [shell = '', option = '', script = ''] = words;
  if (words.length === 3 && SHELL.test(shell) && SCRIPT_OPTION.test(option)) {
    spend(work, script.length);
    const run = script.split(' ');
    if (run.every((word) => PLAIN_WORD.test(word)) && !RUNS_ARGUMENTS.test(run[0] ?? ''))
      return canRunWords(run, work);
  }
  const first = words.findIndex((word) => isInterpreter(word, work));
  if (first < 0) return false;
  const program = words.slice(first);
  const isPlain = words.every((word) => PLAIN_WORD.test(word) && !EVALUATES.test(word));
  const runsWord = program.some((word, at) => at > 0 && isInterpreter(word, work));
  const [java] = JAVA_PROGRAM.exec(program.join(' ')) ?? [];
  return !isPlain || runsWord || java === undefined || hidesCode(java.trim(), work);
}

/** Returns true if an event hides a word of the command other than the value of a property. */
function hidesCode(java: string, work: SecretWork | undefined): boolean {
  const words = java.split(' ');
  // a shell gets the words as one word
  const shown = [showWords(words, work, true).words, replaceLine(java, () => true, work).split(' ')];
  return words.some((word, at) => !/^-D[\w.-]+=/.test(word) && shown.some((each) => each[at] !== word));
}

/** Returns true if the text may contain a command. @param isInterpreted true if an interpreter can read the text */
export function mayBeCommand(text: string, isInterpreted: boolean): boolean {
  if (VARIABLE.test(text) || REPLACED.test(text)) return false;
  return isInterpreted || MAY_BE_COMMAND.test(text) || isInterpreter(text);
}

/** Limit of the work on the texts of one request. A unit takes up to 5 ns. */
export interface SecretWork {
  left: number;
}

/** Returns the limit of the work on one request. The work takes about 20 ms. */
export function createSecretWork(): SecretWork {
  return { left: 4e6 };
}

/** Thrown if the texts of one request need more work than {@link SecretWork} allows. */
export class TooManySecretsError extends Error {}

/** Units of work for each text, for each rule on a text, and for each match, in addition to one unit per character. */
const CALL_UNITS = 150;

/** @throws TooManySecretsError if fewer units are left */
export function spend(work: SecretWork | undefined, units: number): void {
  if (work === undefined) return;
  work.left -= units;
  if (work.left < 0) throw new TooManySecretsError('too many words that may be secrets');
}

/** Called with a probable secret. Returns true if the secret must be replaced. */
type IsHidden = (secret: string) => boolean;

/**
 * Replaces the secrets in a command, which is given as a list of words. A password may be a separate word after its
 * option.
 */
export function replaceSecretWords(words: readonly string[], work?: SecretWork): readonly string[] {
  return showWords(words, work).words;
}

/**
 * Replaces the secrets of a command as `replaceSecretWords` does.
 * @param isInterpreted true if the command runs an interpreter, which can run any text as a command
 * @returns the words, and true if a replaced text may contain a command
 * @throws TooManySecretsError
 */
export function showWords(
  words: readonly string[],
  work?: SecretWork,
  isInterpreted = canRunWords(words, work),
): { words: readonly string[]; hidesCommand: boolean } {
  // a word that contains `[secret]` looks like a replaced word in the event
  let hidesCommand = isInterpreted && words.some((word) => word.includes(SECRET));
  const isHidden: IsHidden = (text) => {
    spend(work, CALL_UNITS);
    if (COMMAND_OUTPUT.test(text)) return false;
    hidesCommand ||= mayBeCommand(text, isInterpreted);
    return true;
  };
  const shown = words.map((word) => {
    spend(work, CALL_UNITS + word.length);
    return word
      .replaceAll(BETWEEN_WORDS, ' ')
      .replace(PEM_KEY, (key) => (isHidden(key) ? SECRET : key))
      .split('\n')
      .map((line) => replaceLine(line, isHidden, work))
      .join('\n');
  });
  // add a separator before the first word too, because rules about options match only after a separator
  const line = replaceLine(BETWEEN_WORDS + shown.join(BETWEEN_WORDS), isHidden, work);
  const replaced = line.split(BETWEEN_WORDS).slice(1);
  return replaced.length === words.length || words.length === 0
    ? { words: replaced.slice(0, words.length), hidesCommand }
    : { words: words.map(() => SECRET), hidesCommand: true };
}

/** Replaces the secrets of one line. @throws TooManySecretsError */
export function replaceSecrets(line: string, work?: SecretWork): string {
  const isHidden: IsHidden = () => {
    spend(work, CALL_UNITS);
    return true;
  };
  return replaceLine(line, isHidden, work);
}

function replaceLine(line: string, isHidden: IsHidden, work: SecretWork | undefined): string {
  spend(work, CALL_UNITS + line.length);
  let text = line;
  for (const rule of rulesFor(line)) {
    spend(work, CALL_UNITS + text.length);
    text = replaceShape(text, rule, isHidden);
  }
  return text;
}

/**
 * Replaces the matches of one rule.
 *
 * NOTE: Recorded programs choose the text. Text after an option may contain the same option many times. The command is
 * therefore checked before the secret is read. Otherwise, the rest of a word would be read again for each option
 * without a command.
 */
function replaceShape(text: string, { shape: secret, after }: SecretRule, isHidden: IsHidden): string {
  const begin = after?.option ?? secret;
  let replaced = '';
  let end = 0;
  /** Start of the text that has not been searched for the command yet. */
  let from = 0;
  let isOfCommand = after === undefined;
  begin.lastIndex = 0;
  for (let match = begin.exec(text); match !== null; match = begin.exec(text)) {
    const { index } = match;
    if (after !== undefined) {
      const before = text.slice(from, index);
      const separator = lastSeparator(before);
      from = index;
      isOfCommand = after.command.test(before.slice(separator + 1)) || (isOfCommand && separator < 0);
      secret.lastIndex = index;
      const complete = isOfCommand ? secret.exec(text) : null;
      if (complete === null) {
        begin.lastIndex = index + 1;
        continue;
      }
      match = complete;
    }
    const keep = match.groups?.['keep'] ?? '';
    begin.lastIndex = index + match[0].length;
    if (!isHidden(match[0].slice(keep.length))) continue;
    replaced += `${text.slice(end, index)}${keep}${SECRET}`;
    end = begin.lastIndex;
  }
  return end === 0 ? text : replaced + text.slice(end);
}

/** Returns the position of the last separator of commands; -1 if there is none. */
function lastSeparator(text: string): number {
  return Math.max(text.lastIndexOf('|'), text.lastIndexOf(';'), text.lastIndexOf('&'));
}
