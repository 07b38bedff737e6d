/**
 * Terminal sizes on the resize stream or channel: JSON objects `{"Width":80,"Height":24}`, one after another, split
 * anywhere (k8s.io/client-go `tools/remotecommand`, read by k8s.io/kubelet with a Go `json.Decoder`).
 */
import { fuse } from '../fuse.ts';
import { createJsonObjectSplitter } from '../json-objects.ts';
import { jsonField, parseJsonObject, type JsonObject } from '../json-value.ts';
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

/** @param maxObjectBytes the longest object, in bytes. */
export function createResizeParser(maxObjectBytes: number = MAX_RESIZE_BYTES): ResizeParser {
  const splitter = createJsonObjectSplitter(maxObjectBytes);
  return { push: fuse((bytes: Uint8Array) => splitter.push(bytes).map(parseSize)) };
}

/** The bytes kubectl sends for a size. */
export function encodeResize({ columns, rows }: TerminalSize): Uint8Array {
  return new TextEncoder().encode(`${JSON.stringify({ Width: columns, Height: rows })}\n`);
}

function parseSize(text: string): TerminalSize {
  const object = parseJsonObject(text);
  return { columns: dimension(object, 'width'), rows: dimension(object, 'height') };
}

/** Go matches keys in any case; two spellings of one key in an object would be ambiguous. */
function dimension(object: JsonObject, name: string): number {
  const keys = Object.keys(object).filter((key) => key.toLowerCase() === name);
  if (keys.length > 1) throw new WireError('malformed', `${name} occurs twice in a resize`);
  const value = keys[0] === undefined ? 0 : (jsonField(object, keys[0]) ?? 0);
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > MAX_UINT16) {
    throw new WireError('malformed', `${name} of a resize is not a 16-bit number`);
  }
  return value;
}
