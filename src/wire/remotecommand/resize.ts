/**
 * Parses terminal sizes on the resize stream or channel: concatenated JSON objects
 * `{"Width":80,"Height":24}`, which may be split at any byte (k8s.io/client-go `tools/remotecommand`, read by
 * k8s.io/kubelet with a Go `json.Decoder`).
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
   * @returns each size that is complete now. An omitted width or height is 0, as in the kubelet.
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

/** Matches the object that kubectl sends. */
const USUAL_SIZE = /^\{"Width":(0|[1-9]\d{0,3}),"Height":(0|[1-9]\d{0,3})\}$/;
const EMPTY = /^\{[ \t\r\n]*\}$/;
/** Matches every text with a width or a height. A backslash may start an escaped letter of the name. */
const MAY_HAVE_SIZE = /width|height|\\/i;

/** A client may send thousands of small objects at once, so common texts do not use the slower general parser. */
function parseSize(text: string): TerminalSize {
  const usual = USUAL_SIZE.exec(text);
  if (usual !== null) return { columns: Number(usual[1]), rows: Number(usual[2]) };
  if (EMPTY.test(text)) return { columns: 0, rows: 0 };
  parseJsonObject(text); // throws unless the text is a valid JSON object
  if (!MAY_HAVE_SIZE.test(text)) return { columns: 0, rows: 0 };
  const literals = memberLiterals(text);
  return { columns: dimension(literals, 'width'), rows: dimension(literals, 'height') };
}

/**
 * Matches a string or a bracket. If the string is a field name with a number or `null` as its value, also matches the
 * value.
 */
const TOKEN = /("(?:[^"\\]|\\.)*")(?:(\s*:\s*)(-?\d[\d.eE+-]*|null)?)?|[{}[\]]/g;

/**
 * Returns the field names of the object and the text of their values; an empty text for values other than
 * numbers and `null`. Names are in lower case, because Go ignores the case of keys. `JSON.parse` is not used,
 * because it hides details that matter to Go: the order of equal keys, and numbers like 8e1, which Go does
 * not accept as integers.
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

/**
 * Returns a width or a height. An object that contains the key twice, in any letter case, is ambiguous and is rejected.
 */
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
 * Returns a function that reads terminal sizes. After an unreadable size it ignores all further bytes, like
 * the API server.
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
