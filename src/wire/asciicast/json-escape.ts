/**
 * Escapes UTF-8 text as the content of a JSON string. The result equals that of `JSON.stringify`, so bytes of
 * non-ASCII characters stay unchanged. Uses WebAssembly vector instructions (`json-escape.wat`, ADR 51).
 */
import { JSON_ESCAPE_MODULE } from './json-escape-module.ts';

/** Maximum number of bytes of text per call of the WebAssembly program, see `json-escape.wat`. */
const PIECE_BYTES = 64 * 1024;
const INPUT = 64 * 1024;
const OUTPUT = INPUT + PIECE_BYTES;
/** Size of a table entry, in bytes. The last byte of an entry contains the number of used bytes. */
const ENTRY_BYTES = 8;

const { memory, escape } = load();

/** Passes the escaped text to `take` in pieces. Each piece is valid only during the call of `take`. */
export function escapeJson(text: Uint8Array, take: (piece: Uint8Array) => void): void {
  for (let at = 0; at < text.length; at += PIECE_BYTES) {
    const piece = text.subarray(at, at + PIECE_BYTES);
    memory.set(piece, INPUT);
    take(memory.subarray(OUTPUT, OUTPUT + escape(piece.length)));
  }
}

function load(): { readonly memory: Uint8Array; readonly escape: (length: number) => number } {
  const { exports } = new WebAssembly.Instance(
    new WebAssembly.Module(Buffer.from(JSON_ESCAPE_MODULE, 'base64')),
  );
  if (!(exports['memory'] instanceof WebAssembly.Memory)) throw new TypeError('the program has no memory');
  const { escape } = exports;
  if (!isEscape(escape)) throw new TypeError('the program has no function');
  const bytes = new Uint8Array(exports['memory'].buffer);
  for (let byte = 0; byte < 0x80; byte += 1) {
    const written = JSON.stringify(String.fromCharCode(byte)).slice(1, -1);
    bytes.set(Buffer.from(written), byte * ENTRY_BYTES);
    bytes[byte * ENTRY_BYTES + ENTRY_BYTES - 1] = written.length;
  }
  return { memory: bytes, escape };
}

function isEscape(value: unknown): value is (length: number) => number {
  return typeof value === 'function';
}
