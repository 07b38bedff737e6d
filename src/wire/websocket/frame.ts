/**
 * A scanner for WebSocket frames (RFC 6455 §5) of a connection somebody else speaks on.
 *
 * Bytes in, pieces out, in any segmentation. Payload is never buffered and never written to: a piece is a view into the
 * pushed chunk, still masked if the frame is, and `unmaskPiece` makes an unmasked copy of what is wanted. Framing rules
 * are enforced (masking, minimal lengths, control frames, the order of fragments); RSV bits are reported, since only
 * the caller knows what was negotiated, and what a payload means is not looked at.
 *
 * ```
 * fin:1|rsv:3|opcode:4   masked:1|length:7   [length:16 | length:64]   [mask:32]   payload
 * ```
 */
import { fuse } from '../fuse.ts';
import { WireError } from '../wire-error.ts';

/** RFC 6455 §5.2. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Payload of a close frame that says that all is well. RFC 6455 §7.4.1. */
export const CLOSE_NORMAL: Uint8Array = Uint8Array.of(0x03, 0xe8);

const OPCODES: ReadonlySet<number> = new Set(Object.values(OPCODE));
/** A bit for each of them. */
const OPCODE_BITS = Object.values(OPCODE).reduce<number>((bits, opcode) => bits | (1 << opcode), 0);

/** One piece of a frame's payload. An empty frame is one empty piece, both first and last. */
export interface WebSocketPiece {
  readonly opcode: number;
  /** The FIN bit of the frame: this frame ends its message. It is the same on every piece of the frame. */
  readonly fin: boolean;
  /** The three RSV bits, 0–7; not 0 means an extension was negotiated, or the peer is broken. */
  readonly rsv: number;
  /** Payload bytes of the whole frame. */
  readonly length: number;
  /** Where `bytes` begins in the frame's payload. */
  readonly offset: number;
  /** Bytes in front of the payload. */
  readonly headerLength: number;
  /** First and last piece of this frame. */
  readonly first: boolean;
  readonly last: boolean;
  /** A view into the pushed chunk, still masked if there is a `mask`: made when it is asked for, valid until the caller reuses that chunk. */
  readonly bytes: Uint8Array;
  /** The first of `bytes`, for which no view is made. */
  readonly firstByte: number | undefined;
  /** Four bytes, if the frame is masked. */
  readonly mask: Uint8Array | undefined;
  /** `bytes` without so many at their beginning. */
  bytesFrom(skipped: number): Uint8Array;
}

export interface WebSocketScannerOptions {
  /** True for what a client sends, false for what a server sends: the other kind is refused (RFC 6455 §5.1). */
  readonly expectMask: boolean;
  /** Largest payload of a frame in bytes; by default what Kubernetes servers take, 32 MiB. */
  readonly maxFrameBytes?: number;
  /** Most frames one message may consist of, empty ones counted. */
  readonly maxMessageFrames?: number;
}

export interface WebSocketScanner {
  /**
   * @returns every piece the bytes contain, in order.
   * @throws WireError `malformed` or `limit`; afterwards `dead`.
   */
  push(chunk: Uint8Array): readonly WebSocketPiece[];
  /** No frame is partly read. A message may still be open. */
  readonly atBoundary: boolean;
  /** Bytes since the last place where a frame ended: 0 at a boundary. */
  readonly partialBytes: number;
}

export const MAX_FRAME_BYTES = 32 * 1024 * 1024;
export const MAX_MESSAGE_FRAMES = 64 * 1024;
/** RFC 6455 §5.5. */
export const MAX_CONTROL_BYTES = 125;

const FIN_BIT = 0x80;
const MASK_BIT = 0x80;
const CONTROL_BIT = 0x08;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MAX_HEADER_BYTES = 14;

/** The frame that is being read: one object for all of a connection, for a flood has a frame for each line. */
interface Frame {
  opcode: number;
  fin: boolean;
  rsv: number;
  length: number;
  mask: Uint8Array | undefined;
  headerLength: number;
  offset: number;
}

