/** Extracts the prose of the repository: pages, comments, and text that the program shows to people. */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'vite';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** One paragraph, comment or string. */
export interface Prose {
  readonly kind: 'docs' | 'heading' | 'comment' | 'text';
  readonly file: string;
  /** Number of the first line of the prose, starting at 1. */
  readonly line: number;
  readonly text: string;
}

/** Folders with sources and pages. `SKIPPED` matches files in them that are not checked. */
const FOLDERS = ['bench', 'demo', 'deploy', 'docs', 'fuzz', 'scripts', 'src', 'test'];
const SKIPPED =
  /(?:^|\/)(?:node_modules|dist|fixtures|corpus|results|images)(?:\/|$)|\.d\.m?ts$|-module\.ts$|^bench\/(?:load-)?results\.md$/;
/**
 * Files that are skipped because they quote text: the guide and its rules quote patterns, and the demonstrations quote
 * names of tests.
 */
const QUOTING =
  /^(?:docs\/writing\.md|test\/mutants\/demonstrations\.md|scripts\/style-rules\.ts|test\/scripts\/style\.test\.ts)$/;
/** Comments for tools. */
const DIRECTIVE = /^\s*(?:oxlint-|oxfmt-|@ts-|@vitest-)/;
/** Minimum number of words of a string that people read. */
const MIN_WORDS = 4;

/** Returns the paths of all pages and sources below the root. */
export function listFiles(): readonly string[] {
  const top = readdirSync(ROOT).filter((name) => name.endsWith('.md'));
  return [...top, ...FOLDERS.flatMap(filesBelow)].filter(
    (file) => !SKIPPED.test(file) && !QUOTING.test(file),
  );
}

function filesBelow(folder: string): readonly string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true }).flatMap((entry) => {
    const path = join(entry.parentPath, entry.name).slice(ROOT.length);
    return entry.isFile() && /\.(?:md|ts|tsx|mjs|ya?ml)$/.test(entry.name) ? [path] : [];
  });
}

