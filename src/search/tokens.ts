/**
 * Splits text into words, in the same way for all search engines. A word consists of letters, digits, marks and `_`.
 * Words are equal if their first {@link MAX_TOKEN} characters are equal, in NFKC and lower case. Text in writing
 * systems without spaces, such as Chinese, is split into pairs of characters. Pure.
 */

export interface Token {
  readonly text: string;
  /** Position in the text, in UTF-16 code units. */
  readonly start: number;
  readonly end: number;
}

/** Maximum length of a word, in UTF-16 code units. */
const MAX_TOKEN = 64;
const RUN = /[\p{L}\p{N}\p{M}_]+/gu;
const PAIRED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]+|[^\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]+/gu;
const IS_PAIRED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u;
const NOT_ASCII = /[^\0-\x7f]/;
const LONG_WORD = /\w{65,}/g;

/**
 * Returns the words of a text, in order. In text that is split into pairs of characters, the last character of each run
 * of such text is also a separate word.
 */
export function tokenize(text: string): readonly Token[] {
  const tokens: Token[] = [];
  for (const { 0: run, index } of text.matchAll(RUN)) {
    if (!NOT_ASCII.test(run)) {
      tokens.push({ text: run.slice(0, MAX_TOKEN).toLowerCase(), start: index, end: index + run.length });
      continue;
    }
    for (const { 0: part, index: at } of run.matchAll(PAIRED)) addPart(tokens, part, index + at);
  }
  return tokens;
}

function addPart(tokens: Token[], part: string, start: number): void {
  if (IS_PAIRED.test(part)) {
    const characters = Array.from(part);
    let at = start;
    for (const [index, character] of characters.entries()) {
      const pair = character + (characters[index + 1] ?? '');
      tokens.push({ text: fold(pair), start: at, end: at + pair.length });
      at += character.length;
    }
    return;
  }
  // NFKC may split one character into several words: ½ is 1⁄2.
  for (const [word] of part.normalize('NFKC').toLowerCase().matchAll(RUN))
    tokens.push({ text: word.slice(0, MAX_TOKEN).toWellFormed(), start, end: start + part.length });
}

function fold(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

/** Returns the words of a text, separated by spaces, for engines that split ASCII text themselves. */
export function indexText(text: string): string {
  const kind = kindOf(text);
  if (kind === 'plain') return text;
  if (kind === 'ascii') return text.replace(LONG_WORD, (word) => word.slice(0, MAX_TOKEN));
  return tokenize(text)
    .map((token) => token.text)
    .join(' ');
}

/**
 * Prefix of words from commands. No other word starts with this prefix, so a search in commands finds no other text.
 */
const IN_COMMAND = '§';

/** Returns the words of a command, separated by spaces; see {@link commandWord}. */
export function indexCommand(text: string): string {
  return tokenize(text)
    .map((token) => commandWord(token.text))
    .join(' ');
}

/** Returns the index entry for a word of a command. */
export function commandWord(word: string): string {
  return `${IN_COMMAND}${word}`;
}

/** Lookup table of ASCII characters: 1 if the character is part of a word. */
const IN_WORD = Uint8Array.from({ length: 0x80 }, (_, code) =>
  /\w/.test(String.fromCharCode(code)) ? 1 : 0,
);

/** Classifies text. Nearly all text is `plain`: ASCII with words of normal length. */
function kindOf(text: string): 'plain' | 'ascii' | 'other' {
  let run = 0;
  let longest = 0;
  for (let at = 0; at < text.length; at += 1) {
    const inWord = IN_WORD[text.charCodeAt(at)];
    if (inWord === undefined) return 'other';
    run = inWord === 1 ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest > MAX_TOKEN ? 'ascii' : 'plain';
}

/** The words of a phrase. */
export interface TokenPhrase {
  readonly tokens: readonly string[];
  /** True if the last word is a prefix. */
  readonly isPrefix: boolean;
}

/** Returns the words of a phrase of a query; empty if it has none. */
export function phraseOf(text: string, isPrefix: boolean): TokenPhrase {
  const found = tokenize(text);
  const last = found.at(-1);
  const before = found.at(-2);
  if (last === undefined || !IS_PAIRED.test(last.text))
    return { tokens: found.map((token) => token.text), isPrefix };
  // The words of 日本 are the pair 日本 and the single character 本. Leave out the single character, because the pair is
  // sufficient for a search.
  const followsPair = before !== undefined && before.end === last.end && IS_PAIRED.test(before.text);
  const tokens = (followsPair ? found.slice(0, -1) : found).map((token) => token.text);
  return { tokens, isPrefix: isPrefix || !followsPair };
}

/** Returns the positions at which the phrase occurs. */
export function findPhrase(
  tokens: readonly Token[],
  phrase: TokenPhrase,
): readonly (readonly [number, number])[] {
  const { tokens: wanted, isPrefix } = phrase;
  const found: (readonly [number, number])[] = [];
  if (wanted.length === 0) return found;
  for (let at = 0; at + wanted.length <= tokens.length; at += 1) {
    const fits = wanted.every((word, index) => {
      const text = tokens[at + index]?.text ?? '';
      return isPrefix && index === wanted.length - 1 ? text.startsWith(word) : text === word;
    });
    const first = tokens[at];
    const last = tokens[at + wanted.length - 1];
    if (fits && first !== undefined && last !== undefined) found.push([first.start, last.end]);
  }
  return found;
}
