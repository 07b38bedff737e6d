/** Reads files that we wrote line by line: bytes split at line feeds only, as opposed to `node:readline`. */

const LINE_FEED = 0x0a;

/**
 * Whole lines, without their line feed, in batches as they come from the chunks. What follows the last line feed comes
 * last if it is not empty. Holds one line in memory.
 */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<readonly Uint8Array[]> {
  let rest: Uint8Array[] = [];
  for await (const chunk of chunks) {
    const lines: Uint8Array[] = [];
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      const part = chunk.subarray(start, end);
      lines.push(rest.length === 0 ? part : Buffer.concat([...rest, part]));
      rest = [];
      start = end + 1;
    }
    if (start < chunk.length) rest.push(chunk.subarray(start));
    if (lines.length > 0) yield lines;
  }
  if (rest.length > 0) yield [Buffer.concat(rest)];
}
