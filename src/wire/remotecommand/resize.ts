/**
 * Terminal sizes on the resize stream or channel: JSON objects `{"Width":80,"Height":24}`, concatenated and split
 * at any byte (k8s.io/client-go `tools/remotecommand`, read by k8s.io/kubelet with a Go `json.Decoder`).
 */
import { createJsonObjectSplitter } from '../json-objects.ts';
import { parseJsonObject } from '../json-value.ts';
import { WireError } from '../wire-error.ts';

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface ResizeParser {
  /**
   * @returns every size that is now complete. An omitted size is 0, as in the kubelet.
   * @throws WireError `malformed` or `limit`; afterwards `dead`.
   */
  push(bytes: Uint8Array): readonly TerminalSize[];
}

export const MAX_RESIZE_BYTES = 1024;
const MAX_UINT16 = 0xffff;

/**
 * @param maxObjectBytes maximum object size, in bytes.
 * @param onSize called immediately for each size, including sizes before an error of `push`.
 */
export function createResizeParser(
  maxObjectBytes: number = MAX_RESIZE_BYTES,
  onSize: (size: TerminalSize) => void = () => {},
): ResizeParser {
  return createJsonObjectSplitter(maxObjectBytes, (text) => {
    const size = parseSize(text);
    onSize(size);
    return size;
  });
}

/** Returns the bytes that kubectl sends for a size. */
export function encodeResize({ columns, rows }: TerminalSize): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify({ Width: columns, Height: rows })}\n`);
}

function parseSize(text: string): TerminalSize {
  parseJsonObject(text); // the text is an object from here on
  const literals = memberLiterals(text);
  return { columns: dimension(literals, 'width'), rows: dimension(literals, 'height') };
}

/** A string, with its value if it is the name of a field: a number or `null` as written. Or a bracket. */
const TOKEN = /("(?:[^"\\]|\\.)*")(?:(\s*:\s*)(-?\d[\d.eE+-]*|null)?)?|[{}[\]]/g;

/**
 * Returns the names of the object's own fields in lower case, because Go matches keys in any case, with their
 * values as written; the empty text for other values. `JSON.parse` hides details that Go uses: which of two equal
 * keys came first, and whether 80 was written as 8e1, which Go rejects as an integer.
 */
function memberLiterals(text: string): readonly (readonly [name: string, literal: string])[] {
  const members: (readonly [string, string])[] = [];
  let depth = 0;
  for (const [token, name, colon, literal = ''] of text.matchAll(TOKEN)) {
    if (name === undefined) depth += token === '{' || token === '[' ? 1 : -1;
    else if (colon !== undefined && depth === 1) {
      members.push([String(JSON.parse(name)).toLowerCase(), literal]);
    }
  }
  return members;
}

/** Two spellings of one key in an object are ambiguous. */
function dimension(members: ReturnType<typeof memberLiterals>, name: string): number {
  const literals = members.filter(([found]) => found === name).map(([, literal]) => literal);
  if (literals.length > 1) throw new WireError('malformed', `${name} occurs twice in a resize`);
  const [literal = 'null'] = literals;
  if (literal === 'null') return 0;
  const value = /^(?:0|[1-9]\d{0,4})$/.test(literal) ? Number(literal) : Number.NaN;
  if (!(value <= MAX_UINT16)) throw new WireError('malformed', `${name} of a resize is not a 16-bit number`);
  return value;
}

/**
 * Returns a function that reads terminal sizes. The parser ignores all bytes after an unreadable size, like the API
 * server.
 */
export function createSizeReader(onSize: (size: TerminalSize) => void): (bytes: Uint8Array) => void {
  const parser = createResizeParser(MAX_RESIZE_BYTES, onSize);
  let readable = true;
  return (bytes) => {
    if (!readable) return;
    try {
      parser.push(bytes);
    } catch {
      readable = false;
    }
  };
}
