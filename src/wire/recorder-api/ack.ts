/**
 * Acknowledgements in the response stream of `POST /v2/record`. They are JSON objects, separated by any whitespace or
 * none. Each contains the number of received bytes of the upload. The last acknowledgement may contain an error.
 */
import { createJsonObjectSplitter } from '../json-objects.ts';
import { isJsonObject, jsonField, parseJsonObject, type JsonObject, type JsonValue } from '../json-value.ts';
import { WireError } from '../wire-error.ts';
import { MAX_REASON_LENGTH, ORDER_ACTIONS, type SessionOrder, type SessionWatcher } from './session-order.ts';

export interface Ack {
  /** Received bytes of the upload. An acknowledgement without this field means 0. */
  readonly ack: number;
  /**
   * Number of bytes of frames that correspond to `ack` bytes of events. Present only for uploads of frames.
   */
  readonly frames?: number;
  /** Session order for the gateway, such as to end the session. Sent only to gateways that support session orders. */
  readonly order?: SessionOrder;
  /** Reason why the recording could not be stored. Present only in the last acknowledgement. */
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
const MAX_BY_LENGTH = 300;
const MAX_TAGS = 100;
const ID = /^[a-z0-9-]{1,64}$/;

/**
 * Returns an acknowledgement with a line break. Omits an ack of 0 and an empty error, like Go's encoder.
 *
 * @throws WireError `malformed` unless the ack is a whole number of bytes.
 */
export function encodeAck({ ack = 0, frames = 0, error = '', order }: Partial<Ack>): string {
  if (!isByteCount(ack) || !isByteCount(frames))
    throw new WireError('malformed', 'an ack is a number of bytes');
  const kept = { ack: ack || undefined, frames: frames || undefined, error: error || undefined, order };
  return `${JSON.stringify(kept)}\n`;
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

/** @throws WireError `malformed` */
function parseOrder(value: JsonObject): SessionOrder {
  const id = jsonField(value, 'id');
  const action = ORDER_ACTIONS.find((known) => known === jsonField(value, 'action'));
  const by = jsonField(value, 'by');
  const reason = jsonField(value, 'reason');
  const isOrder =
    typeof id === 'string' &&
    ID.test(id) &&
    action !== undefined &&
    isText(by, MAX_BY_LENGTH) &&
    isText(reason, MAX_REASON_LENGTH);
  if (!isOrder) throw new WireError('malformed', 'an order is not complete');
  if (action !== 'watch') return { id, action, by, reason };
  return { id, action, by, reason, watcher: parseWatcher(jsonField(value, 'watcher')) };
}

/** @throws WireError `malformed` */
function parseWatcher(value: JsonValue | undefined): SessionWatcher {
  const fields = isJsonObject(value) ? value : {};
  const nodeId = jsonField(fields, 'nodeId');
  const user = jsonField(fields, 'user');
  const tags = jsonField(fields, 'tags') ?? [];
  const isWatcher =
    isText(nodeId, MAX_BY_LENGTH) &&
    (user === undefined || isText(user, MAX_BY_LENGTH)) &&
    Array.isArray(tags) &&
    tags.length <= MAX_TAGS &&
    tags.every((tag) => isText(tag, MAX_BY_LENGTH));
  if (!isWatcher) throw new WireError('malformed', 'an order does not name the watcher');
  return { nodeId, tags, ...(user === undefined ? {} : { user }) };
}

function isText(value: unknown, most: number): value is string {
  return typeof value === 'string' && value.length <= most;
}
