/**
 * Scanner and encoder for WebSocket frames (RFC 6455 §5). The scanner observes a connection between a client and a
 * server, and is neither of them.
 *
 * Chunks may begin and end anywhere in a frame. The scanner returns the payload in pieces and never buffers or changes
 * it. A piece is a view of the pushed chunk, and is masked if the frame is masked. `unmaskPiece` returns an unmasked
 * copy. The scanner rejects violations of the framing rules: masking, minimal lengths, control frames and the order of
 * fragments. It reports RSV bits to the caller, because only the caller knows the negotiated extensions. It does not
 * interpret the payload.
 *
 * ```
 * fin:1|rsv:3|opcode:4   masked:1|length:7   [length:16 | length:64]   [mask:32]   payload
 * ```
 */
import { stopAfterFailure, WireError } from '../wire-error.ts';

/** Opcodes of frames (RFC 6455 §5.2). */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Payload of a normal close frame. RFC 6455 §7.4.1. */
export const CLOSE_NORMAL: Uint8Array = Uint8Array.of(0x03, 0xe8);

const OPCODES: ReadonlySet<number> = new Set(Object.values(OPCODE));
/** Valid opcodes, as a bit set. */
const OPCODE_BITS = Object.values(OPCODE).reduce<number>((bits, opcode) => bits | (1 << opcode), 0);

/**
 * One piece of a frame's payload. An empty frame has one empty piece, which is both the first and the last.
 */
export interface WebSocketPiece {
  readonly opcode: number;
  /** FIN bit of the frame: this frame ends its message. All pieces of a frame have the same value. */
  readonly fin: boolean;
  /**
   * The three RSV bits, as a number from 0 to 7. A value other than 0 means that the peer uses an extension
   * or is defective.
   */
  readonly rsv: number;
  /** Number of payload bytes of the complete frame. */
  readonly length: number;
  /** Offset of `bytes` in the payload of the frame. */
  readonly offset: number;
  /** Length of the frame header, in bytes. */
  readonly headerLength: number;
  /** True if this piece is the first of its frame. */
  readonly first: boolean;
  readonly last: boolean;
  /**
   * View of the pushed chunk, masked if `mask` is set. Created on access, and valid until the caller reuses
   * the chunk.
   */
  readonly bytes: Uint8Array;
  /** First byte of `bytes`, without creating a view. */
  readonly firstByte: number | undefined;
  /** The four bytes of the mask, if the frame is masked. */
  readonly mask: Uint8Array | undefined;
  /** Returns `bytes` without its first `skipped` bytes. */
  bytesFrom(skipped: number): Uint8Array;
}

export interface WebSocketScannerOptions {
  /**
   * True if the frames come from a client; the scanner then rejects unmasked frames. If the frames come from a server,
   * the scanner rejects masked frames (RFC 6455 §5.1).
   */
  readonly expectMask: boolean;
  /** Maximum payload of a frame, in bytes. Default: 32 MiB, the limit of Kubernetes servers. */
  readonly maxFrameBytes?: number;
  /** Maximum number of frames of one message, including empty ones. */
  readonly maxMessageFrames?: number;
}

export type WebSocketScanner = ReturnType<typeof createWebSocketScanner>;

export const MAX_FRAME_BYTES = 32 * 1024 * 1024;
export const MAX_MESSAGE_FRAMES = 64 * 1024;
/** Maximum payload of a control frame, in bytes (RFC 6455 §5.5). */
export const MAX_CONTROL_BYTES = 125;

const FIN_BIT = 0x80;
const MASK_BIT = 0x80;
const CONTROL_BIT = 0x08;
const LENGTH_16 = 126;
const LENGTH_64 = 127;
const MAX_HEADER_BYTES = 14;

/**
 * State of the current frame. Each connection has one such object and reuses it for every frame, because bulk output
 * can have a frame for each line.
 */
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

