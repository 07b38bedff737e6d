/**
 * Headers of an upload to tailcast's recorders over an upgraded HTTP/1.1 connection (`length-prefixed.ts`). With these
 * headers, a session can continue over another connection and at another recorder. A tailcast recorder offers the
 * upgrade in its response to `HEAD /v2/record`. The reference (Tailscale's tsrecorder) does not offer it.
 *
 * ```
 * HEAD /v2/record                               200
 *                                               tailcast-upgrade: 1
 * GET /v2/record                                101
 * upgrade: tailcast-record/1                    upgrade: tailcast-record/1
 * tailcast-session: 6f1c…                       tailcast-offset: 81920
 * tailcast-offset: 81920
 * tailcast-frames: 65011
 * tailcast-part: 2
 * tailcast-preamble: 512
 * tailcast-waits: 1
 * tailcast-orders: 1
 * tailcast-before: 100.64.0.8:80
 * tailcast-after: 100.64.0.9:80,100.64.0.10:80
 * ```
 */
import { WireError } from '../wire-error.ts';

const SESSION = 'tailcast-session';
const OFFSET = 'tailcast-offset';
const PART = 'tailcast-part';
const PREAMBLE = 'tailcast-preamble';
const WAITS = 'tailcast-waits';
const ORDERS = 'tailcast-orders';
const BEFORE = 'tailcast-before';
const AFTER = 'tailcast-after';
const FRAMES = 'tailcast-frames';
const UPGRADE = 'tailcast-upgrade';
const UPGRADE_VERSION = '1';

/** Describes the position at which an upload continues a session. */
export interface Continuation {
  /** Number of bytes of the session that were acknowledged earlier and are not sent on this connection. */
  readonly offset: number;
  /** Number of the upload in the session, from 1. */
  readonly number: number;
  /**
   * Number of bytes at the start of the connection that repeat the first annotation lines of the session, for
   * a recorder that does not have them. The bytes after this preamble continue at `offset`.
   */
  readonly preambleBytes: number;
  /**
   * Number of bytes of frames (`upload-frame.ts`) that correspond to `offset`, which counts bytes of lines.
   * Absent for uploads over a protocol of the reference, which contain lines instead of frames.
   */
  readonly frames?: number;
}

/** An upload from the beginning of a session. */
export const FROM_START: Continuation = { offset: 0, number: 1, preambleBytes: 0 };

/** Addresses of the other recorders of a session, as the gateway uses them. */
export interface Neighbours {
  /** Recorder of the previous part. Absent for the first part, and if the recorder is unknown. */
  readonly before?: string;
  /** Recorders to which the gateway may continue the session. At most {@link MAX_NEIGHBOURS}. */
  readonly after: readonly string[];
}

export const MAX_NEIGHBOURS = 16;

/** Upload headers of a session. */
export interface UploadFields {
  /**
   * Id of the session, by which the recorder recognises a continued session: 1 to 128 visible ASCII
   * characters.
   */
  readonly session: string;
  readonly at: Continuation & Required<Pick<Continuation, 'frames'>>;
  /**
   * True if the gateway shows output to the user only after the recorder has acknowledged the output. The recorder must
   * then write the output to disk without delay.
   */
  readonly waits: boolean;
  /** True if the gateway follows session orders, see `session-order.ts`. */
  readonly orders?: boolean;
  /** Other recorders of the session; absent for a session with one recorder. */
  readonly neighbours?: Neighbours;
}

/** Headers with lower-case names as keys, as in Node's `IncomingMessage`. */
export type HeaderFields = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Format of session ids: visible ASCII. */
const SESSION_NAME = /^[\x21-\x7e]{1,128}$/;
/** Format of the addresses of recorders: `ip:port` or `name:port`. */
const ADDRESS = /^[0-9A-Za-z.:%[\]_-]{3,200}$/;

