/**
 * The log of a recorder: what began, what ended, what was removed, in the order in which it happened. Pure.
 *
 * One entry per line, a JSON object: `n` counts from 0, `prev` is the SHA-256 of the line before (without its line
 * feed; 64 zeros in the first entry). A segment is some consecutive entries and, as its last line, the recorder's
 * signature over the hash of the last entry, which stands for all entries up to there. See docs/evidence.md.
 */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Seal } from './line-seal.ts';
import type { SigningKey } from './signing-key.ts';

/** A position in a log. */
export interface LogHead {
  readonly log: string;
  /** Number of the last entry. */
  readonly n: number;
  /** Its hash, hexadecimal. */
  readonly hash: string;
}

/** Of the logs that are begun. */
export const LOG_FORMAT = 1;

export type LogEvent =
  /** The first entry. `key` is the raw public key, base64. */
  | { readonly kind: 'open'; readonly format: typeof LOG_FORMAT; readonly log: string; readonly key: string }
  /** Another process goes on with the log. */
  | { readonly kind: 'restart'; readonly key: string }
  /**
   * A session began: its first bytes, up to byte `durable` of its body, are in the spool. `header`: SHA-256 of the stored
   * header line with its line feed. In the log before the first ack. Recorders before this one wrote it before anything was
   * in the spool, without `durable`.
   */
  | {
      readonly kind: 'start';
      readonly recording: string;
      readonly header: string;
      readonly nodeId: string;
      readonly nodeName: string;
      readonly address: string;
      readonly durable?: number;
      /** Of a session that this recorder took over: the log of the other recorder, and the number of its start there. */
      readonly adopted?: { readonly log: string; readonly start: number };
    }
  /** Of sessions that are open, by the number of the entry of their start: so many bytes of the body are in the spool. */
  | { readonly kind: 'durable'; readonly sessions: readonly (readonly [start: number, bytes: number])[] }
  /** The spool holds less of a session than the log says: acknowledged bytes are gone. `found`: so many are there. */
  | {
      readonly kind: 'lost';
      readonly start: number;
      readonly recording: string;
      readonly durable: number;
      readonly found: number;
      readonly reason: string;
    }
  /** The recording of a session is in the store. `start`: number of the entry of its start. */
  | {
      readonly kind: 'end';
      readonly start: number;
      readonly recording: string;
      readonly cast: Seal;
      readonly notes?: Seal;
    }
  /** Nothing of a session was ever durable, so nothing was acknowledged: only of a start without `durable`. */
  | { readonly kind: 'void'; readonly start: number; readonly recording: string; readonly reason: string }
  /** A recording is about to be removed from the store, and why that is allowed. */
  | { readonly kind: 'removed'; readonly recording: string; readonly reason: string; readonly bytes: number }
  /** A recording must stay from here on, as a signed statement of that time says. */
  | { readonly kind: 'held'; readonly recording: string; readonly at: string; readonly reason: string }
  /** A hold has ended, as a signed statement of that time says. */
  | { readonly kind: 'released'; readonly recording: string; readonly at: string; readonly reason: string }
  /** How far another log was. */
  | { readonly kind: 'witness'; readonly head: LogHead }
  /** A document was stored: a batch of events. */
  | { readonly kind: 'document'; readonly name: string; readonly bytes: number; readonly sha256: string }
  /** A document is about to be removed, and why that is allowed. */
  | { readonly kind: 'documentRemoved'; readonly name: string; readonly reason: string };

export interface LogEntry {
  readonly n: number;
  readonly prev: string;
  /** RFC 3339 in UTC. */
  readonly time: string;
  readonly event: LogEvent;
}

/** `prev` of the first entry. */
export const NO_HASH = '0'.repeat(64);

const EVIDENCE_FOLDER = '.evidence/';
const LOGS_FOLDER = `${EVIDENCE_FOLDER}logs/`;
const TAILS_FOLDER = `${EVIDENCE_FOLDER}tails/`;
const KEYS_FOLDER = `${EVIDENCE_FOLDER}keys/`;

const hash = z.string().regex(/^[0-9a-f]{64}$/);
const count = z.int().min(0);
const logId = z.string().regex(/^[0-9a-f]{32}$/);
const seal = z.strictObject({ bytes: count, blockBytes: z.int().min(1), chain: hash });
const eventSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('open'), format: z.literal(LOG_FORMAT), log: logId, key: z.string() }),
  z.strictObject({ kind: z.literal('restart'), key: z.string() }),
  z.strictObject({
    kind: z.literal('start'),
    recording: z.string(),
    header: hash,
    nodeId: z.string(),
    nodeName: z.string(),
    address: z.string(),
    durable: count.exactOptional(),
    adopted: z.strictObject({ log: logId, start: count }).exactOptional(),
  }),
  z.strictObject({ kind: z.literal('durable'), sessions: z.array(z.tuple([count, count])) }),
  z.strictObject({
    kind: z.literal('lost'),
    start: count,
    recording: z.string(),
    durable: count,
    found: count,
    reason: z.string(),
  }),
  z.strictObject({
    kind: z.literal('end'),
    start: count,
    recording: z.string(),
    cast: seal,
    notes: seal.exactOptional(),
  }),
  z.strictObject({ kind: z.literal('void'), start: count, recording: z.string(), reason: z.string() }),
  z.strictObject({ kind: z.literal('removed'), recording: z.string(), reason: z.string(), bytes: count }),
  z.strictObject({ kind: z.literal('held'), recording: z.string(), at: z.string(), reason: z.string() }),
  z.strictObject({ kind: z.literal('released'), recording: z.string(), at: z.string(), reason: z.string() }),
  z.strictObject({
    kind: z.literal('witness'),
    head: z.strictObject({ log: logId, n: count, hash }),
  }),
  z.strictObject({ kind: z.literal('document'), name: z.string(), bytes: count, sha256: hash }),
  z.strictObject({ kind: z.literal('documentRemoved'), name: z.string(), reason: z.string() }),
]) satisfies z.ZodType<LogEvent>;
const entrySchema = z.strictObject({ n: count, prev: hash, time: z.string(), event: eventSchema });
const signatureSchema = z.strictObject({
  signature: z.strictObject({ log: logId, n: count, hash, key: z.string(), ed25519: z.string() }),
});