/** Creates a scanner for one direction of one connection. */
export function createWebSocketScanner(options: WebSocketScannerOptions) {
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
  let messageFrames = 0; // number of frames of the current message; 0 between messages

  const push = stopAfterFailure((chunk: Uint8Array): readonly WebSocketPiece[] => {
    const pieces: WebSocketPiece[] = [];
    let offset = 0;
    while (offset < chunk.length) {
      if (!inFrame) {
        offset += takeHeader(chunk, offset);
        // an empty frame also produces a piece
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

  /**
   * Reads header bytes. Starts the frame when the header is complete.
   * @returns the number of header bytes in this chunk
   */
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

  /**
   * Checks the order of data frames (RFC 6455 §5.4). A message is a single frame, or a first frame with
   * continuation frames.
   */
  function countFragment(opcode: number, fin: boolean): void {
    if ((opcode === OPCODE.continuation) !== messageFrames > 0) {
      throw new WireError('malformed', 'WebSocket fragments out of order');
    }
    messageFrames += 1;
    if (messageFrames > maxMessageFrames) throw new WireError('limit', 'too many frames in a message');
    if (fin) messageFrames = 0;
  }

  return {
    /**
     * @returns all pieces of the chunk, in order.
     * @throws WireError `malformed` or `limit`; afterwards `dead`.
     */
    push,
    /** True between frames, even if a message is incomplete. */
    get atBoundary(): boolean {
      return !inFrame && headerFilled === 0;
    },
    /** Number of bytes since the end of the last frame; 0 at a boundary. */
    get partialBytes(): number {
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

/** Returns the length of the frame header whose first two bytes are at `offset`. */
function headerBytes(bytes: Uint8Array, offset: number, expectMask: boolean): number {
  const second = bytes[offset + 1] ?? 0;
  if (((second & MASK_BIT) !== 0) !== expectMask) {
    throw new WireError('malformed', expectMask ? 'unmasked client frame' : 'masked server frame');
  }
  const code = second & ~MASK_BIT;
  return 2 + extendedBytes(code) + (expectMask ? 4 : 0);
}

/**
 * Returns the payload length in the header at `offset`. The length must have its shortest form (RFC 6455
 * §5.2).
 */
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
 * Returns the payload bytes of a piece.
 *
 * @returns an unmasked copy if the piece is masked, otherwise the view of the piece.
 */
export function unmaskPiece(piece: WebSocketPiece): Uint8Array {
  return piece.mask === undefined ? piece.bytes : applyMask(piece.bytes, piece.mask, piece.offset);
}

/** Returns a copy of `bytes` with `mask` applied, RFC 6455 §5.3. `offset` is the offset of `bytes` in the payload. */
function applyMask(bytes: Uint8Array, mask: Uint8Array, offset: number): Uint8Array<ArrayBuffer> {
  const copy = new Uint8Array(bytes); // `bytes` itself must not change, because the relay forwards the same memory
  const rotated = Uint8Array.from({ length: 4 }, (_, index) => mask[(offset + index) & 3] ?? 0);
  const maskWord = new Uint32Array(rotated.buffer)[0] ?? 0;
  // Processes four bytes at a time, which is several times faster. The result does not depend on the byte
  // order of the machine.
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
  /** Mask of four bytes. Required for frames of a client, forbidden for frames of a server. */
  readonly mask?: Uint8Array;
}

/**
 * Returns a frame as bytes, with the shortest length form. Copies the payload before masking it.
 *
 * @throws WireError `malformed` for an invalid opcode, RSV or mask, or a bad control frame.
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

/** Returns the length of a server's frame with this many payload bytes. */
export function frameBytes(payloadBytes: number): number {
  return 2 + extendedBytes(lengthCode(payloadBytes)) + payloadBytes;
}

/** Writes the header of a server's frame that is a complete message. @returns the offset of the payload */
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

/** Returns the number of bytes of extended length that follow a 7-bit length code. */
function extendedBytes(code: number): number {
  if (code === LENGTH_64) return 8;
  return code === LENGTH_16 ? 2 : 0;
}
