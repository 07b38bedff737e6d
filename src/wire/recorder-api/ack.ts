/**
 * Acknowledgements, in the response stream of `POST /v2/record`: JSON objects with any whitespace or none between
 * them. They contain the number of received bytes of the upload, and perhaps a final error.
 */
import { createJsonObjectSplitter } from '../json-objects.ts';
import { isJsonObject, jsonField, parseJsonObject } from '../json-value.ts';
import { WireError } from '../wire-error.ts';
import { parseOrder, type SessionOrder } from './session-order.ts';

export interface Ack {
  /** Received bytes of the upload. `{}` is 0. */
  readonly ack: number;
  /** For an upload of frames: bytes of frames that correspond to `ack` bytes of events. */
  readonly frames?: number;
  /** Only for a gateway that offers to follow orders. */
  readonly order?: SessionOrder;
  /** Only in the last acknowledgement: the recording could not be stored. */
  readonly error?: string;
}

export interface AckParser {
  /**
   * @returns every complete acknowledgement.
   * @throws WireError `malformed` or `limit`; afterwards `dead`.
   */
  push(chunk: Uint8Array): readonly Ack[];
}

export const MAX_ACK_BYTES = 64 * 1024;

/**
 * Returns an acknowledgement with a line break. An ack of 0 and an empty error are omitted, as in Go.
 *
 * @throws WireError `malformed` unless the ack is a whole number of bytes.
 */
export function encodeAck({
  ack = 0,
  frames = 0,
  error = '',
  order,
}: {
  readonly ack?: number;
  readonly frames?: number;
  readonly error?: string;
  readonly order?: SessionOrder;
}): string {
  if (!isByteCount(ack) || !isByteCount(frames))
    throw new WireError('malformed', 'an ack is a number of bytes');
  return `${JSON.stringify({ ...(ack === 0 ? {} : { ack }), ...(frames === 0 ? {} : { frames }), ...(error === '' ? {} : { error }), ...(order === undefined ? {} : { order }) })}\n`;
}

/** @param maxFrameBytes maximum size of an acknowledgement. */
export function createAckParser(maxFrameBytes: number = MAX_ACK_BYTES): AckParser {
  return createJsonObjectSplitter(maxFrameBytes, parseAck);
}

function parseAck(text: string): Ack {
  const frame = parseJsonObject(text);
  const ack = jsonField(frame, 'ack') ?? 0;
  const error = jsonField(frame, 'error') ?? '';
  if (typeof ack !== 'number' || !isByteCount(ack))
    throw new WireError('malformed', 'an ack is a number of bytes');
  const frames = jsonField(frame, 'frames');
  if (frames !== undefined && (typeof frames !== 'number' || !isByteCount(frames)))
    throw new WireError('malformed', 'frames of an ack are a number of bytes');
  if (typeof error !== 'string') throw new WireError('malformed', 'the error of an ack frame is not text');
  const order = jsonField(frame, 'order');
  if (order !== undefined && !isJsonObject(order))
    throw new WireError('malformed', 'the order of an ack is not an object');
  return {
    ack,
    ...(frames === undefined ? {} : { frames }),
    ...(error === '' ? {} : { error }),
    ...(order === undefined ? {} : { order: parseOrder(order) }),
  };
}

function isByteCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}