class Piece implements WebSocketPiece {
  readonly opcode: number;
  readonly fin: boolean;
  readonly rsv: number;
  readonly length: number;
  readonly offset: number;
  readonly headerLength: number;
  readonly first: boolean;
  readonly last: boolean;
  readonly mask: Uint8Array | undefined;
  readonly #chunk: Uint8Array;
  readonly #start: number;
  readonly #end: number;

  constructor(frame: Frame, chunk: Uint8Array, start: number, end: number) {
    this.opcode = frame.opcode;
    this.fin = frame.fin;
    this.rsv = frame.rsv;
    this.length = frame.length;
    this.offset = frame.offset;
    this.headerLength = frame.headerLength;
    this.first = frame.offset === 0;
    this.last = frame.offset + end - start === frame.length;
    this.mask = frame.mask;
    this.#chunk = chunk;
    this.#start = start;
    this.#end = end;
  }

  get bytes(): Uint8Array {
    return this.bytesFrom(0);
  }

  get firstByte(): number | undefined {
    return this.#start < this.#end ? this.#chunk[this.#start] : undefined;
  }

  bytesFrom(skipped: number): Uint8Array {
    return this.#chunk.subarray(this.#start + skipped, this.#end);
  }
}

/** A scanner for one direction of one connection. */
export function createWebSocketScanner(options: WebSocketScannerOptions): WebSocketScanner {
  const { expectMask, maxFrameBytes = MAX_FRAME_BYTES, maxMessageFrames = MAX_MESSAGE_FRAMES } = options;
  const header = new Uint8Array(MAX_HEADER_BYTES);
  const frame: Frame = {
    opcode: 0,
    fin: true,
    rsv: 0,
    length: 0,
    mask: undefined,
    headerLength: 0,
    offset: 0,
  };
  let headerFilled = 0;
  let inFrame = false;
  let messageFrames = 0; // of the message in progress; 0 when none is

  const push = fuse((chunk: Uint8Array): readonly WebSocketPiece[] => {
    const pieces: WebSocketPiece[] = [];
    let offset = 0;
    while (offset < chunk.length) {
      if (!inFrame) {
        offset += takeHeader(chunk, offset);
        // an empty frame is a piece, too
        if (!inFrame || (offset === chunk.length && frame.length > 0)) continue;
      }
      const end = offset + Math.min(frame.length - frame.offset, chunk.length - offset);
      pieces.push(new Piece(frame, chunk, offset, end));
      frame.offset += end - offset;
      inFrame = frame.offset < frame.length;
      offset = end;
    }
    return pieces;
  });

  /** Takes header bytes, and begins the frame if they complete its header. @returns how many */
  function takeHeader(chunk: Uint8Array, offset: number): number {
    const available = chunk.length - offset;
    if (headerFilled === 0 && available >= 2) {
      const bytes = headerBytes(chunk, offset, expectMask);
      if (available >= bytes) {
        startFrame(chunk, offset, bytes);
        return bytes;
      }
    }
    const wanted = headerFilled < 2 ? 2 : headerBytes(header, 0, expectMask);
    const taken = Math.min(wanted - headerFilled, available);
    header.set(chunk.subarray(offset, offset + taken), headerFilled);
    headerFilled += taken;
    if (headerFilled < 2 || headerFilled < headerBytes(header, 0, expectMask)) return taken;
    startFrame(header, 0, headerFilled);
    headerFilled = 0;
    return taken;
  }

  function startFrame(bytes: Uint8Array, offset: number, headerLength: number): void {
    readHeader(frame, bytes, offset, headerLength);
    const { opcode, fin, length } = frame;
    if (((OPCODE_BITS >>> opcode) & 1) === 0) throw new WireError('malformed', 'reserved WebSocket opcode');
    if (opcode >= CONTROL_BIT) checkControl(fin, length);
    else countFragment(opcode, fin);
    if (length > maxFrameBytes) throw new WireError('limit', 'WebSocket frame is too long');
    inFrame = true;
  }

  /** The order of data frames, RFC 6455 §5.4: a message is one frame, or a start and continuations. */
  function countFragment(opcode: number, fin: boolean): void {
    if ((opcode === OPCODE.continuation) !== messageFrames > 0) {
      throw new WireError('malformed', 'WebSocket fragments out of order');
    }
    messageFrames += 1;
    if (messageFrames > maxMessageFrames) throw new WireError('limit', 'too many frames in a message');
    if (fin) messageFrames = 0;
  }

  return {
    push,
    get atBoundary() {
      return !inFrame && headerFilled === 0;
    },
    get partialBytes() {
      return inFrame ? frame.headerLength + frame.offset : headerFilled;
    },
  };
}

