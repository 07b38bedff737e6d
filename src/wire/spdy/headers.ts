/**
 * Decodes and encodes SPDY/3 header blocks. All SYN_STREAM, SYN_REPLY and HEADERS frames of a direction share
 * one zlib stream. Each block ends with a sync flush. The stream has no trailer
 * (draft-mbelshe-httpbis-spdy-00 §2.6.10; RFC 1950, RFC 1951).
 *
 * All blocks of a direction share one history, so every block must be decoded in order, even for streams that
 * the caller ignores. The decoder requires that a block ends at a deflate block boundary and that no text is
 * left over. The peer's SPDY library (in Go) would keep a remainder for the next block. Without this check,
 * gateway and peer could derive different stream roles from the same bytes.
 *
 * ```
 * first block of a direction   78 f9 · dictionary id:32 · raw deflate · 00 00 ff ff
 * later blocks                                            raw deflate · 00 00 ff ff
 * inflated                     count:32 · count x (name length:32 · name · value length:32 · value)
 * ```
 */
import { constants, inflateRawSync } from 'node:zlib';
import { stopAfterFailure, WireError } from '../wire-error.ts';
import { endsWithSyncFlush } from './deflate-boundary.ts';
import { SPDY_DICTIONARY, SPDY_DICTIONARY_ID } from './dictionary.ts';

export interface HeaderInflater {
  /**
   * @param block header block of a frame. It is never empty, because it contains at least the number of
   * headers.
   * @returns a map from lower-case name to value, in the received order. Each byte of a value is a code unit
   * 0–255. Several values of a name are joined by NUL.
   * @throws WireError `malformed` or `limit`; `dead` after an error, because the history is lost.
   */
  decode(block: Uint8Array): ReadonlyMap<string, string>;
}

export const SPDY_HEADER_LIMITS = {
  /** Maximum size of a block after inflating, in bytes. */
  maxInflatedBytes: 8 * 1024,
  maxHeaders: 64,
  /** Maximum number of blocks of a direction. Each block costs about 40 µs, however short it is. */
  maxBlocks: Number.POSITIVE_INFINITY,
};
export type SpdyHeaderLimits = Readonly<typeof SPDY_HEADER_LIMITS>;
/** Limits for exec and attach, whose connections have at most five streams. */
export const EXEC_HEADER_LIMITS = { maxBlocks: 64 } as const satisfies Partial<SpdyHeaderLimits>;

const PREAMBLE_BYTES = 6;
const WINDOW_BYTES = 32 * 1024; // maximum distance in deflate (RFC 1951 §2)
const METHOD_DEFLATE = 8; // compression method deflate (RFC 1950 §2.2, CM)
const FLAG_DICTIONARY = 0x20; // flag for a preset dictionary (RFC 1950 §2.2, FDICT)
const MAX_STORED_BYTES = 0xffff; // RFC 1951 §3.2.4
/** Number of bytes by which the compressed form of a header block may exceed its content. */
const MAX_OVERHEAD_BYTES = 1024;

/** Creates a decoder for one direction of one connection. Default limits are in `SPDY_HEADER_LIMITS`. */
export function createHeaderInflater(limits: Partial<SpdyHeaderLimits> = {}): HeaderInflater {
  const bounds: SpdyHeaderLimits = { ...SPDY_HEADER_LIMITS, ...limits };
  let history = SPDY_DICTIONARY;
  let blocks = 0;

  const decode = stopAfterFailure((block: Uint8Array): ReadonlyMap<string, string> => {
    const deflated = blocks > 0 ? block : skipPreamble(block);
    blocks += 1;
    if (blocks > bounds.maxBlocks) throw new WireError('limit', 'SPDY connection has too many header blocks');
    // reject long blocks early: compression hardly ever makes a block longer, and the checks need much time per byte
    if (deflated.length > bounds.maxInflatedBytes + MAX_OVERHEAD_BYTES)
      throw new WireError('limit', 'SPDY header block is too long');
    if (!endsWithSyncFlush(deflated)) throw new WireError('malformed', 'SPDY header block is not flushed');
    const text = inflate(deflated, history, bounds.maxInflatedBytes);
    history = lastBytes(history, text);
    return parseHeaders(text, bounds.maxHeaders);
  });
  return { decode };
}

function skipPreamble(block: Uint8Array): Uint8Array {
  if (block.length < PREAMBLE_BYTES) throw new WireError('malformed', 'SPDY header block is too short');
  const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
  const zlibHeader = view.getUint16(0);
  const method = view.getUint8(0);
  const valid =
    (method & 0x0f) === METHOD_DEFLATE &&
    method >>> 4 <= 7 && // CINFO: the window is at most 32 KiB
    zlibHeader % 31 === 0 &&
    (zlibHeader & FLAG_DICTIONARY) !== 0 &&
    view.getUint32(2) === SPDY_DICTIONARY_ID;
  if (!valid) throw new WireError('malformed', 'SPDY header block does not name the SPDY/3 dictionary');
  return block.subarray(PREAMBLE_BYTES);
}

