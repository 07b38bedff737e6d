/**
 * Parses and encodes SPDY/3.1 frames, which Kubernetes uses for exec, attach and port-forward
 * (draft-mbelshe-httpbis-spdy-00 §2.2, §2.6; github.com/moby/spdystream `spdy/read.go`).
 *
 * Chunks may begin and end anywhere in a frame. The parser returns each control frame as one complete copy.
 * It never buffers the payload of a DATA frame: it returns the payload in pieces, as views of the pushed
 * chunk. Header blocks stay compressed (`headers.ts`). The parser keeps no state of streams, so stream ids
 * may repeat and have any order.
 *
 * ```
 * control  1|version:15|type:16   flags:8|length:24   length bytes
 * data     0|stream:31            flags:8|length:24   length bytes
 * ```
 *
 * The parser rejects input that the peer's SPDY library (in Go) would parse differently: reserved bits,
 * unknown flags, unknown control types, and lengths that do not match the type.
 */
import { stopAfterFailure, WireError } from '../wire-error.ts';

export type SpdyControl =
  | {
      readonly kind: 'synStream';
      readonly streamId: number;
      readonly associatedTo: number;
      /** Priority of the stream, from 0 (highest) to 7. */
      readonly priority: number;
      readonly fin: boolean;
      readonly unidirectional: boolean;
      /** The compressed header block. */
      readonly block: Uint8Array;
    }
  | {
      readonly kind: 'synReply';
      readonly streamId: number;
      readonly fin: boolean;
      readonly block: Uint8Array;
    }
  | { readonly kind: 'rstStream'; readonly streamId: number; readonly status: number }
  | { readonly kind: 'settings'; readonly entries: readonly SpdySetting[] }
  | { readonly kind: 'ping'; readonly id: number }
  | { readonly kind: 'goaway'; readonly lastStreamId: number; readonly status: number }
  | { readonly kind: 'headers'; readonly streamId: number; readonly fin: boolean; readonly block: Uint8Array }
  | { readonly kind: 'windowUpdate'; readonly streamId: number; readonly delta: number };

export interface SpdySetting {
  readonly id: number;
  readonly flags: number;
  readonly value: number;
}

/** One piece of a DATA frame. An empty frame has one empty piece, which is both the first and the last. */
export interface SpdyDataPiece {
  readonly kind: 'data';
  readonly streamId: number;
  /** Number of payload bytes of the complete frame. */
  readonly length: number;
  /** View of the pushed chunk, valid until the caller reuses that chunk. */
  readonly payload: Uint8Array;
  readonly first: boolean;
  readonly last: boolean;
  /** True on the last piece of a frame with the FIN flag. */
  readonly fin: boolean;
}

export type SpdyEvent = SpdyControl | SpdyDataPiece;

/** Input of `encodeSpdyFrame`: a control frame, or a DATA frame with its complete payload. */
export type SpdyFrame =
  | SpdyControl
  | {
      readonly kind: 'data';
      readonly streamId: number;
      readonly fin: boolean;
      readonly payload: Uint8Array;
    };

export interface SpdyLimits {
  /** Maximum size of a control frame without its 8 header bytes. */
  readonly maxControlFrameBytes: number;
  /** Maximum size of a DATA payload, in bytes. The format allows 2^24-1 bytes. */
  readonly maxDataFrameBytes: number;
}

export type SpdyParser = ReturnType<typeof createSpdyParser>;

export const SPDY_LIMITS: SpdyLimits = { maxControlFrameBytes: 64 * 1024, maxDataFrameBytes: 0xff_ffff };

/** RST_STREAM status codes, draft §2.6.3. */
export const SPDY_RESET = {
  protocolError: 1,
  invalidStream: 2,
  refusedStream: 3,
  unsupportedVersion: 4,
  cancel: 5,
  internalError: 6,
  flowControlError: 7,
  streamInUse: 8,
  streamAlreadyClosed: 9,
  invalidCredentials: 10,
  frameTooLarge: 11,
} as const;

/** GOAWAY status codes, draft §2.6.6. */
export const SPDY_GOAWAY = { ok: 0, protocolError: 1, internalError: 2 } as const;

/** Size of the header of every frame, in bytes. */
export const SPDY_HEADER_BYTES = 8;
const VERSION = 3;
const CONTROL_BIT = 0x8000_0000;
const UINT31_MASK = 0x7fff_ffff; // stream ids, window deltas and GOAWAY ids have 31 bits (draft §2.2.2)
const LENGTH_MASK = 0x00ff_ffff;
const FLAG_FIN = 0x01;
const FLAG_UNIDIRECTIONAL = 0x02;
const FLAG_CLEAR_SETTINGS = 0x01;

