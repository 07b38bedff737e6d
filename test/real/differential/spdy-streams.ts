/**
 * SPDY frames for the differential test: random frames, their encoding, and tailcast's parsing in the oracle's format.
 */
import { constants, deflateRawSync } from 'node:zlib';
import { SPDY_DICTIONARY } from '../../../src/wire/spdy/dictionary.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyEvent } from '../../../src/wire/spdy/frame.ts';
import { createHeaderDeflater, createHeaderInflater } from '../../../src/wire/spdy/headers.ts';
import { join } from '../../support/damage.ts';
import { base64 } from './oracle.ts';
import type { Random } from '../../support/random.ts';

/**
 * A frame as the oracle's JSON. As in Go's encoder, zero, false and empty values are omitted, and the order of fields
 * is fixed.
 */
export interface OracleFrame {
  readonly kind: string;
  readonly streamId?: number;
  readonly associatedTo?: number;
  readonly priority?: number;
  readonly fin?: boolean;
  readonly unidirectional?: boolean;
  /** Sorted by name. */
  readonly headers?: readonly (readonly [name: string, value: string])[];
  readonly status?: number;
  readonly entries?: readonly { readonly id: number; readonly flags: number; readonly value: number }[];
  readonly id?: number;
  readonly delta?: number;
  readonly payload?: string;
}

const MEMBERS = [
  'kind',
  'streamId',
  'associatedTo',
  'priority',
  'fin',
  'unidirectional',
  'headers',
  'status',
  'entries',
  'id',
  'delta',
  'payload',
] as const satisfies readonly (keyof OracleFrame)[];

function tidy(frame: OracleFrame): OracleFrame {
  const members = MEMBERS.map((name) => [name, frame[name]] as const).filter(([name, value]) => {
    if (name === 'headers' || name === 'entries') return Array.isArray(value) && value.length > 0;
    return Boolean(value);
  });
  return Object.fromEntries(members) as unknown as OracleFrame;
}

/** Sorts headers as the oracle does, which encodes a Go map. */
function sorted(headers: Iterable<readonly [string, string]>): NonNullable<OracleFrame['headers']> {
  return [...headers].toSorted(([a], [b]) => (a < b ? -1 : 1));
}

const HEADER_NAMES = [
  'streamtype',
  'port',
  'requestid',
  'x',
  'a-b',
  '!',
  'y~',
  'long-name-of-a-header',
] as const;
const HEADER_VALUES = [
  'stdin',
  'stdout',
  'error',
  '8080',
  '',
  'a\0b',
  '\xff\xfe',
  '\xfc',
  '\0',
  'x\0',
  'y'.repeat(300),
] as const;

/** Returns random valid frames. */
export function randomFrames(random: Random): OracleFrame[] {
  return Array.from({ length: 1 + random.below(8) }, () => tidy(randomFrame(random)));
}

function randomFrame(random: Random): OracleFrame {
  const streamId = random.pick([1, 3, 5, 7, 2, 4, 1 + random.below(0x7fff_ffff)]);
  const fin = random.oneIn(3);
  const headers = sorted(
    new Map(random.list(4, () => [random.pick(HEADER_NAMES), random.pick(HEADER_VALUES)] as const)),
  );
  const word = (): number => random.pick([1, 2, 0x7fff_ffff, 1 + random.below(0x7fff_fffe)]);
  switch (random.below(12)) {
    case 0:
    case 1:
    case 2: {
      const associatedTo = random.pick([0, 0, 1, word()]);
      const unidirectional = random.oneIn(4);
      return {
        kind: 'synStream',
        streamId,
        associatedTo,
        priority: random.below(8),
        fin,
        unidirectional,
        headers,
      };
    }
    case 3:
      return { kind: 'synReply', streamId, fin, headers };
    case 4:
      return { kind: 'headers', streamId, fin, headers };
    case 5:
      return { kind: 'rstStream', streamId, status: random.pick([1, 5, 11, word()]) };
    case 6: {
      const entries = random.list(3, () => ({
        id: random.below(2 ** 24),
        flags: random.below(256),
        value: word(),
      }));
      return { kind: 'settings', entries };
    }
    case 7:
      return { kind: 'ping', id: word() };
    case 8:
      return { kind: 'goaway', streamId: random.pick([0, word()]), status: random.pick([0, 1, 2]) };
    case 9:
      return { kind: 'windowUpdate', streamId, delta: word() };
    default:
      return { kind: 'data', streamId, fin, payload: base64(random.bytes(random.pick([0, 0, 1, 5, 200]))) };
  }
}

/** Compresses the header blocks of one direction. */
export type DeflateHeaders = (headers: NonNullable<OracleFrame['headers']>) => Uint8Array;

