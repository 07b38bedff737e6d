/**
 * Names of recordings and events in the store. Pure functions.
 *
 * The reference uses the same layout: `<node>/<time>.cast` and `<node>/events/<time>.event`. `<node>` is the stable id
 * of the uploading node, and `<time>` is the receive time of the recorder. Times are written with nine fraction digits,
 * so that keys sort by time. Keys with fewer digits are also readable.
 *
 * Node ids are untrusted. All characters except letters, digits, `_` and `-` are written as `%XX`, so that an id cannot
 * contain a path and two ids never have the same folder.
 */
import { TailcastError } from '../../errors.ts';

/** The parts of the key of a recording. `time` is the text in the key. */
export interface RecordingKey {
  readonly nodeId: string;
  readonly time: string;
}

/** Suffixes of the files of a recording. */
export const SUFFIX = { cast: '.cast', sidecar: '.json', notes: '.notes' } as const;

/** Object that the reference writes into a store that contains events. */
export const EVENTS_MARKER = '.events-exist';

const MAX_NODE_ID_BYTES = 128;
const NANOSECONDS_PER_SECOND = 1_000_000_000n;
/** Node ids that need no encoding. */
const PLAIN = /^[A-Za-z0-9_-]+$/;
const FIXED_LENGTH = '2026-01-01T00:00:00.000000000Z'.length;
const FIXED_WIDTH = /^.{19}\.\d{9}Z$/;
const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/** Returns `<node>/<time>.cast`. @throws TailcastError `UPLOAD_REFUSED` if the node id is empty or too long */
export function recordingKey(key: RecordingKey): string {
  return objectKey(key, 'cast');
}

/** Returns `<node>/<time>` with the suffix of an object. @throws as {@link recordingKey} */
export function objectKey(key: RecordingKey, kind: keyof typeof SUFFIX): string {
  return `${encodeNodeId(key.nodeId)}/${key.time}${SUFFIX[kind]}`;
}

/** Returns `<node>/events/<time>.event`. @throws TailcastError `UPLOAD_REFUSED` if the node id is empty or too long */
export function eventKey(key: RecordingKey): string {
  return `${encodeNodeId(key.nodeId)}/events/${key.time}.event`;
}

/**
 * Returns `<node>_<time>`, the id of a recording in URLs and on the command line. The time contains no `_`.
 */
export function recordingId(key: RecordingKey): string {
  return `${encodeNodeId(key.nodeId)}_${key.time}`;
}

/**
 * Parses the result of {@link recordingKey}, or a key of the reference; undefined for other text.
 */
export function parseRecordingKey(text: string): RecordingKey | undefined {
  const slash = text.indexOf('/');
  if (slash < 0 || !text.endsWith('.cast')) return undefined;
  return parseParts(text.slice(0, slash), text.slice(slash + 1, -'.cast'.length));
}

/** Splits an id without checking its time. */
export function splitRecordingId(id: string): RecordingKey | undefined {
  const separator = id.lastIndexOf('_');
  const nodeId = separator < 0 ? undefined : decodeNodeId(id.slice(0, separator));
  return nodeId === undefined ? undefined : { nodeId, time: id.slice(separator + 1) };
}

/** Parses the name of a cast without its folder. {@link parseRecordingKey} parses the complete name. */
export function parseCastName(nodeId: string, name: string): RecordingKey | undefined {
  const time = name.slice(0, -SUFFIX.cast.length);
  return name.endsWith(SUFFIX.cast) && wholeSeconds(time) !== undefined ? { nodeId, time } : undefined;
}

/** Parses the result of {@link recordingId}; undefined for other text. */
export function parseRecordingId(text: string): RecordingKey | undefined {
  const separator = text.lastIndexOf('_');
  if (separator < 0) return undefined;
  return parseParts(text.slice(0, separator), text.slice(separator + 1));
}

/** Folder of session marks, whose names connect the parts of a session. */
export const SESSIONS_FOLDER = '.sessions/';

/** Returns `<id>~<mark>`, the name of a session mark. The object itself is empty. */
export function markName(key: RecordingKey, mark: string): string {
  return `${recordingId(key)}~${mark}`;
}

/** Parses the result of {@link markName}; undefined for other text. */
export function parseMarkName(name: string): { readonly id: string; readonly mark: string } | undefined {
  const match = /^([^~/]+)~([0-9a-f]{32})$/.exec(name);
  const [, id = '', mark = ''] = match ?? [];
  return match === null ? undefined : { id, mark };
}

