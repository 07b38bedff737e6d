/** The two ends of an exec session as bytes, built with the encoders of `src/wire`. */
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';
import { encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** Encodes the SPDY frames of one direction. Header blocks of one direction share a compression context. */
export function createSpdyPeer() {
  const deflater = createHeaderDeflater();
  return {
    open: (streamId: number, streamtype: string | undefined) =>
      encodeSpdyFrame({
        kind: 'synStream',
        streamId,
        associatedTo: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        block: deflater.encode(streamtype === undefined ? [] : [['streamtype', streamtype]]),
      }),
    reply: (streamId: number) =>
      encodeSpdyFrame({ kind: 'synReply', streamId, fin: false, block: deflater.encode([]) }),
    headers: (streamId: number, fields: readonly (readonly [string, string])[]) =>
      encodeSpdyFrame({ kind: 'headers', streamId, fin: false, block: deflater.encode(fields) }),
    data: (streamId: number, payload: Uint8Array, fin = false) =>
      encodeSpdyFrame({ kind: 'data', streamId, fin, payload }),
  };
}

export const MASK = Uint8Array.of(1, 2, 3, 4);

/** Returns one unmasked binary message with its channel byte, from a server. */
export function serverMessage(channel: number, data: Uint8Array): Uint8Array {
  const payload = Buffer.concat([Uint8Array.of(channel), data]);
  return encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload });
}

/** Returns the end of a session from the API server: the status on its channel, and a close frame. */
export function serverEnd(status: Uint8Array): Uint8Array {
  const close = encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload: Uint8Array.of(0x03, 0xe8) });
  return Buffer.concat([serverMessage(3, status), close]);
}

/** Returns one masked binary message, from a client. */
export function clientMessage(channel: number, data: Uint8Array): Uint8Array {
  const payload = Buffer.concat([Uint8Array.of(channel), data]);
  return encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload, mask: MASK });
}

export const STATUS_SUCCESS = utf8('{"metadata":{},"status":"Success"}');

export function statusExit(code: number): Uint8Array {
  return utf8(
    JSON.stringify({
      metadata: {},
      status: 'Failure',
      message: `command terminated with non-zero exit code: ${code}`,
      reason: 'NonZeroExitCode',
      details: { causes: [{ reason: 'ExitCode', message: String(code) }] },
    }),
  );
}
