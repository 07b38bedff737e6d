/** Lines of a byte stream: split at line feeds only, as opposed to `node:readline`. */

const LINE_FEED = 0x0a;

/**
 * Whole lines, without their line feed, in batches as they come from the chunks. What follows the last line feed comes
 * last if it is not empty. Holds one line in memory.
 *
 * @param maxBytes longest line; default: any, for files that we wrote
 * @throws RangeError when a line is longer
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes = Number.POSITIVE_INFINITY,
): AsyncGenerator<readonly Uint8Array[]> {
  let rest: Uint8Array[] = [];
  let restBytes = 0;
  const limit = (bytes: number): void => {
    if (bytes > maxBytes) throw new RangeError(`a line is longer than ${maxBytes} bytes`);
  };
  for await (const chunk of chunks) {
    const lines: Uint8Array[] = [];
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      limit(restBytes + end - start);
      const part = chunk.subarray(start, end);
      lines.push(restBytes === 0 ? part : concat([...rest, part], restBytes + part.length));
      rest = [];
      restBytes = 0;
      start = end + 1;
    }
    limit(restBytes + chunk.length - start);
    if (start < chunk.length) rest.push(chunk.subarray(start));
    restBytes += chunk.length - start;
    if (lines.length > 0) yield lines;
  }
  if (restBytes > 0) yield [concat(rest, restBytes)];
}

/**
 * The lines of a stream as text, one by one; what is not UTF-8 becomes U+FFFD.
 *
 * @throws RangeError when a line is longer than `maxBytes`
 */
export async function* readTextLines(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  for await (const lines of readLines(chunks, maxBytes)) {
    for (const line of lines) yield decoder.decode(line);
  }
}

function concat(parts: readonly Uint8Array[], bytes: number): Uint8Array {
  const whole = new Uint8Array(bytes);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
