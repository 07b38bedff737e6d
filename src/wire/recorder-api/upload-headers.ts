/**
 * Headers of an upload to our own recorders: an HTTP/1.1 connection that is upgraded (`length-prefixed.ts`). With
 * these headers a session can continue over another connection, also at another recorder. A recorder offers the
 * upgrade in its response to `HEAD /v2/record`; one of the reference (Tailscale's tsrecorder) does not.
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

/** Describes how an upload continues a session that started elsewhere. */
export interface Continuation {
  /** Bytes of the session that were acknowledged earlier and are not part of this connection. */
  readonly offset: number;
  /** Number of the upload in the session, from 1. */
  readonly number: number;
  /**
   * Number of bytes at the start of the connection that repeat the beginning of the session, for a recorder that
   * does not have it: complete annotation lines. The body continues at the offset.
   */
  readonly preambleBytes: number;
  /**
   * Bytes of frames that correspond to `offset` bytes of lines: the body after the preamble is frames
   * (`upload-frame.ts`). Offsets count bytes of lines. Absent for an upload over a protocol of the reference,
   * which has lines.
   */
  readonly frames?: number;
}

/** An upload from the beginning of a session. */
export const FROM_START: Continuation = { offset: 0, number: 1, preambleBytes: 0 };

/** The other recorders of a session, by the addresses that the gateway uses. */
export interface Neighbours {
  /** Recorder of the earlier bytes; absent at the beginning of a session, and if it is unknown. */
  readonly before?: string;
  /** Recorders at which the session would continue; at most {@link MAX_NEIGHBOURS}. */
  readonly after: readonly string[];
}

export const MAX_NEIGHBOURS = 16;

/** Upload headers of a session. */
export interface UploadFields {
  /** Id of the session, for continuation: 1 to 128 visible ASCII characters. */
  readonly session: string;
  readonly at: Continuation & Required<Pick<Continuation, 'frames'>>;
  /**
   * True if the uploader shows output only after its acknowledgement, so the recorder must commit it without
   * delay.
   */
  readonly waits: boolean;
  /** True if the uploader follows orders, see `session-order.ts`. */
  readonly orders?: boolean;
  /** Absent if there are none. */
  readonly neighbours?: Neighbours;
}

/** Headers by lower-case name, as Node returns them. */
export type HeaderFields = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Visible ASCII. */
const SESSION_NAME = /^[\x21-\x7e]{1,128}$/;
/** `ip:port` or `name:port`. */
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
  // a session that begins here has no preamble
  if (preambleBytes > offset) throw new WireError('malformed', `${PREAMBLE} reaches beyond ${OFFSET}`);
  const frames = readCount(fields, FRAMES, 0);
  if ((frames === 0) !== (offset === 0)) {
    throw new WireError('malformed', `${FRAMES} and ${OFFSET} begin together`);
  }
  const at = { offset, frames, number, preambleBytes };
  const orders = fields[ORDERS] === '1' ? { orders: true } : {};
  return { session, at, waits, ...orders, ...readNeighbours(fields) };
}

/** Omits addresses that the recorder would reject, because the recording matters more than this information. */
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

/** Headers of the 101 response: the number of bytes of lines that are already durable. */
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