/** The last line of a segment. `key` is the id of the signing key. */
export interface SegmentSignature extends LogHead {
  readonly key: string;
  readonly ed25519: string;
}

/** One line, without line feed. */
export function encodeEntry({ n, prev, time, event }: LogEntry): string {
  return JSON.stringify({ n, prev, time, event });
}

/** @returns undefined for anything that is no entry. */
export function parseEntry(line: string): LogEntry | undefined {
  return parseWith(entrySchema, line);
}

const newerOpen = z.looseObject({
  event: z.looseObject({ kind: z.literal('open'), format: z.int().min(LOG_FORMAT + 1) }),
});

/** What to say of a line with which a newer recorder began its log; undefined when it is none. */
export function newerLog(line: string): string | undefined {
  const format = parseWith(newerOpen, line)?.event.format;
  if (format === undefined) return undefined;
  return `a newer recorder began this log (format ${format}; this version reads ${LOG_FORMAT}): verify with that version`;
}

/** Hash of a line, without line feed: what the next entry names as `prev`. */
export function hashLine(line: string): string {
  return createHash('sha256').update(line).digest('hex');
}

/** What the signature of a segment says. */
export function headMessage({ log, n, hash: last }: LogHead): string {
  return `tailcast log 1\n${log}\n${n}\n${last}\n`;
}

/** @param lines consecutive entries, without line feeds, at least one; `head` is the last of them. */
export function encodeSegment(lines: readonly string[], head: LogHead, key: SigningKey): string {
  const { log, n, hash: last } = head;
  const signature = { log, n, hash: last, key: key.public.id, ed25519: key.sign(headMessage(head)) };
  return [...lines, JSON.stringify({ signature }), ''].join('\n');
}

/** A segment as it was read; nothing about it has been checked. */
export interface ParsedSegment {
  /** All lines but the last. */
  readonly lines: readonly string[];
  readonly signature: SegmentSignature | undefined;
}

export function parseSegment(text: string): ParsedSegment {
  const lines = text.split('\n');
  const [last, empty] = lines.splice(-2);
  const line = empty === '' ? (last ?? '') : '';
  const signature = parseWith(signatureSchema, line)?.signature;
  // one text per signature, so that no byte of a segment can change unseen
  if (signature === undefined || JSON.stringify({ signature }) !== line)
    return { lines, signature: undefined };
  return { lines, signature };
}

/** Where a segment is kept, by the number of its first entry. */
export function logSegmentName(log: string, first: number): string {
  return `${LOGS_FOLDER}${log}/${String(first).padStart(12, '0')}.ndjson`;
}

/** The inverse of {@link logSegmentName}. */
export function parseSegmentName(name: string): { readonly log: string; readonly first: number } | undefined {
  const match = /^\.evidence\/logs\/([0-9a-f]{32})\/(\d{12})\.ndjson$/.exec(name);
  const [, log = '', first = ''] = match ?? [];
  return match === null ? undefined : { log, first: Number(first) };
}

/** Names of all segments of a log, or of all logs, begin so. */
export function segmentPrefix(log?: string): string {
  return log === undefined ? LOGS_FOLDER : `${LOGS_FOLDER}${log}/`;
}

/**
 * Where the end of a log is that is in no segment yet: a segment as well, and replaced by the next one. What it says is in the
 * segments later on.
 */
export function tailName(log: string): string {
  return `${TAILS_FOLDER}${log}.ndjson`;
}

/** The inverse of {@link tailName}. */
export function parseTailName(name: string): string | undefined {
  return /^\.evidence\/tails\/([0-9a-f]{32})\.ndjson$/.exec(name)?.[1];
}

/** Where a public key is published. */
export function keyName(id: string): string {
  return `${KEYS_FOLDER}${id}.pem`;
}

/** The inverse of {@link keyName}. */
export function parseKeyName(name: string): string | undefined {
  return /^\.evidence\/keys\/([0-9a-f]{32})\.pem$/.exec(name)?.[1];
}

export const KEY_PREFIX = KEYS_FOLDER;
export const TAIL_PREFIX = TAILS_FOLDER;

function parseWith<T extends z.ZodType>(schema: T, line: string): z.output<T> | undefined {
  return schema.safeParse(jsonOrUndefined(line)).data;
}
