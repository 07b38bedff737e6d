/**
 * The evidence log of a recorder: starts, ends and removals of recordings, in chronological order. Pure functions.
 *
 * Each line is one entry, a JSON object. `n` counts from 0. `prev` is the SHA-256 of the previous line without its line
 * feed, and 64 zeros in the first entry. A segment consists of consecutive entries and a signature in its last line.
 * The signature covers the hash of the last entry, and therefore all entries up to that entry. See docs/evidence.md.
 */
import { hash as digest } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { SigningKey } from './signing-key.ts';

/** A position in an evidence log. */
export interface LogHead {
  readonly log: string;
  /** Number of the last entry. */
  readonly n: number;
  /** Hash of the last entry, in hexadecimal. */
  readonly hash: string;
}

/** Format of new evidence logs. */
export const LOG_FORMAT = 1;

/** A parsed line of an evidence log. */
export interface LogEntry {
  readonly n: number;
  readonly prev: string;
  /** Time of the entry: RFC 3339 in UTC. */
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
  /** The first entry. `key` is the raw public key in base64. */
  z.strictObject({ kind: z.literal('open'), format: z.literal(LOG_FORMAT), log: logId, key: z.string() }),
  /** The recorder was restarted and continues the evidence log. */
  z.strictObject({ kind: z.literal('restart'), key: z.string() }),
  /**
   * Start of a session: its first bytes, up to byte `durable` of its body, are in the spool. `header` is the SHA-256 of
   * the stored header line with its line feed. The entry precedes the first acknowledgement. If `durable` is missing,
   * the entry was written before the spool had any byte of the session.
   */
  z.strictObject({
    kind: z.literal('start'),
    recording: z.string(),
    header: hash,
    nodeId: z.string(),
    nodeName: z.string(),
    address: z.string(),
    durable: count.exactOptional(),
    /**
     * Set for a session that this recorder took over: evidence log of the other recorder, and number of the session's
     * start entry in that log.
     */
    adopted: z.strictObject({ log: logId, start: count }).exactOptional(),
  }),
  /** Durable bytes of open sessions: number of the session's start entry, and number of its durable upload bytes. */
  z.strictObject({ kind: z.literal('durable'), sessions: z.array(z.tuple([count, count])) }),
  /**
   * The spool has fewer bytes of a session than the evidence log states, so acknowledged bytes are lost. `found` is the
   * number of bytes in the spool.
   */
  z.strictObject({
    kind: z.literal('lost'),
    start: count,
    recording: z.string(),
    durable: count,
    found: count,
    reason: z.string(),
  }),
  /** The recording of a session is in the store. `start` is the number of its start entry. */
  z.strictObject({
    kind: z.literal('end'),
    start: count,
    recording: z.string(),
    /** Session mark: equal for all parts of one session, see `session-part.ts`. */
    session: logId,
    cast: seal,
    notes: seal.exactOptional(),
  }),
  /**
   * No byte of a session was ever durable, so no byte was acknowledged. Used only after start entries without
   * `durable`.
   */
  z.strictObject({ kind: z.literal('void'), start: count, recording: z.string(), reason: z.string() }),
  /** The recorder is about to remove a recording because of `reason`. */
  z.strictObject({ kind: z.literal('removed'), recording: z.string(), reason: z.string(), bytes: count }),
  /** Start of a legal hold of a recording. A signed statement with the same `at` proves the hold. */
  z.strictObject({ kind: z.literal('held'), recording: z.string(), at: z.string(), reason: z.string() }),
  /** End of a legal hold of a recording. A signed statement with the same `at` proves the release. */
  z.strictObject({ kind: z.literal('released'), recording: z.string(), at: z.string(), reason: z.string() }),
  /** The entry that was last in another evidence log when this entry was written. */
  z.strictObject({
    kind: z.literal('witness'),
    head: z.strictObject({ log: logId, n: count, hash }),
  }),
  /** The recorder is about to store a document (a batch of events). */
  z.strictObject({ kind: z.literal('document'), name: z.string(), bytes: count, sha256: hash }),
  /** The recorder is about to remove a document because of `reason`. */
  z.strictObject({ kind: z.literal('documentRemoved'), name: z.string(), reason: z.string() }),
]);
/** Event of a log entry. */
export type LogEvent = z.infer<typeof eventSchema>;

const entrySchema = z.strictObject({ n: count, prev: hash, time: z.string(), event: eventSchema });
const signatureSchema = z.strictObject({
  signature: z.strictObject({ log: logId, n: count, hash, key: z.string(), ed25519: z.string() }),
});

/** The last line of a segment. `key` is the id of the signing key. */
export interface SegmentSignature extends LogHead {
  readonly key: string;
  readonly ed25519: string;
}

