/**
 * Writes src/terminal/code-points.ts: the code points that have no width in a terminal, and those that are part of
 * emoji. The file contains data of one Unicode version, so that all browsers and recorders use the same data.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Returns the first and the last code point of each range that matches a pattern, starting at U+0300. */
export function rangesOf(pattern: RegExp): readonly number[] {
  const ranges: number[] = [];
  let isInside = false;
  for (let code = 0x300; code <= 0x110000; code += 1) {
    const matches = code < 0x110000 && pattern.test(String.fromCodePoint(code));
    if (matches && !isInside) ranges.push(code);
    if (!matches && isInside) ranges.push(code - 1);
    isInside = matches;
  }
  return ranges;
}

export const ZERO_WIDTH_PATTERN = /^[\p{Mn}\p{Me}\p{Cf}\u1160-\u11ff\ud7b0-\ud7ff]$/u;
export const PICTOGRAPHIC_PATTERN = /^\p{Extended_Pictographic}$/u;

function encode(name: string, comment: string, pattern: RegExp): string {
  const items = rangesOf(pattern).map((code) => `0x${code.toString(16)}`);
  return `/** ${comment} */\nexport const ${name}: readonly number[] = [${items.join(', ')}];\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const text = [
    `/**\n * Ranges of Unicode ${process.versions['unicode']}: pairs of the first and last code point. Made ` +
      'by scripts/generate-code-points.ts.\n */\n',
    encode(
      'ZERO_WIDTH',
      'Characters that join the previous character: marks, joiners, format characters, and Hangul vowels and finals.',
      ZERO_WIDTH_PATTERN,
    ),
    encode(
      'PICTOGRAPHIC',
      'Characters with the property Extended_Pictographic. A zero-width joiner combines two of them into one emoji.',
      PICTOGRAPHIC_PATTERN,
    ),
  ].join('\n');
  writeFileSync(fileURLToPath(new URL('../src/terminal/code-points.ts', import.meta.url)), text);
}