/** Returns tailcast's encoder, or a zlib encoder that uses every kind of deflate block. */
export function randomDeflater(random: Random, { odd }: { readonly odd: boolean }): DeflateHeaders {
  if (random.oneIn(3)) {
    const deflater = createHeaderDeflater();
    return (headers) => deflater.encode(headers);
  }
  const level = random.pick([0, 1, 6, 9]);
  const { Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE } = constants;
  const strategy = random.pick([Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY, Z_RLE]);
  let history = SPDY_DICTIONARY;
  let first = true;
  return (headers) => {
    const text = headerText(random, headers, odd && random.oneIn(4));
    const window = history.subarray(Math.max(0, history.length - 32_768));
    const options = { level, strategy, dictionary: window, finishFlush: constants.Z_SYNC_FLUSH };
    const block = deflateRawSync(text, options);
    history = join(history, text);
    const preamble = first
      ? Uint8Array.of(0x78, random.pick([0xf9, 0xbb, 0x7d, 0x3f]), 0xe3, 0xc6, 0xa7, 0xc2)
      : [];
    first = false;
    return join(Uint8Array.from(preamble), block);
  };
}

/** Returns the text of a header block. If `odd` is set, the text contains an error. */
function headerText(
  random: Random,
  headers: readonly (readonly [string, string])[],
  odd: boolean,
): Uint8Array {
  const list = odd && headers.length > 0 && random.oneIn(2) ? [...headers, random.pick(headers)] : headers;
  const fields = list.flatMap(([name, value]) => [
    sized(odd && random.oneIn(4) ? name.toUpperCase() : name),
    sized(value),
  ]);
  const count = odd && random.oneIn(3) ? list.length + random.pick([-1, 1, 1000]) : list.length;
  const tail = odd && random.oneIn(3) ? random.bytes(random.below(9)) : new Uint8Array(0);
  return join(uint32(Math.max(0, count)), ...fields, tail);
}

function sized(text: string): Uint8Array {
  return join(uint32(text.length), Buffer.from(text, 'latin1'));
}

function uint32(value: number): Uint8Array {
  return Uint8Array.of(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);
}

const NOTHING = {
  streamId: 0,
  associatedTo: 0,
  priority: 0,
  fin: false,
  unidirectional: false,
  headers: [],
  status: 0,
  entries: [],
  id: 0,
  delta: 0,
  payload: '',
} as const satisfies Omit<OracleFrame, 'kind'>;

/** Encodes a frame with tailcast's encoder. */
export function encodeOurs(frame: OracleFrame, deflate: DeflateHeaders): Uint8Array {
  const full = { ...NOTHING, ...frame };
  const { streamId, fin, status } = full;
  switch (frame.kind) {
    case 'synStream':
      return encodeSpdyFrame({ ...full, kind: 'synStream', block: deflate(full.headers) });
    case 'synReply':
    case 'headers':
      return encodeSpdyFrame({ kind: frame.kind, streamId, fin, block: deflate(full.headers) });
    case 'rstStream':
      return encodeSpdyFrame({ kind: 'rstStream', streamId, status });
    case 'settings':
      return encodeSpdyFrame({ kind: 'settings', entries: full.entries });
    case 'ping':
      return encodeSpdyFrame({ kind: 'ping', id: full.id });
    case 'goaway':
      return encodeSpdyFrame({ kind: 'goaway', lastStreamId: streamId, status });
    case 'windowUpdate':
      return encodeSpdyFrame({ kind: 'windowUpdate', streamId, delta: full.delta });
    default: {
      const payload = new Uint8Array(Buffer.from(full.payload, 'base64'));
      return encodeSpdyFrame({ kind: 'data', streamId, fin, payload });
    }
  }
}

/**
 * Parses a stream with tailcast's parser. Returns the complete frames up to the end of the stream or to the first
 * error.
 */
export function decodeOurs(chunks: readonly Uint8Array[]): {
  frames: OracleFrame[];
  refused: Error | undefined;
} {
  const parser = createSpdyParser();
  const inflater = createHeaderInflater();
  const frames: OracleFrame[] = [];
  let payload: Uint8Array[] = [];
  for (const chunk of chunks) {
    let events: readonly SpdyEvent[];
    try {
      events = parser.push(chunk);
      for (const event of events) {
        if (event.kind === 'data') {
          payload.push(event.payload.slice());
          if (!event.last) continue;
        }
        frames.push(tidy(toOracle(event, payload, (block) => sorted(inflater.decode(block)))));
        payload = [];
      }
    } catch (error) {
      return { frames, refused: error as Error };
    }
  }
  return { frames, refused: undefined };
}

function toOracle(
  event: SpdyEvent,
  payload: readonly Uint8Array[],
  inflate: (block: Uint8Array) => NonNullable<OracleFrame['headers']>,
): OracleFrame {
  switch (event.kind) {
    case 'synStream': {
      const { kind, streamId, associatedTo, priority, fin, unidirectional } = event;
      return { kind, streamId, associatedTo, priority, fin, unidirectional, headers: inflate(event.block) };
    }
    case 'synReply':
    case 'headers':
      return { kind: event.kind, streamId: event.streamId, fin: event.fin, headers: inflate(event.block) };
    case 'goaway':
      return { kind: 'goaway', streamId: event.lastStreamId, status: event.status };
    case 'data':
      return { kind: 'data', streamId: event.streamId, fin: event.fin, payload: base64(join(...payload)) };
    case 'rstStream':
    case 'settings':
    case 'ping':
    case 'windowUpdate':
      return event;
  }
}