const TYPE = {
  synStream: 1,
  synReply: 2,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  headers: 8,
  windowUpdate: 9,
} as const;

const EMPTY = new Uint8Array(0);

interface DataFrame {
  readonly streamId: number;
  readonly fin: boolean;
  readonly length: number;
  remaining: number;
}

interface ControlFrame {
  readonly type: number;
  readonly flags: number;
  readonly payload: Uint8Array;
  filled: number;
}

/**
 * Creates a parser for one direction of one connection.
 *
 * @param limits maximum sizes in bytes. The defaults are in `SPDY_LIMITS`.
 */
export function createSpdyParser(limits: Partial<SpdyLimits> = {}) {
  const bounds: SpdyLimits = { ...SPDY_LIMITS, ...limits };
  const header = new Uint8Array(SPDY_HEADER_BYTES);
  const headerView = new DataView(header.buffer);
  let headerFilled = 0;
  let data: DataFrame | undefined;
  let control: ControlFrame | undefined;

  const push = stopAfterFailure((chunk: Uint8Array): readonly SpdyEvent[] => {
    const events: SpdyEvent[] = [];
    const view = new DataView(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let offset = 0;
    while (offset < chunk.length) {
      if (data !== undefined) {
        offset = takeData(data, chunk, offset, events);
        if (data.remaining === 0) data = undefined;
      } else if (control !== undefined) {
        offset = takeControl(control, chunk, offset);
        if (control.filled === control.payload.length) control = finishControl(control, events);
      } else if (headerFilled === 0 && chunk.length - offset >= SPDY_HEADER_BYTES) {
        startFrame(view.getUint32(offset), view.getUint32(offset + 4), events);
        offset += SPDY_HEADER_BYTES;
      } else {
        const taken = Math.min(SPDY_HEADER_BYTES - headerFilled, chunk.length - offset);
        header.set(chunk.subarray(offset, offset + taken), headerFilled);
        headerFilled += taken;
        offset += taken;
        if (headerFilled === SPDY_HEADER_BYTES) {
          headerFilled = 0;
          startFrame(headerView.getUint32(0), headerView.getUint32(4), events);
        }
      }
    }
    return events;
  });

  function startFrame(word: number, flagsAndLength: number, events: SpdyEvent[]): void {
    const flags = flagsAndLength >>> 24;
    const length = flagsAndLength & LENGTH_MASK;
    if (word >= CONTROL_BIT) {
      const type = checkControlHeader(word, flags, length, bounds);
      control = { type, flags, payload: new Uint8Array(length), filled: 0 }; // every control frame has a payload
      return;
    }
    if (word === 0) throw new WireError('malformed', 'SPDY data on stream 0');
    if ((flags & ~FLAG_FIN) !== 0) throw new WireError('malformed', 'unknown SPDY data flags');
    if (length > bounds.maxDataFrameBytes) throw new WireError('limit', 'SPDY data frame is too long');
    const fin = flags === FLAG_FIN;
    if (length > 0) data = { streamId: word, fin, length, remaining: length };
    else events.push({ kind: 'data', streamId: word, length, payload: EMPTY, first: true, last: true, fin });
  }

  return {
    /**
     * @returns all complete events, in order. Header blocks are copies, DATA payloads are views.
     * @throws WireError `malformed` or `limit`; afterwards `dead`.
     */
    push,
    /** True between frames. Another frame can be inserted only at such a position. */
    get atBoundary(): boolean {
      return headerFilled === 0 && data === undefined && control === undefined;
    },
    /** Number of bytes since the end of the last frame; 0 at a boundary. */
    get partialBytes(): number {
      if (data !== undefined) return SPDY_HEADER_BYTES + data.length - data.remaining;
      return control === undefined ? headerFilled : SPDY_HEADER_BYTES + control.filled;
    },
  };
}

function takeData(frame: DataFrame, chunk: Uint8Array, offset: number, events: SpdyEvent[]): number {
  const taken = Math.min(frame.remaining, chunk.length - offset);
  const first = frame.remaining === frame.length;
  frame.remaining -= taken;
  const last = frame.remaining === 0;
  events.push({
    kind: 'data',
    streamId: frame.streamId,
    length: frame.length,
    payload: chunk.subarray(offset, offset + taken),
    first,
    last,
    fin: last && frame.fin,
  });
  return offset + taken;
}

function takeControl(frame: ControlFrame, chunk: Uint8Array, offset: number): number {
  const taken = Math.min(frame.payload.length - frame.filled, chunk.length - offset);
  frame.payload.set(chunk.subarray(offset, offset + taken), frame.filled);
  const before = frame.filled;
  frame.filled += taken;
  if (frame.type === TYPE.settings && before < 4 && frame.filled >= 4) checkSettingsCount(frame.payload);
  return offset + taken;
}

/**
 * The peer's SPDY library (in Go) ignores the frame length of SETTINGS: it reads as many entries as the frame states,
 * and then the next frame. This parser therefore checks the number of entries before the frame is complete.
 */
function checkSettingsCount(payload: Uint8Array): void {
  const count = new DataView(payload.buffer, payload.byteOffset).getUint32(0);
  if (count !== (payload.length - 4) / 8) throw new WireError('malformed', 'SPDY settings count is wrong');
}

function finishControl(frame: ControlFrame, events: SpdyEvent[]): undefined {
  events.push(decodeControl(frame.type, frame.flags, frame.payload));
}

/** Allowed flags and length of a control type. The length is a minimum if `open` is true. */
const SHAPES: ReadonlyMap<
  number,
  { readonly flags: number; readonly bytes: number; readonly open: boolean }
> = new Map([
  [TYPE.synStream, { flags: FLAG_FIN | FLAG_UNIDIRECTIONAL, bytes: 10, open: true }],
  [TYPE.synReply, { flags: FLAG_FIN, bytes: 4, open: true }],
  [TYPE.rstStream, { flags: 0, bytes: 8, open: false }],
  [TYPE.settings, { flags: FLAG_CLEAR_SETTINGS, bytes: 4, open: true }],
  [TYPE.ping, { flags: 0, bytes: 4, open: false }],
  [TYPE.goaway, { flags: 0, bytes: 8, open: false }],
  [TYPE.headers, { flags: FLAG_FIN, bytes: 4, open: true }],
  [TYPE.windowUpdate, { flags: 0, bytes: 8, open: false }],
]);

/** Checks the header of a control frame before any payload is stored. Returns the control type. */
function checkControlHeader(word: number, flags: number, length: number, bounds: SpdyLimits): number {
  const version = (word >>> 16) & 0x7fff; // the version has 15 bits (draft §2.2.1)
  const type = word & 0xffff;
  if (version !== VERSION) throw new WireError('malformed', 'not SPDY version 3');
  const shape = SHAPES.get(type);
  if (shape === undefined) throw new WireError('malformed', `unknown SPDY control type ${type}`);
  if ((flags & ~shape.flags) !== 0) throw new WireError('malformed', `unknown flags, SPDY type ${type}`);
  const fits = shape.open ? length >= shape.bytes : length === shape.bytes;
  if (!fits) throw new WireError('malformed', `wrong length, SPDY type ${type}`);
  if (length > bounds.maxControlFrameBytes) throw new WireError('limit', 'SPDY control frame is too long');
  return type;
}

function decodeControl(type: number, flags: number, payload: Uint8Array): SpdyControl {
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  const fin = (flags & FLAG_FIN) !== 0;
  switch (type) {
    case TYPE.synStream:
      return {
        kind: 'synStream',
        streamId: nonZero(uint31(view, 0)),
        associatedTo: uint31(view, 4),
        priority: view.getUint8(8) >>> 5,
        fin,
        unidirectional: (flags & FLAG_UNIDIRECTIONAL) !== 0,
        block: payload.subarray(10),
      };
    case TYPE.synReply:
      return { kind: 'synReply', streamId: nonZero(uint31(view, 0)), fin, block: payload.subarray(4) };
    case TYPE.headers:
      return { kind: 'headers', streamId: nonZero(uint31(view, 0)), fin, block: payload.subarray(4) };
    case TYPE.rstStream:
      return { kind: 'rstStream', streamId: nonZero(uint31(view, 0)), status: nonZero(view.getUint32(4)) };
    case TYPE.settings:
      return { kind: 'settings', entries: decodeSettings(view) };
    case TYPE.ping:
      return { kind: 'ping', id: nonZero(view.getUint32(0)) };
    case TYPE.goaway:
      return { kind: 'goaway', lastStreamId: uint31(view, 0), status: view.getUint32(4) };
    default:
      // WINDOW_UPDATE is the only remaining type, because `checkControlHeader` rejects unknown types. Stream
      // 0 stands for the connection (draft 3.1 §2.6.8).
      return { kind: 'windowUpdate', streamId: uint31(view, 0), delta: nonZero(uint31(view, 4)) };
  }
}

function decodeSettings(view: DataView): readonly SpdySetting[] {
  const entries: SpdySetting[] = []; // `checkSettingsCount` has already checked the number of entries
  for (let offset = 4; offset < view.byteLength; offset += 8) {
    const word = view.getUint32(offset);
    entries.push({ id: word & LENGTH_MASK, flags: word >>> 24, value: view.getUint32(offset + 4) });
  }
  return entries;
}

function uint31(view: DataView, offset: number): number {
  const value = view.getUint32(offset);
  // Rejects a set reserved bit. The peer's SPDY library would use it as a part of the id, so ignoring the bit
  // would yield another stream id.
  if (value > UINT31_MASK) throw new WireError('malformed', 'reserved bit set in a SPDY frame');
  return value;
}

function nonZero(value: number): number {
  if (value === 0) throw new WireError('malformed', 'zero where SPDY does not allow it');
  return value;
}

/**
 * Returns a frame as bytes.
 *
 * @throws WireError `malformed` for a field out of its range, `limit` for a payload over 2^24-1 bytes.
 */
export function encodeSpdyFrame(frame: SpdyFrame): Uint8Array {
  if (frame.kind === 'data') {
    const bytes = allocate(frame.payload.length);
    const view = new DataView(bytes.buffer);
    view.setUint32(0, nonZero(fits(frame.streamId, UINT31_MASK)));
    view.setUint32(4, lengthWord(frame.fin ? FLAG_FIN : 0, frame.payload.length));
    bytes.set(frame.payload, SPDY_HEADER_BYTES);
    return bytes;
  }
  return encodeControl(frame);
}

function encodeControl(frame: SpdyControl): Uint8Array {
  switch (frame.kind) {
    case 'synStream': {
      const flags = (frame.fin ? FLAG_FIN : 0) | (frame.unidirectional ? FLAG_UNIDIRECTIONAL : 0);
      const id = nonZero(fits(frame.streamId, UINT31_MASK));
      const words = [id, fits(frame.associatedTo, UINT31_MASK)];
      const priority = Uint8Array.of(fits(frame.priority, 7) << 5, 0);
      return assemble(TYPE.synStream, flags, words, priority, frame.block);
    }
    case 'synReply':
      return assemble(TYPE.synReply, frame.fin ? FLAG_FIN : 0, [streamWord(frame)], frame.block);
    case 'headers':
      return assemble(TYPE.headers, frame.fin ? FLAG_FIN : 0, [streamWord(frame)], frame.block);
    case 'rstStream':
      return assemble(TYPE.rstStream, 0, [streamWord(frame), nonZero(uint32(frame.status))]);
    case 'settings': {
      const entries = frame.entries.flatMap(({ id, flags, value }) => [
        fits(flags, 0xff) * 0x100_0000 + fits(id, LENGTH_MASK),
        uint32(value),
      ]);
      return assemble(TYPE.settings, 0, [frame.entries.length, ...entries]);
    }
    case 'ping':
      return assemble(TYPE.ping, 0, [nonZero(uint32(frame.id))]);
    case 'goaway':
      return assemble(TYPE.goaway, 0, [fits(frame.lastStreamId, UINT31_MASK), uint32(frame.status)]);
    case 'windowUpdate': {
      const words = [fits(frame.streamId, UINT31_MASK), nonZero(fits(frame.delta, UINT31_MASK))];
      return assemble(TYPE.windowUpdate, 0, words);
    }
  }
}

function assemble(
  type: number,
  flags: number,
  words: readonly number[],
  ...tails: readonly Uint8Array[]
): Uint8Array {
  const length = words.length * 4 + tails.reduce((sum, tail) => sum + tail.length, 0);
  const bytes = allocate(length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, CONTROL_BIT + VERSION * 0x1_0000 + type);
  view.setUint32(4, lengthWord(flags, length));
  let offset = SPDY_HEADER_BYTES;
  for (const word of words) {
    view.setUint32(offset, word);
    offset += 4;
  }
  for (const tail of tails) {
    bytes.set(tail, offset);
    offset += tail.length;
  }
  return bytes;
}

function allocate(length: number): Uint8Array<ArrayBuffer> {
  if (length > LENGTH_MASK) throw new WireError('limit', 'a SPDY frame holds at most 2^24-1 bytes');
  return new Uint8Array(SPDY_HEADER_BYTES + length);
}

function lengthWord(flags: number, length: number): number {
  return flags * 0x100_0000 + length;
}

function streamWord(frame: { readonly streamId: number }): number {
  return nonZero(fits(frame.streamId, UINT31_MASK));
}

function uint32(value: number): number {
  return fits(value, 0xffff_ffff);
}

function fits(value: number, max: number): number {
  if (!Number.isInteger(value) || value < 0 || value > max) {
    throw new WireError('malformed', 'a SPDY field is out of its range');
  }
  return value;
}
