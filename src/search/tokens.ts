/**
 * Words, as every search engine of ours gets them: so all of them find the same. Letters, digits, marks and `_` make a
 * word; it is compared in NFKC and lower case, by its first {@link MAX_TOKEN} characters. Scripts that are written without
 * spaces become pairs of characters. Pure.
 */

export interface Token {
  readonly text: string;
  /** Where it stands: UTF-16 offsets. */
  readonly start: number;
  readonly end: number;
}

/** Longest word, in UTF-16 code units. */
const MAX_TOKEN = 64;
const RUN = /[\p{L}\p{N}\p{M}_]+/gu;
const PAIRED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]+|[^\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]+/gu;
const IS_PAIRED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Thai}]/u;
const NOT_ASCII = /[^\0-\x7f]/;
const LONG_WORD = /\w{65,}/g;

/** The words of a text, in order. For indexing: the last character of a run of pairs is a word as well. */
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
  // a single character may become several words: ½ is 1⁄2
  for (const [word] of part.normalize('NFKC').toLowerCase().matchAll(RUN))
    tokens.push({ text: word.slice(0, MAX_TOKEN).toWellFormed(), start, end: start + part.length });
}

function fold(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

/** The words of a text with spaces between them: what an engine is given that splits ASCII at what is no word. */
export function indexText(text: string): string {
  const kind = kindOf(text);
  if (kind === 'plain') return text;
  if (kind === 'ascii') return text.replace(LONG_WORD, (word) => word.slice(0, MAX_TOKEN));
  return tokenize(text)
    .map((token) => token.text)
    .join(' ');
}

/** What the words of commands begin with, and no other word can: to look for a command reads what is in commands alone. */
const IN_COMMAND = '§';

/** The same of a command: see {@link commandWord}. */
export function indexCommand(text: string): string {
  return tokenize(text)
    .map((token) => commandWord(token.text))
    .join(' ');
}

/** A word, as it stands in the index for a word of a command. */
export function commandWord(word: string): string {
  return `${IN_COMMAND}${word}`;
}

/** Of ASCII characters: whether they are one of a word. */
const IN_WORD = Uint8Array.from({ length: 0x80 }, (_, code) =>
  /\w/.test(String.fromCharCode(code)) ? 1 : 0,
);

/** `plain`: words of ASCII, none of them too long. One look at each character: nearly all text is that. */
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

/** What a phrase of a query looks for. */
export interface TokenPhrase {
  readonly tokens: readonly string[];
  /** The last word may go on. */
  readonly isPrefix: boolean;
}

/** The words of a phrase of a query; empty when there is none in it. */
export function phraseOf(text: string, isPrefix: boolean): TokenPhrase {
  const found = tokenize(text);
  const last = found.at(-1);
  const before = found.at(-2);
  if (last === undefined || !IS_PAIRED.test(last.text))
    return { tokens: found.map((token) => token.text), isPrefix };
  // 日本 is one pair; the single last character is only there for those who look for it alone
  const followsPair = before !== undefined && before.end === last.end && IS_PAIRED.test(before.text);
  const tokens = (followsPair ? found.slice(0, -1) : found).map((token) => token.text);
  return { tokens, isPrefix: isPrefix || !followsPair };
}

/** Where in `tokens` the phrase stands: the offsets of the text that it covers. */
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