/** Encodes an entry as one line without a line feed. */
export function encodeEntry({ n, prev, time, event }: LogEntry): string {
  return JSON.stringify({ n, prev, time, event });
}

/** Parses an entry. @returns undefined for an invalid line */
export function parseEntry(line: string): LogEntry | undefined {
  return parseWith(entrySchema, line);
}

const newerOpen = z.looseObject({
  event: z.looseObject({ kind: z.literal('open'), format: z.int().min(LOG_FORMAT + 1) }),
});

/** Returns an error text if the line starts an evidence log in a newer format, otherwise undefined. */
export function newerLog(line: string): string | undefined {
  const format = parseWith(newerOpen, line)?.event.format;
  if (format === undefined) return undefined;
  return (
    `a newer recorder began this log (format ${format}; this version reads ${LOG_FORMAT}): verify with ` +
    'that version'
  );
}

/** Returns the hash of a line without its line feed. The next entry contains the hash as `prev`. */
export function hashLine(line: string): string {
  return digest('sha256', line);
}

/** Returns the signed message of a segment. */
export function headMessage({ log, n, hash: last }: LogHead): string {
  return `tailcast log 1\n${log}\n${n}\n${last}\n`;
}

/**
 * Encodes a segment.
 *
 * @param lines consecutive entries without line feeds, at least one
 * @param head position of the last entry
 */
export function encodeSegment(lines: readonly string[], head: LogHead, key: SigningKey): string {
  const { log, n, hash: last } = head;
  const signature = { log, n, hash: last, key: key.public.id, ed25519: key.sign(headMessage(head)) };
  return [...lines, JSON.stringify({ signature }), ''].join('\n');
}

/** A parsed segment. No field has been verified. */
export interface ParsedSegment {
  /** All lines except the last. */
  readonly lines: readonly string[];
  readonly signature: SegmentSignature | undefined;
}

/** Splits a segment into lines and signature, without verifying it. */
export function parseSegment(text: string): ParsedSegment {
  const lines = text.split('\n');
  const [last, empty] = lines.splice(-2);
  const line = empty === '' ? (last ?? '') : '';
  const signature = parseWith(signatureSchema, line)?.signature;
  // Accept only one encoding of each signature, so that every changed byte of a segment is detectable.
  if (signature === undefined || JSON.stringify({ signature }) !== line)
    return { lines, signature: undefined };
  return { lines, signature };
}

/** Returns the name of the segment that starts with entry `first`. */
export function logSegmentName(log: string, first: number): string {
  return `${LOGS_FOLDER}${log}/${String(first).padStart(12, '0')}.ndjson`;
}

/** The inverse of {@link logSegmentName}. */
export function parseSegmentName(name: string): { readonly log: string; readonly first: number } | undefined {
  const match = /^\.evidence\/logs\/([0-9a-f]{32})\/(\d{12})\.ndjson$/.exec(name);
  const [, log = '', first = ''] = match ?? [];
  return match === null ? undefined : { log, first: Number(first) };
}

/** Returns the prefix of the segment names of one evidence log, or of all logs. */
export function segmentPrefix(log?: string): string {
  return log === undefined ? LOGS_FOLDER : `${LOGS_FOLDER}${log}/`;
}

/**
 * Returns the name of the tail of an evidence log. The tail contains the entries after the last segment, in the format
 * of a segment. Each new tail replaces the previous tail. Later segments repeat the entries of the tail.
 */
export function tailName(log: string): string {
  return `${TAILS_FOLDER}${log}.ndjson`;
}

/** The inverse of {@link tailName}. */
export function parseTailName(name: string): string | undefined {
  return /^\.evidence\/tails\/([0-9a-f]{32})\.ndjson$/.exec(name)?.[1];
}

/** Returns the name of a published public key. */
export function keyName(id: string): string {
  return `${KEYS_FOLDER}${id}.pem`;
}

/** The inverse of {@link keyName}. */
export function parseKeyName(name: string): string | undefined {
  return /^\.evidence\/keys\/([0-9a-f]{32})\.pem$/.exec(name)?.[1];
}

/** Maximum size of a segment or tail, in bytes. Recorders write smaller segments. */
export const MAX_SEGMENT_BYTES = 32 * 1024 ** 2;
/** Maximum size of a published key, in bytes. */
export const MAX_KEY_BYTES = 4096;

/** Name prefix of published public keys. */
export const KEY_PREFIX = KEYS_FOLDER;
/** Name prefix of the tails of evidence logs. */
export const TAIL_PREFIX = TAILS_FOLDER;

function parseWith<T extends z.ZodType>(schema: T, line: string): z.output<T> | undefined {
  return schema.safeParse(jsonOrUndefined(line)).data;
}
