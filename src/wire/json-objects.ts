/**
 * Splits a byte stream into JSON objects, like Go's streaming decoder. Any whitespace, or none, may separate
 * the objects. Buffers at most one incomplete object.
 */
import { stopAfterFailure, WireError } from './wire-error.ts';

export interface JsonObjectSplitter<Value> {
  /**
   * @returns the result of `read` for each complete object.
   * @throws WireError `malformed` for bytes other than whitespace between objects, `limit` for an object that is too
   * long; any error of `read`; `dead` for each call after an error.
   */
  push(chunk: Uint8Array): readonly Value[];
}

const SPACE = new Set([0x20, 0x09, 0x0a, 0x0d]); // RFC 8259 §2
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = new Set([0x7b, 0x5b]); // { [
const CLOSE = new Set([0x7d, 0x5d]); // } ]
const OPEN_OBJECT = 0x7b;

/**
 * @param maxObjectBytes maximum object size, in bytes.
 * @param read receives the text of an object, in which the braces are balanced, but which may be invalid JSON.
 * Called immediately when the object is complete, so that the first error does not depend on the size of the chunks.
 */
export function createJsonObjectSplitter<Value>(
  maxObjectBytes: number,
  read: (text: string) => Value,
): JsonObjectSplitter<Value> {
  const decoder = new TextDecoder();
  let pending = '';
  let pendingBytes = 0;
  let depth = 0;
  let inString = false;
  let escaped = false;

  const push = stopAfterFailure((chunk: Uint8Array): readonly Value[] => {
    const values: Value[] = [];
    let start = 0;
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index] ?? 0;
      if (depth === 0) {
        if (SPACE.has(byte)) continue;
        if (byte !== OPEN_OBJECT) throw new WireError('malformed', 'expected a JSON object');
        start = index;
        depth = 1;
      } else {
        step(byte);
      }
      if (pendingBytes + index - start + 1 > maxObjectBytes)
        throw new WireError('limit', 'JSON object is too long');
      if (depth === 0) {
        values.push(read(finish(chunk.subarray(start, index + 1))));
        start = index + 1;
      }
    }
    if (depth > 0) {
      pending += decoder.decode(chunk.subarray(start), { stream: true });
      pendingBytes += chunk.length - start;
    }
    return values;
  });

  function step(byte: number): void {
    if (inString) {
      if (escaped) escaped = false;
      else if (byte === BACKSLASH) escaped = true;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) inString = true;
    else if (OPEN.has(byte)) depth += 1;
    else if (CLOSE.has(byte)) depth -= 1;
  }

  function finish(tail: Uint8Array): string {
    const text = pending + decoder.decode(tail);
    pending = '';
    pendingBytes = 0;
    return text;
  }

  return { push };
}
