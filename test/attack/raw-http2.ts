/**
 * Minimal HTTP/2 client for one request: frames and literal HPACK, so that a request may violate any rule. RFC 9113
 * section 4 for frames, RFC 7541 section 6.2 for literals.
 */
import type { Duplex } from 'node:stream';

export type Field = readonly [name: string, value: string];

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
export const FLAG = { endStream: 0x1, ack: 0x1, endHeaders: 0x4, padded: 0x8 } as const;
export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');
const MAX_FRAME = 16_384;

export function encodeFrame(type: number, flags: number, streamId: number, payload: Uint8Array): Buffer {
  const frame = Buffer.alloc(9 + payload.length);
  frame.writeUIntBE(payload.length, 0, 3);
  frame[3] = type;
  frame[4] = flags;
  frame.writeUInt32BE(streamId, 5);
  frame.set(payload, 9);
  return frame;
}

/** Returns the bytes of the connection preface, a SETTINGS frame and one request. */
export function encodeRequest(
  fields: readonly Field[],
  options: { readonly body?: Uint8Array; readonly trailers?: readonly Field[] } = {},
): Buffer {
  const { body, trailers } = options;
  const parts = [PREFACE, encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0))];
  const more = body !== undefined || trailers !== undefined;
  parts.push(...encodeBlock(fields, more ? 0 : FLAG.endStream));
  if (body !== undefined)
    parts.push(encodeFrame(FRAME.data, trailers === undefined ? FLAG.endStream : 0, 1, body));
  if (trailers !== undefined) parts.push(...encodeBlock(trailers, FLAG.endStream));
  return Buffer.concat(parts);
}

/** HEADERS, followed by as many CONTINUATION frames as needed. */
export function encodeBlock(
  fields: readonly Field[],
  flags: number,
  streamId = 1,
  maxFrame = MAX_FRAME,
): Buffer[] {
  const block = encodeFields(fields);
  const frames: Buffer[] = [];
  for (let at = 0; at === 0 || at < block.length; at += maxFrame) {
    const last = at + maxFrame >= block.length ? FLAG.endHeaders : 0;
    const [type, first] = at === 0 ? [FRAME.headers, flags] : [FRAME.continuation, 0];
    frames.push(encodeFrame(type, first | last, streamId, block.subarray(at, at + maxFrame)));
  }
  return frames;
}

export function encodeFields(fields: readonly Field[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.of(0), text(name), text(value)]));
}

/** A string literal without Huffman coding. */
function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  const length: number[] = [];
  if (bytes.length < 127) length.push(bytes.length);
  else {
    length.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>>= 7) length.push((rest & 0x7f) | 0x80);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

export type Http2Outcome =
  | { readonly kind: 'response'; readonly status: number; readonly body: string }
  /** The peer sent RST_STREAM or GOAWAY, or closed the connection, instead of sending a response. */
  | { readonly kind: 'closed' };

/** Sends bytes, and returns the response on stream 1. */
export function exchangeHttp2(socket: Duplex, bytes: Uint8Array): Promise<Http2Outcome> {
  const { promise, resolve } = Promise.withResolvers<Http2Outcome>();
  const stream = createStreamReader();
  const finish = (outcome: Http2Outcome): void => {
    resolve(outcome);
    socket.destroy();
  };
  socket.on('error', () => finish({ kind: 'closed' }));
  socket.on('close', () => finish({ kind: 'closed' }));
  readFrames(socket, (frame) => {
    const outcome = frame.type === FRAME.goaway ? ({ kind: 'closed' } as const) : stream(frame);
    if (outcome !== undefined) finish(outcome);
  });
  socket.write(bytes);
  return promise;
}

/** Calls a function for each frame, and acknowledges settings. */
export function readFrames(socket: Duplex, take: (frame: Frame) => void): void {
  let buffered = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    buffered = Buffer.concat([buffered, chunk]);
    while (buffered.length >= 9) {
      const length = buffered.readUIntBE(0, 3);
      if (buffered.length < 9 + length) return;
      const frame: Frame = {
        type: buffered[3] ?? 0,
        flags: buffered[4] ?? 0,
        streamId: buffered.readUInt32BE(5) & 0x7fff_ffff,
        payload: buffered.subarray(9, 9 + length),
      };
      buffered = buffered.subarray(9 + length);
      if (frame.type === FRAME.settings && (frame.flags & FLAG.ack) === 0)
        socket.write(encodeFrame(FRAME.settings, FLAG.ack, 0, Buffer.alloc(0)));
      take(frame);
    }
  });
}

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

/** Collects the response on stream 1 until its end. */
function createStreamReader(): (frame: Frame) => Http2Outcome | undefined {
  let status = 0;
  const body: Buffer[] = [];
  return ({ type, flags, streamId, payload }) => {
    if (streamId !== 1) return undefined;
    if (type === FRAME.headers && status < 200) status = decodeStatus(payload);
    if (type === FRAME.data) body.push(payload);
    if (type === FRAME.reset && status === 0) return { kind: 'closed' };
    const carries = type === FRAME.headers || type === FRAME.data;
    const ended = type === FRAME.reset || (carries && (flags & FLAG.endStream) !== 0 && status >= 200);
    return ended ? { kind: 'response', status, body: Buffer.concat(body).toString('latin1') } : undefined;
  };
}

/**
 * Returns the status. `:status` is the first field of a block: an index of the static table, or a literal of three
 * digits.
 */
function decodeStatus(block: Buffer): number {
  const indexed = [200, 204, 206, 304, 400, 404, 500][(block[0] ?? 0) - 0x88];
  if (indexed !== undefined) return indexed;
  const [length = 0] = block.subarray(1);
  const value = block.subarray(2, 2 + (length & 0x7f));
  return Number((length & 0x80) === 0 ? value.toString('latin1') : huffmanDigits(value));
}

/**
 * Decodes digits in the Huffman code of RFC 7541 appendix B. The codes of 0 to 2 have five bits and start at 00000; the
 * codes of 3 to 9 have six bits and start at 011001.
 */
function huffmanDigits(bytes: Uint8Array): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  let digits = '';
  for (let at = 0; digits.length < 3;) {
    const short = Number.parseInt(bits.slice(at, at + 5), 2);
    if (short < 3) {
      digits += String(short);
      at += 5;
    } else {
      digits += String(Number.parseInt(bits.slice(at, at + 6), 2) - 0b011001 + 3);
      at += 6;
    }
  }
  return digits;
}
