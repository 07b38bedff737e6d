/**
 * Terminal sizes on the resize stream or channel: JSON objects `{"Width":80,"Height":24}`, one after another, split
 * anywhere (k8s.io/client-go `tools/remotecommand`, read by k8s.io/kubelet with a Go `json.Decoder`).
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
   * @returns every size the bytes complete. A size that was left out is 0, as the kubelet has it.
   * @throws WireError `malformed` or `limit`; afterwards `dead`.
   */
  push(bytes: Uint8Array): readonly TerminalSize[];
}

export const MAX_RESIZE_BYTES = 1024;
const MAX_UINT16 = 0xffff;

/**
 * @param maxObjectBytes the longest object, in bytes.
 * @param onSize is told of each size at once, also of those in front of what `push` throws for.
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

/** The bytes kubectl sends for a size. */
export function encodeResize({ columns, rows }: TerminalSize): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify({ Width: columns, Height: rows })}\n`);
}

function parseSize(text: string): TerminalSize {
  parseJsonObject(text); // from here on the text is known to be one
  const literals = memberLiterals(text);
  return { columns: dimension(literals, 'width'), rows: dimension(literals, 'height') };
}

/** A string, with what follows if it is the name of a member: a number or `null` as written. Or a bracket. */
const TOKEN = /("(?:[^"\\]|\\.)*")(?:(\s*:\s*)(-?\d[\d.eE+-]*|null)?)?|[{}[\]]/g;

/**
 * Names of the object's own members in lower case, since Go matches keys in any case, with their values as written; the
 * empty text for a value that is neither a number nor `null`. `JSON.parse` would hide what Go goes by: which of two equal
 * keys came first, and whether 80 was written as 8e1, which Go does not take for an integer.
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

/** Two spellings of one key in an object would be ambiguous. */
function dimension(members: ReturnType<typeof memberLiterals>, name: string): number {
  const literals = members.filter(([found]) => found === name).map(([, literal]) => literal);
  if (literals.length > 1) throw new WireError('malformed', `${name} occurs twice in a resize`);
  const [literal = 'null'] = literals;
  if (literal === 'null') return 0;
  const value = /^(?:0|[1-9]\d{0,4})$/.test(literal) ? Number(literal) : Number.NaN;
  if (!(value <= MAX_UINT16)) throw new WireError('malformed', `${name} of a resize is not a 16-bit number`);
  return value;
}
