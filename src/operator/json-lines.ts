/** Lines of a byte stream, whole and bounded. */
import { StringDecoder } from 'node:string_decoder';

/** The largest object that etcd takes is 1.5 MiB; a line with more is not from Kubernetes. */
const MAX_LINE_CHARACTERS = 8 * 1024 ** 2;

/**
 * Splits a stream at line feeds; empty lines are skipped.
 *
 * @throws RangeError when a line grows past the limit.
 */
export async function* readLines(
  stream: AsyncIterable<Uint8Array>,
  maxCharacters = MAX_LINE_CHARACTERS,
): AsyncGenerator<string> {
  const decoder = new StringDecoder('utf8');
  let rest = '';
  for await (const chunk of stream) {
    const lines = (rest + decoder.write(Buffer.from(chunk))).split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > maxCharacters)
      throw new RangeError(`a line of a watch exceeds ${maxCharacters} characters`);
    for (const line of lines) if (line !== '') yield line;
  }
  if (rest !== '') yield rest;
}