function readHeader(frame: Frame, bytes: Uint8Array, offset: number, headerLength: number): void {
  const first = bytes[offset] ?? 0;
  const isMasked = ((bytes[offset + 1] ?? 0) & MASK_BIT) !== 0;
  const end = offset + headerLength;
  frame.opcode = first & 0x0f;
  frame.fin = (first & FIN_BIT) !== 0;
  frame.rsv = (first >>> 4) & 7;
  frame.length = payloadLength(bytes, offset);
  frame.mask = isMasked ? bytes.slice(end - 4, end) : undefined;
  frame.headerLength = headerLength;
  frame.offset = 0;
}

/** Length of the frame header whose first two bytes are at `offset`. */
function headerBytes(bytes: Uint8Array, offset: number, expectMask: boolean): number {
  const second = bytes[offset + 1] ?? 0;
  if (((second & MASK_BIT) !== 0) !== expectMask) {
    throw new WireError('malformed', expectMask ? 'unmasked client frame' : 'masked server frame');
  }
  const code = second & ~MASK_BIT;
  return 2 + extendedBytes(code) + (expectMask ? 4 : 0);
}

/** Payload length in its shortest form, RFC 6455 §5.2, of the header at `offset`. */
function payloadLength(bytes: Uint8Array, offset: number): number {
  const code = (bytes[offset + 1] ?? 0) & ~MASK_BIT;
  if (code < LENGTH_16) return code;
  if (code === LENGTH_16) {
    const length = readUint16(bytes, offset + 2);
    if (length < LENGTH_16) throw new WireError('malformed', 'WebSocket length is not minimal');
    return length;
  }
  const high = readUint16(bytes, offset + 2) * 0x1_0000 + readUint16(bytes, offset + 4);
  if (high > 0x7fff_ffff) throw new WireError('malformed', 'WebSocket length has its top bit set');
  const low = readUint16(bytes, offset + 6) * 0x1_0000 + readUint16(bytes, offset + 8);
  const length = high * 0x1_0000_0000 + low;
  if (length <= 0xffff) throw new WireError('malformed', 'WebSocket length is not minimal');
  return length;
}

function readUint16(bytes: Uint8Array, at: number): number {
  return ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
}

function checkControl(fin: boolean, length: number): void {
  if (!fin) throw new WireError('malformed', 'fragmented WebSocket control frame');
  if (length > MAX_CONTROL_BYTES) throw new WireError('malformed', 'WebSocket control frame is too long');
}

/**
 * The payload bytes of a piece.
 *
 * @returns a copy when the piece is masked, otherwise the piece's own view.
 */
export function unmaskPiece(piece: WebSocketPiece): Uint8Array {
  return piece.mask === undefined ? piece.bytes : applyMask(piece.bytes, piece.mask, piece.offset);
}

