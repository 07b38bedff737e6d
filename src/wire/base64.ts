/** Standard base64 with padding (RFC 4648 §4). Works without Node, so also in browsers. */
import { WireError } from './wire-error.ts';

const ALPHABET = new TextEncoder().encode('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/');
const PADDING = 0x3d;
const VALUES = buildValues();

export function encodeBase64(bytes: Uint8Array): string {
  return new TextDecoder().decode(encodeBase64Bytes(bytes));
}

/** The alphabet as ASCII bytes. */
export function encodeBase64Bytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const output = new Uint8Array(Math.ceil(bytes.length / 3) * 4);
  let at = 0;
  for (let index = 0; index < bytes.length; index += 3) {
    const left = bytes.length - index;
    const group = ((bytes[index] ?? 0) << 16) | ((bytes[index + 1] ?? 0) << 8) | (bytes[index + 2] ?? 0);
    output[at] = ALPHABET[group >>> 18] ?? 0;
    output[at + 1] = ALPHABET[(group >>> 12) & 63] ?? 0;
    output[at + 2] = left > 1 ? (ALPHABET[(group >>> 6) & 63] ?? 0) : PADDING;
    output[at + 3] = left > 2 ? (ALPHABET[group & 63] ?? 0) : PADDING;
    at += 4;
  }
  return output;
}

/** @throws WireError `malformed` for a foreign character, missing padding, or unused bits. */
export function decodeBase64(text: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const input = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  if (input.length % 4 !== 0) throw new WireError('malformed', 'base64 has a wrong length');
  const padding = input.at(-1) !== PADDING ? 0 : input.at(-2) !== PADDING ? 1 : 2;
  const output = new Uint8Array((input.length / 4) * 3 - padding);
  let at = 0;
  for (let index = 0; index < input.length; index += 4) {
    const last = index + 4 === input.length ? padding : 0;
    const group =
      (value(input, index) << 18) |
      (value(input, index + 1) << 12) |
      (last > 1 ? 0 : value(input, index + 2) << 6) |
      (last > 0 ? 0 : value(input, index + 3));
    // The unused bits must be zero, so that each value has only one base64 form.
    if (group & ((1 << (last * 8)) - 1)) throw new WireError('malformed', 'base64 ends in stray bits');
    output[at] = group >>> 16;
    if (last < 2) output[at + 1] = group >>> 8;
    if (last < 1) output[at + 2] = group;
    at += 3;
  }
  return output;
}

function value(input: Uint8Array, index: number): number {
  const found = VALUES[input[index] ?? 0] ?? INVALID;
  if (found === INVALID) throw new WireError('malformed', 'foreign character in base64');
  return found;
}

const INVALID = 0xff;

function buildValues(): Uint8Array {
  const values = new Uint8Array(256).fill(0xff);
  for (const [index, byte] of ALPHABET.entries()) values[byte] = index;
  return values;
}