/** Returns the folder name of a node id. @throws TailcastError `UPLOAD_REFUSED` if the id is empty or too long */
export function encodeNodeId(nodeId: string): string {
  // Fast path for usual ids, because lists call this function for each recording.
  if (PLAIN.test(nodeId) && nodeId.length <= MAX_NODE_ID_BYTES) return nodeId;
  const bytes = new TextEncoder().encode(nodeId);
  if (bytes.length === 0 || bytes.length > MAX_NODE_ID_BYTES || !nodeId.isWellFormed()) {
    throw new TailcastError('UPLOAD_REFUSED', 'the node id of the uploader cannot be used');
  }
  let encoded = '';
  for (const byte of bytes) {
    const character = String.fromCharCode(byte);
    encoded += /[A-Za-z0-9_-]/.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

/** Parses the result of {@link encodeNodeId}; undefined for other names. */
export function decodeNodeId(folder: string): string | undefined {
  if (PLAIN.test(folder) && folder.length <= MAX_NODE_ID_BYTES) return folder;
  if (!/^(?:[A-Za-z0-9_-]|%[0-9A-F]{2})+$/.test(folder)) return undefined;
  try {
    const nodeId = decodeURIComponent(folder);
    return encodeNodeId(nodeId) === folder ? nodeId : undefined;
  } catch {
    return undefined;
  }
}

/** Formats nanoseconds since the epoch as RFC 3339 in UTC with nine fraction digits. */
export function formatTime(nanoseconds: bigint): string {
  const rest = nanoseconds % NANOSECONDS_PER_SECOND;
  // Times before 1970 have a negative remainder, but a fraction is always positive.
  const fraction = rest < 0n ? rest + NANOSECONDS_PER_SECOND : rest;
  const seconds = (nanoseconds - fraction) / NANOSECONDS_PER_SECOND;
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  return `${whole}.${fraction.toString().padStart(9, '0')}Z`;
}

/**
 * Returns the time of a key with nine fraction digits, so that the alphabetical order of the texts is their order in
 * time.
 */
export function fixedWidth(time: string): string {
  return FIXED_WIDTH.test(time) ? time : formatTime(parseTime(time) ?? 0n);
}

/** Compares the times of two keys. The result is negative if the left key is earlier. */
function compareTimes(left: string, right: string): number {
  const isWide = left.length === FIXED_LENGTH && right.length === FIXED_LENGTH;
  const [earlier, later] = isWide ? [left, right] : [fixedWidth(left), fixedWidth(right)];
  return earlier === later ? 0 : earlier < later ? -1 : 1;
}

/** Compares two keys, the newest first, in the order of {@link orderOf}. */
export function newestKeyFirst(left: RecordingKey, right: RecordingKey): number {
  const byTime = compareTimes(right.time, left.time);
  if (byTime !== 0) return byTime;
  return left.nodeId === right.nodeId ? 0 : left.nodeId < right.nodeId ? 1 : -1;
}

/** Returns a sort key: the time with fixed width, then the id of the tailnet node. */
export function orderOf({ nodeId, time }: RecordingKey): string {
  return `${fixedWidth(time)} ${nodeId}`;
}

/** Parses RFC 3339 in UTC with up to nine fraction digits into nanoseconds since the epoch; undefined if invalid. */
export function parseTime(text: string): bigint | undefined {
  const milliseconds = wholeSeconds(text);
  if (milliseconds === undefined) return undefined;
  const fraction = text[19] === '.' ? text.slice(20, -1) : '';
  return BigInt(milliseconds) * 1_000_000n + BigInt(fraction.padEnd(9, '0'));
}

/** Returns the time rounded down to seconds, in milliseconds since the epoch; undefined if invalid. */
function wholeSeconds(text: string): number | undefined {
  if (!TIME.test(text)) return undefined;
  const milliseconds = Date.parse(`${text.slice(0, 19)}Z`);
  // Reject dates that Date.parse would move to another day, such as 30 February or 24:00.
  const isReal = new Date(milliseconds).getUTCDate() === Number(text.slice(8, 10));
  return isReal ? milliseconds : undefined;
}

function parseParts(folder: string, time: string): RecordingKey | undefined {
  const nodeId = decodeNodeId(folder);
  return nodeId === undefined || wholeSeconds(time) === undefined ? undefined : { nodeId, time };
}
