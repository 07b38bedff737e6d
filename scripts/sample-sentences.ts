/**
 * Prints random sentences of pages and comments, numbered, for a review of their clarity (docs/writing.md).
 *
 *   npm run docs:sample                        110 sentences of pages and 90 of comments, with a random seed
 *   npm run docs:sample -- --seed 1            the same sentences for the same files
 *   npm run docs:sample -- --docs 10 --comments 20
 *   npm run docs:sample -- --context           also prints the sentence before, and the code below a comment
 */
import { parseArgs } from 'node:util';
import { listFiles, proseOf, readSource, type Prose } from './prose.ts';

/** Minimum number of words of a sampled sentence. */
const MIN_WORDS = 4;

/** Returns the sentences of a text. A full stop in a code span or in "e.g." does not end a sentence. */
export function sentencesOf(text: string): readonly string[] {
  const spans: string[] = [];
  const hidden = text.replaceAll(/`[^`]*`/g, (span) => `\ue000${spans.push(span) - 1}\ue000`);
  return hidden
    .split(/(?<=[.!?])(?<!\be\.g\.)\s+(?=[A-Z\ue000"(])/)
    .map((sentence) =>
      sentence.replaceAll(/\ue000(\d+)\ue000/g, (_, index: string) => spans[Number(index)] ?? ''),
    )
    .filter((sentence) => sentence.split(/\s+/).length >= MIN_WORDS);
}

/** Returns a generator of numbers from 0 to 1 (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Returns `count` different items in random order, or all items if there are fewer. */
export function sample<T>(items: readonly T[], count: number, random: () => number): readonly T[] {
  const rest = [...items];
  return Array.from({ length: Math.min(count, rest.length) }, () => {
    const at = Math.floor(random() * rest.length);
    const [chosen] = rest.splice(at, 1);
    return chosen!;
  });
}

/** Returns the first line of code below a comment that contains the given line; undefined at the end of the file. */
export function codeBelow(source: string, line: number): string | undefined {
  const below = source.split('\n').slice(line);
  return below.find((text) => text.trim() !== '' && !/^\s*(?:\*|\/[/*]|# )/.test(text))?.trim();
}

function main(): void {
  // `head` closes the pipe before all sentences are written.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error;
  });
  const { values } = parseArgs({
    options: {
      seed: { type: 'string' },
      docs: { type: 'string', default: '110' },
      comments: { type: 'string', default: '90' },
      context: { type: 'boolean', default: false },
    },
  });
  const seed = Number(values.seed ?? Math.floor(Math.random() * 1e6));
  const random = createRandom(seed);
  const all = listFiles().flatMap((file) => proseOf(file, readSource(file)));
  const chosen = (['docs', 'comment'] as const).flatMap((kind) => {
    const sentences = all
      .filter((prose: Prose) => prose.kind === kind)
      .flatMap((prose) => {
        const sentences = sentencesOf(prose.text);
        return sentences.map((sentence, at) => ({ ...prose, sentence, before: sentences[at - 1] }));
      });
    return sample(sentences, Number(kind === 'docs' ? values.docs : values.comments), random);
  });
  process.stdout.write(`seed ${seed}\n`);
  for (const [index, { file, line, kind, sentence, before }] of chosen.entries()) {
    process.stdout.write(`${index + 1}. ${file}:${line} ${sentence}\n`);
    if (!values.context) continue;
    if (before !== undefined) process.stdout.write(`   sentence before: ${before}\n`);
    const code = kind === 'comment' ? codeBelow(readSource(file), line) : undefined;
    if (code !== undefined) process.stdout.write(`   code below: ${code}\n`);
  }
}

if (import.meta.main) main();
