/**
 * What an upload (`POST /v2/record`) says in its header fields, and what a recorder answers in its own. With them a session
 * goes on over another connection, at another recorder too. A recorder of the reference knows none of them.
 *
 * ```
 * HEAD /v2/record                               200
 *                                               tailcast-annotations: 1
 *                                               tailcast-resume: 1
 *                                               tailcast-frames: 1, 2
 *                                               tailcast-upgrade: 1
 * POST /v2/record                               200
 * tailcast-session: 6f1c…                       tailcast-offset: 81920
 * tailcast-offset: 81920
 * tailcast-part: 2
 * tailcast-preamble: 512
 * tailcast-frames: 65011
 * tailcast-waits: 1
 * tailcast-before: 100.64.0.8:80
 * tailcast-after: 100.64.0.9:80,100.64.0.10:80
 * ```
 *
 * An upload over a connection that is upgraded for it (`upload-record.ts`) has the fields of the POST in its request, and those of both answers in the 101.
 */
import { WireError } from '../wire-error.ts';
import { ANNOTATIONS_HEADER, ANNOTATIONS_VERSION } from './annotation.ts';
import { FRAMES_VERSION } from './upload-frame.ts';

const SESSION = 'tailcast-session';
const OFFSET = 'tailcast-offset';
const PART = 'tailcast-part';
const PREAMBLE = 'tailcast-preamble';
const WAITS = 'tailcast-waits';
const BEFORE = 'tailcast-before';
const AFTER = 'tailcast-after';
const FRAMES = 'tailcast-frames';
const RESUME = 'tailcast-resume';
const RESUME_VERSION = '1';
const UPGRADE = 'tailcast-upgrade';
const UPGRADE_VERSION = '1';
/** Gateways that know only the first send frames without bulk. */
const FRAMES_VERSIONS = `1, ${FRAMES_VERSION}`;

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
   * frames. Offsets count bytes of lines all the same.
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
  /** Names the session, so that it can be continued: 1 to 128 visible ASCII characters. Undefined: it cannot be. */
  readonly session: string | undefined;
  readonly at: Continuation;
  /** The uploader shows nothing before it is acknowledged, so it is not to wait for company to be committed. */
  readonly waits: boolean;
  /** Absent where there are none, and from a session that cannot be continued. */
  readonly neighbours?: Neighbours;
}

/** What a recorder can do besides what the reference's can. */
export interface RecorderOffers {
  /** Takes annotation lines (see `annotation.ts`). */
  readonly annotations: boolean;
  /** Continues sessions. */
  readonly resumable: boolean;
  /** Takes frames instead of lines. */
  readonly frames: boolean;
  /** Takes uploads of frames over a connection of HTTP/1.1 that is upgraded for it. */
  readonly upgrade: boolean;
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
    ...(session === undefined
      ? {}
      : {
          [SESSION]: session,
          [OFFSET]: String(at.offset),
          [PART]: String(at.number),
          [PREAMBLE]: String(at.preambleBytes),
          ...(at.frames === undefined ? {} : { [FRAMES]: String(at.frames) }),
          ...addressField(BEFORE, before === undefined ? [] : [before]),
          ...addressField(AFTER, after),
        }),
    ...(waits ? { [WAITS]: '1' } : {}),
  };
}

/** @throws WireError `malformed` naming the field */
export function decodeUploadFields(fields: HeaderFields): UploadFields {
  const session = fields[SESSION];
  const waits = fields[WAITS] === '1';
  if (session === undefined) {
    if (fields[FRAMES] !== undefined) throw new WireError('malformed', `${FRAMES} are of no session`);
    return { session, at: FROM_START, waits };
  }
  if (typeof session !== 'string' || !SESSION_NAME.test(session)) {
    throw new WireError('malformed', `${SESSION} is not a session name`);
  }
  const offset = readCount(fields, OFFSET, 0);
  const number = readCount(fields, PART, 1);
  const preambleBytes = readCount(fields, PREAMBLE, 0);
  if (number === 0) throw new WireError('malformed', `${PART} counts from 1`);
  // a session that begins here repeats nothing
  if (preambleBytes > offset) throw new WireError('malformed', `${PREAMBLE} reaches beyond ${OFFSET}`);
  const frames = fields[FRAMES] === undefined ? undefined : readCount(fields, FRAMES, 0);
  if (frames !== undefined && (frames === 0) !== (offset === 0)) {
    throw new WireError('malformed', `${FRAMES} and ${OFFSET} begin together`);
  }
  const at = { offset, number, preambleBytes, ...(frames === undefined ? {} : { frames }) };
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

/** The answer to an upload that can be continued: so many body bytes of its session are durable already. */
export function encodeDurableOffset(bytes: number): Record<string, string> {
  return { [OFFSET]: String(bytes) };
}

/**
 * The answer to `HEAD /v2/record`. A recorder that speaks a newer version as well names all it speaks, as `1, 2`: who knows
 * only the first goes on with that.
 */
export function encodeOffers({
  annotations,
  resumable,
  frames,
  upgrade,
}: RecorderOffers): Record<string, string> {
  return {
    ...(annotations ? { [ANNOTATIONS_HEADER]: ANNOTATIONS_VERSION } : {}),
    ...(resumable ? { [RESUME]: RESUME_VERSION } : {}),
    ...(frames ? { [FRAMES]: FRAMES_VERSIONS } : {}),
    ...(upgrade ? { [UPGRADE]: UPGRADE_VERSION } : {}),
  };
}

export function decodeOffers(fields: HeaderFields): RecorderOffers {
  return {
    annotations: speaks(fields[ANNOTATIONS_HEADER], ANNOTATIONS_VERSION),
    resumable: speaks(fields[RESUME], RESUME_VERSION),
    frames: speaks(fields[FRAMES], String(FRAMES_VERSION)),
    upgrade: speaks(fields[UPGRADE], UPGRADE_VERSION),
  };
}

function speaks(field: HeaderFields[string], version: string): boolean {
  return typeof field === 'string' && field.split(',').some((word) => word.trim() === version);
}

function readCount(fields: HeaderFields, name: string, fallback: number): number {
  const value = fields[name] ?? String(fallback);
  if (typeof value !== 'string' || !/^\d{1,15}$/.test(value)) {
    throw new WireError('malformed', `${name} is not a number`);
  }
  return Number(value);
}
