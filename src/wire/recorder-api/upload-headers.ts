/**
 * Header fields of an upload to a recorder of ours: a connection of HTTP/1.1 that is upgraded for it (`upload-record.ts`). With them a
 * session goes on over another connection, at another recorder too. A recorder says in its response to `HEAD /v2/record` that it takes
 * such uploads; one of the reference does not.
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
const BEFORE = 'tailcast-before';
const AFTER = 'tailcast-after';
const FRAMES = 'tailcast-frames';
const UPGRADE = 'tailcast-upgrade';
const UPGRADE_VERSION = '1';

/** How an upload continues a session whose beginning is elsewhere. */
export interface Continuation {
  /** Body bytes of the session that were acknowledged before, and that this connection does not bring. */
  readonly offset: number;
  /** Counts the uploads of the session, from 1. */
  readonly number: number;
  /**
   * The first bytes of the connection repeat so many bytes from the beginning of the session, for a recorder that does not
   * have it: whole object lines. The body goes on at the offset.
   */
  readonly preambleBytes: number;
  /**
   * The body is frames (see `upload-frame.ts`), behind the preamble, which is lines: `offset` bytes of lines are so many bytes of
   * frames. Offsets count bytes of lines all the same. Absent from an upload over a protocol of the reference, which is lines.
   */
  readonly frames?: number;
}

/** An upload from the beginning of its session. */
export const FROM_START: Continuation = { offset: 0, number: 1, preambleBytes: 0 };

/** The other recorders of a session, by the addresses that its gateway has of them. */
export interface Neighbours {
  /** Has what came before; absent from the beginning of a session, and where nobody knows any more. */
  readonly before?: string;
  /** Where the session goes on when this recorder is lost; {@link MAX_NEIGHBOURS} at most. */
  readonly after: readonly string[];
}

export const MAX_NEIGHBOURS = 16;

/** What an upload says of itself. */
export interface UploadFields {
  /** Names the session, so that it can be continued: 1 to 128 visible ASCII characters. */
  readonly session: string;
  readonly at: Continuation & Required<Pick<Continuation, 'frames'>>;
  /** The uploader shows nothing before it is acknowledged, so it is not to wait for company to be committed. */
  readonly waits: boolean;
  /** Absent where there are none. */
  readonly neighbours?: Neighbours;
}

/** Fields by their lower-case names, as Node gives them. */
export type HeaderFields = Readonly<Record<string, string | readonly string[] | undefined>>;

/** Visible ASCII. */
const SESSION_NAME = /^[\x21-\x7e]{1,128}$/;
/** `ip:port` or `name:port`. */
const ADDRESS = /^[0-9A-Za-z.:%[\]_-]{3,200}$/;

export function encodeUploadFields({
  session,
  at,
  waits,
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
  };
}

/** @throws WireError `malformed` naming the field */
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
  // a session that begins here repeats nothing
  if (preambleBytes > offset) throw new WireError('malformed', `${PREAMBLE} reaches beyond ${OFFSET}`);
  const frames = readCount(fields, FRAMES, 0);
  if ((frames === 0) !== (offset === 0)) {
    throw new WireError('malformed', `${FRAMES} and ${OFFSET} begin together`);
  }
  const at = { offset, frames, number, preambleBytes };
  return { session, at, waits, ...readNeighbours(fields) };
}

/** What would be refused is left out: no recording is worth less than a word about where another is. */
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

/** Fields of the 101: so many bytes of lines of the session are durable already. */
export function encodeDurableOffset(bytes: number): Record<string, string> {
  return { [OFFSET]: String(bytes) };
}

/** Fields of the response to `HEAD /v2/record` of a recorder that takes uploads over an upgraded connection. */
export const UPGRADE_OFFER: Readonly<Record<string, string>> = { [UPGRADE]: UPGRADE_VERSION };

/** Returns whether these are the fields of {@link UPGRADE_OFFER}. */
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
