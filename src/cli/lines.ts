/** Longest line a cast may have here; our recorder writes far shorter ones. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

/**
 * Splits a byte stream into lines without their line breaks. A last line that was not ended is given as it is.
 *
 * @throws Error when a line is longer than 64 Mi characters.
 */
export async function* splitLines(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of bytes) {
    const pieces = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = pieces.pop() ?? '';
    if (rest.length > MAX_LINE_LENGTH) throw new Error('a line of the recording is too long');
    yield* pieces;
  }
  rest += decoder.decode();
  if (rest !== '') yield rest;
}