/**
 * Inflates one raw deflate block that ends with a sync flush. `history` is the preset window: the last 32 KiB of
 * dictionary and output.
 *
 * Runs synchronously, because a connection has only a few blocks, and each takes less than 0.2 ms to inflate. During an
 * asynchronous call, the caller would have to buffer the bytes that follow the block. node:zlib has no synchronous
 * inflater that keeps its state between blocks, so the previous output is used as a preset dictionary. The result is
 * the same, because each block ends with a sync flush.
 *
 * @throws WireError `limit` if the output is longer than `maxBytes` (the output is never allocated), `malformed` if the
 * block is not deflate data
 */
function inflate(deflated: Uint8Array, history: Uint8Array, maxBytes: number): Uint8Array {
  try {
    return inflateRawSync(deflated, {
      dictionary: history,
      finishFlush: constants.Z_SYNC_FLUSH,
      maxOutputLength: maxBytes,
    });
  } catch (cause) {
    const tooLong = cause instanceof RangeError && 'code' in cause && cause.code === 'ERR_BUFFER_TOO_LARGE';
    throw tooLong
      ? new WireError('limit', 'SPDY header block inflates to too much', { cause })
      : new WireError('malformed', 'SPDY header block cannot be inflated', { cause });
  }
}

function lastBytes(history: Uint8Array, text: Uint8Array): Uint8Array {
  if (text.length >= WINDOW_BYTES) return text.slice(text.length - WINDOW_BYTES);
  const kept = history.subarray(Math.max(0, history.length + text.length - WINDOW_BYTES));
  const joined = new Uint8Array(kept.length + text.length);
  joined.set(kept);
  joined.set(text, kept.length);
  return joined;
}

function parseHeaders(text: Uint8Array, maxHeaders: number): ReadonlyMap<string, string> {
  const view = new DataView(text.buffer, text.byteOffset, text.byteLength);
  let offset = 0;
  const take = (length: number): number => {
    if (length > text.length - offset) throw new WireError('malformed', 'SPDY header block ends too early');
    offset += length;
    return offset - length;
  };
  const takeString = (): string => {
    const length = view.getUint32(take(4));
    const start = take(length);
    return latin1(text.subarray(start, start + length));
  };
  const count = view.getUint32(take(4));
  if (count > maxHeaders) throw new WireError('limit', 'too many headers in a SPDY header block');
  const headers = new Map<string, string>();
  for (let index = 0; index < count; index += 1) {
    const name = takeString();
    checkName(name, headers);
    headers.set(name, takeString());
  }
  if (offset !== text.length) throw new WireError('malformed', 'bytes left over in a SPDY header block');
  return headers;
}

/** Checks that a name consists of visible lower-case ASCII and occurs only once (draft §2.6.10). */
function checkName(name: string, seen: ReadonlyMap<string, string>): void {
  if (!/^[!-@[-~]+$/.test(name)) throw new WireError('malformed', 'bad name in a SPDY header block');
  if (seen.has(name)) throw new WireError('malformed', 'name occurs twice in a SPDY header block');
}

function latin1(bytes: Uint8Array): string {
  let text = '';
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

/**
 * Creates an encoder for one direction of one connection. It writes stored (uncompressed) blocks, which every
 * inflater accepts. The gateway sends few headers, so compression would save little.
 */
export function createHeaderDeflater() {
  let started = false;
  return {
    /**
     * @param headers names in lower-case ASCII, each only once. Values may contain code units 0–255.
     * @throws WireError `malformed` for an invalid name or value.
     */
    encode(headers: Iterable<readonly [string, string]>): Uint8Array {
      const text = encodeHeaders(headers);
      const blocks: number[] = [];
      if (!started) blocks.push(0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2); // the same flags as Go's encoder
      started = true;
      for (let offset = 0; offset < text.length; offset += MAX_STORED_BYTES) {
        const part = text.slice(offset, offset + MAX_STORED_BYTES);
        blocks.push(...storedHeader(part.length));
        for (const byte of part) blocks.push(byte);
      }
      blocks.push(...storedHeader(0)); // the sync flush; without it, Go's inflater would wait for more bytes
      return Uint8Array.from(blocks);
    },
  };
}

function storedHeader(length: number): readonly number[] {
  const inverse = length ^ 0xffff;
  return [0, length & 0xff, length >>> 8, inverse & 0xff, inverse >>> 8];
}

function encodeHeaders(headers: Iterable<readonly [string, string]>): readonly number[] {
  const seen = new Map<string, string>();
  const bytes: number[] = [];
  for (const [name, value] of headers) {
    checkName(name, seen);
    seen.set(name, value);
    appendString(bytes, name);
    appendString(bytes, value);
  }
  return [...uint32(seen.size), ...bytes];
}

function appendString(bytes: number[], text: string): void {
  bytes.push(...uint32(text.length));
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit > 0xff) throw new WireError('malformed', 'SPDY header values hold bytes');
    bytes.push(unit);
  }
}

function uint32(value: number): readonly number[] {
  return [value >>> 24, (value >>> 16) & 0xff, (value >>> 8) & 0xff, value & 0xff];
}