export function encodeUploadFields({
  session,
  at,
  waits,
  orders = false,
  neighbours: { before, after } = NO_NEIGHBOURS,
}: UploadFields): Record<string, string> {
  return {
    [SESSION]: session,
    [OFFSET]: String(at.offset),
    [FRAMES]: String(at.frames),
    [PART]: String(at.number),
    [PREAMBLE]: String(at.preambleBytes),
    ...addressField(BEFORE, before === undefined ? [] : [before]),
    ...addressField(AFTER, after),
    ...(waits ? { [WAITS]: '1' } : {}),
    ...(orders ? { [ORDERS]: '1' } : {}),
  };
}

/** @throws WireError `malformed` that names the header */
export function decodeUploadFields(fields: HeaderFields): UploadFields {
  const session = fields[SESSION];
  const waits = fields[WAITS] === '1';
  if (typeof session !== 'string' || !SESSION_NAME.test(session)) {
    throw new WireError('malformed', `${SESSION} is not a session name`);
  }
  const offset = readCount(fields, OFFSET, 0);
  const number = readCount(fields, PART, 1);
  const preambleBytes = readCount(fields, PREAMBLE, 0);
  if (number === 0) throw new WireError('malformed', `${PART} counts from 1`);
  // the first upload of a session needs no preamble
  if (preambleBytes > offset) throw new WireError('malformed', `${PREAMBLE} reaches beyond ${OFFSET}`);
  const frames = readCount(fields, FRAMES, 0);
  if ((frames === 0) !== (offset === 0)) {
    throw new WireError('malformed', `${FRAMES} and ${OFFSET} begin together`);
  }
  const at = { offset, frames, number, preambleBytes };
  const orders = fields[ORDERS] === '1' ? { orders: true } : {};
  return { session, at, waits, ...orders, ...readNeighbours(fields) };
}

/** Omits addresses that the recorder would reject. An invalid address must not prevent the recording. */
function addressField(name: string, addresses: readonly string[]): Record<string, string> {
  const good = addresses.filter((address) => ADDRESS.test(address)).slice(0, MAX_NEIGHBOURS);
  return good.length === 0 ? {} : { [name]: good.join(',') };
}

const NO_NEIGHBOURS: Neighbours = { after: [] };

function readNeighbours(fields: HeaderFields): Pick<UploadFields, 'neighbours'> {
  const before = readAddresses(fields, BEFORE);
  const after = readAddresses(fields, AFTER);
  const [first, ...others] = before;
  if (others.length > 0) throw new WireError('malformed', `${BEFORE} names several recorders`);
  if (first === undefined && after.length === 0) return {};
  return { neighbours: { ...(first === undefined ? {} : { before: first }), after } };
}

function readAddresses(fields: HeaderFields, name: string): readonly string[] {
  const value = fields[name];
  if (value === undefined) return [];
  const addresses = typeof value === 'string' ? value.split(',') : [];
  const isOdd = addresses.length > MAX_NEIGHBOURS || !addresses.every((address) => ADDRESS.test(address));
  if (isOdd || addresses.length === 0) throw new WireError('malformed', `${name} names no recorders`);
  return addresses;
}

/** Returns the headers of the 101 response: the number of bytes of lines that are already durable. */
export function encodeDurableOffset(bytes: number): Record<string, string> {
  return { [OFFSET]: String(bytes) };
}

/** Headers of the response to `HEAD /v2/record` that offer the upgrade. */
export const UPGRADE_OFFER: Readonly<Record<string, string>> = { [UPGRADE]: UPGRADE_VERSION };

/** True if the headers offer the upgrade. */
export function offersUpgrade(fields: HeaderFields): boolean {
  return fields[UPGRADE] === UPGRADE_VERSION;
}

function readCount(fields: HeaderFields, name: string, fallback: number): number {
  const value = fields[name] ?? String(fallback);
  if (typeof value !== 'string' || !/^\d{1,15}$/.test(value)) {
    throw new WireError('malformed', `${name} is not a number`);
  }
  return Number(value);
}