/** Returns the text of a file of the repository. */
export function readSource(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

/** Returns the prose of a file. */
export function proseOf(file: string, source: string): readonly Prose[] {
  if (file.endsWith('.md')) return pageProse(file, source);
  if (/\.ya?ml$/.test(file)) return yamlProse(file, source);
  return sourceProse(file, source);
}

function pageProse(file: string, source: string): readonly Prose[] {
  const found: Prose[] = [];
  let isCode = false;
  let isHeading = false;
  let start = 0;
  let paragraph: string[] = [];
  const flush = (): void => {
    const kind = isHeading ? 'heading' : 'docs';
    if (paragraph.length > 0) found.push({ kind, file, line: start, text: paragraph.join(' ') });
    paragraph = [];
  };
  for (const [index, line] of source.split('\n').entries()) {
    if (/^ *```/.test(line)) isCode = !isCode;
    const isEnd = isCode || /^ *```|^\s*$|^#|^ *[|]|^<!--/.test(line);
    const isItem = /^ *(?:[-*]|\d+\.) /.test(line);
    if (isEnd || isItem) flush();
    if (isCode || /^ *```|^\s*$|^<!--|^ *\|[-| :]+\|$/.test(line)) continue;
    if (/^ *\|/.test(line)) {
      for (const cell of cellsOf(line))
        if (cell !== '') found.push({ kind: 'docs', file, line: index + 1, text: cell });
      continue;
    }
    if (paragraph.length === 0) start = index + 1;
    isHeading = line.startsWith('#');
    paragraph.push(line.trim().replace(/^(?:#+|[-*]|\d+\.) +/, ''));
    if (isHeading) flush();
  }
  flush();
  return found;
}

/** Returns the cells of a row of a markdown table. */
export function cellsOf(row: string): readonly string[] {
  return row
    .trim()
    .replace(/^\||\|$/g, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim());
}

/** Comments on adjacent lines with equal indentation are joined. */
function yamlProse(file: string, source: string): readonly Prose[] {
  const comments: { readonly start: number; value: string }[] = [];
  let indentation: string | undefined;
  for (const [index, line] of source.split('\n').entries()) {
    const [, before = '', value] = /^(|.*\s)#+((?: .*)?)$/.exec(line) ?? [];
    if (value !== undefined && before === indentation) comments.at(-1)!.value += `\n${value}`;
    else if (value !== undefined) comments.push({ start: index + 1, value });
    indentation = value !== undefined && before.trim() === '' ? before : undefined;
  }
  return comments.flatMap(({ start, value }) =>
    paragraphsOf(value).map(({ text, offset }) => ({
      kind: 'comment' as const,
      file,
      line: start + offset,
      text,
    })),
  );
}

function sourceProse(file: string, source: string): readonly Prose[] {
  const { comments } = parseSync(file, source);
  const lineAt = lineCounter(source);
  const found: Prose[] = [];
  let code = source;
  for (const { start, end } of comments)
    code = code.slice(0, start) + source.slice(start, end).replaceAll(/[^\n]/g, ' ') + code.slice(end);
  const readable = comments.filter(({ value }) => !DIRECTIVE.test(value));
  for (const { start, value } of joinLineComments(readable, source)) {
    for (const { text, offset } of paragraphsOf(value))
      found.push({ kind: 'comment', file, line: lineAt(start) + offset, text });
  }
  if (!/^(?:demo|src|scripts)\//.test(file)) return found;
  for (const match of code.matchAll(/'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`/g)) {
    const text = match[1] ?? match[2] ?? match[3] ?? '';
    if (text.split(/\s+/).filter((word) => /^[a-z]{2,}/i.test(word)).length < MIN_WORDS) continue;
    found.push({
      kind: 'text',
      file,
      line: lineAt(match.index),
      text: text.replaceAll(/\$\{[^}]*\}/g, 'X'),
    });
  }
  return found;
}

interface Comment {
  readonly type: 'Line' | 'Block';
  readonly start: number;
  readonly end: number;
  readonly value: string;
}

/** Returns the comments. `//` comments on adjacent lines are joined. */
function joinLineComments(comments: readonly Comment[], source: string): readonly Comment[] {
  const joined: Comment[] = [];
  for (const comment of comments) {
    const last = joined.at(-1);
    const isNext =
      last?.type === 'Line' &&
      comment.type === 'Line' &&
      /^\n[ \t]*$/.test(source.slice(last.end, comment.start));
    if (isNext)
      joined[joined.length - 1] = { ...last, end: comment.end, value: `${last.value}\n${comment.value}` };
    else joined.push(comment);
  }
  return joined;
}

/**
 * Returns the paragraphs of a comment. Markers of comments and lists, code blocks and indented lines of usage are
 * omitted.
 */
function paragraphsOf(comment: string): readonly { readonly text: string; readonly offset: number }[] {
  const found: { text: string; offset: number }[] = [];
  let isCode = false;
  let isOpen = false;
  for (const [offset, raw] of comment.split('\n').entries()) {
    const body = raw.replace(/^\s*\*+/, '');
    const line = body.trim();
    if (line.startsWith('```')) isCode = !isCode;
    const isUsage = !isOpen && /^ {2,}(?!(?:[-*]|\d+\.) | )/.test(body);
    if (isCode || isUsage || line.startsWith('```') || line === '') {
      isOpen = false;
      continue;
    }
    if (isOpen && !/^(?:@|[-*] |\d+\. )/.test(line)) found.at(-1)!.text += ` ${line}`;
    else found.push({ text: line.replace(/^(?:[-*]|\d+\.) +/, ''), offset });
    isOpen = true;
  }
  return found;
}

/** Returns a text without code spans, link targets and tags. */
export function withoutCode(text: string): string {
  return text
    .replaceAll(/`[^`]*`/g, 'X')
    .replaceAll(/\]\([^)]*\)/g, ']')
    .replaceAll(/@(?:throws|param|returns)(?: \{[^}]*\})?(?: \w+)?/g, '')
    .trim();
}

/** Returns a function that converts an offset to a line number, starting at 1. */
function lineCounter(source: string): (offset: number) => number {
  const starts = [0];
  for (let at = source.indexOf('\n'); at !== -1; at = source.indexOf('\n', at + 1)) starts.push(at + 1);
  return (offset) => {
    let low = 0;
    let high = starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (starts[middle]! <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
}
