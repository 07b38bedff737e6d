/** Reads the lines of a byte stream. Splits only at line feeds, unlike `node:readline`. */

const LINE_FEED = 0x0a;
/**
 * Maximum length of a line, in bytes: twice the longest line of an upload. A compressed recording of some kilobytes can
 * contain a line of many gigabytes.
 */
const MAX_LINE_BYTES = 128 * 1024 ** 2;

/**
 * Yields the complete lines of each chunk as a batch, without line feeds. If bytes follow the last line feed of the
 * stream, they are the last line. Buffers at most one line.
 *
 * @param maxBytes maximum length of a line. Default: more than the longest line that a recorder stores
 * @throws RangeError for a longer line
 */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes = MAX_LINE_BYTES,
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
 * Yields the lines of a stream as text; invalid UTF-8 becomes U+FFFD.
 *
 * @throws RangeError for a line over `maxBytes`
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