/** A copy of `bytes` under `mask`, RFC 6455 §5.3. `offset` is where `bytes` begins in the payload. */
function applyMask(bytes: Uint8Array, mask: Uint8Array, offset: number): Uint8Array<ArrayBuffer> {
  const copy = new Uint8Array(bytes); // never the caller's memory: the relay forwards that
  const rotated = Uint8Array.from({ length: 4 }, (_, index) => mask[(offset + index) & 3] ?? 0);
  const maskWord = new Uint32Array(rotated.buffer)[0] ?? 0;
  // Four bytes at a time: several times faster, and the same on machines of either byte order.
  const words = new Uint32Array(copy.buffer, 0, copy.length >>> 2);
  for (let index = 0; index < words.length; index += 1) words[index] = (words[index] ?? 0) ^ maskWord;
  for (let index = words.length * 4; index < copy.length; index += 1) {
    copy[index] = (copy[index] ?? 0) ^ (rotated[index & 3] ?? 0);
  }
  return copy;
}

export interface WebSocketFrame {
  readonly opcode: number;
  readonly fin: boolean;
  readonly rsv?: number;
  readonly payload: Uint8Array;
  /** Four bytes; required from a client, forbidden from a server. */
  readonly mask?: Uint8Array;
}

/**
 * One frame as bytes, the length in its shortest form. A payload given with a mask is copied, not changed.
 *
 * @throws WireError `malformed` for an opcode, RSV or mask that does not fit, or a bad control frame.
 */
export function encodeWebSocketFrame(frame: WebSocketFrame): Uint8Array {
  const { opcode, fin, rsv = 0, payload, mask } = frame;
  checkFrame(frame);
  const payloadAt = frameBytes(payload.length) - payload.length + (mask?.length ?? 0);
  const bytes = new Uint8Array(payloadAt + payload.length);
  writeHeader(bytes, 0, { first: (fin ? FIN_BIT : 0) | (rsv << 4) | opcode, payloadBytes: payload.length });
  if (mask !== undefined) {
    bytes[1] = (bytes[1] ?? 0) | MASK_BIT;
    bytes.set(mask, payloadAt - 4);
  }
  bytes.set(mask === undefined ? payload : applyMask(payload, mask, 0), payloadAt);
  return bytes;
}

/** How long a frame of a server is. */
export function frameBytes(payloadBytes: number): number {
  return 2 + extendedBytes(lengthCode(payloadBytes)) + payloadBytes;
}

/** Writes what stands before the payload of a server's frame that is a whole message. @returns where the payload begins */
export function writeServerHeader(
  target: Uint8Array,
  at: number,
  { opcode, payloadBytes }: { readonly opcode: number; readonly payloadBytes: number },
): number {
  return writeHeader(target, at, { first: FIN_BIT | opcode, payloadBytes });
}

function writeHeader(
  target: Uint8Array,
  at: number,
  { first, payloadBytes }: { readonly first: number; readonly payloadBytes: number },
): number {
  const code = lengthCode(payloadBytes);
  target[at] = first;
  target[at + 1] = code;
  const extended = extendedBytes(code);
  for (let index = 0, rest = payloadBytes; index < extended; index += 1, rest = Math.floor(rest / 256))
    target[at + 1 + extended - index] = rest % 256;
  return at + 2 + extended;
}

function lengthCode(payloadBytes: number): number {
  if (payloadBytes < LENGTH_16) return payloadBytes;
  return payloadBytes <= 0xffff ? LENGTH_16 : LENGTH_64;
}

function checkFrame({ opcode, fin, rsv = 0, payload, mask }: WebSocketFrame): void {
  if (!OPCODES.has(opcode)) throw new WireError('malformed', 'reserved WebSocket opcode');
  if (!Number.isInteger(rsv) || rsv < 0 || rsv > 7) throw new WireError('malformed', 'bad RSV bits');
  if (mask !== undefined && mask.length !== 4) throw new WireError('malformed', 'a mask has four bytes');
  if (opcode >= CONTROL_BIT) checkControl(fin, payload.length);
}

/** Bytes of the extended length behind a 7-bit length code. */
function extendedBytes(code: number): number {
  if (code === LENGTH_64) return 8;
  return code === LENGTH_16 ? 2 : 0;
}
