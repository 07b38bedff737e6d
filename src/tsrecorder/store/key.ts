/**
 * Where a recording or an event lives in the store, and what it is called. Pure.
 *
 * Layout (shared with the reference): `<node>/<time>.cast` and `<node>/events/<time>.event`, where
 * `<node>` is the stable id of the node that uploaded and `<time>` the recorder's receive time. We write the time with
 * nine fraction digits, so that the order of keys is the order of time; trimmed fractions are read as well.
 *
 * Node ids are data: anything but letters, digits, `_` and `-` is written as `%XX`, so that no id can leave its folder
 * and two ids never share one.
 */
import { TailcastError } from '../../errors.ts';

/** The parts of a recording's key. `time` is the text as it stands in the key. */
export interface RecordingKey {
  readonly nodeId: string;
  readonly time: string;
}

/** How the names of the files of one recording end. */
export const SUFFIX = { cast: '.cast', sidecar: '.json', notes: '.notes' } as const;

/** The object that the reference keeps at the root once there are events. */
export const EVENTS_MARKER = '.events-exist';

const MAX_NODE_ID_BYTES = 128;
const NANOSECONDS_PER_SECOND = 1_000_000_000n;
/** What a folder is named after as it is. */
const PLAIN = /^[A-Za-z0-9_-]+$/;
const FIXED_LENGTH = '2026-01-01T00:00:00.000000000Z'.length;
const FIXED_WIDTH = /^.{19}\.\d{9}Z$/;
const TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/;

/** `<node>/<time>.cast`. @throws TailcastError `UPLOAD_REFUSED` when the node id is empty or too long. */
export function recordingKey(key: RecordingKey): string {
  return `${encodeNodeId(key.nodeId)}/${key.time}${SUFFIX.cast}`;
}

/** `<node>/events/<time>.event`. @throws TailcastError `UPLOAD_REFUSED` when the node id is empty or too long. */
export function eventKey(key: RecordingKey): string {
  return `${encodeNodeId(key.nodeId)}/events/${key.time}.event`;
}

/**
 * `<node>_<time>`: the recording's name in URLs and on the command line. The time holds no `_`, so it is unambiguous.
 */
export function recordingId(key: RecordingKey): string {
  return `${encodeNodeId(key.nodeId)}_${key.time}`;
}

/**
 * The inverse of {@link recordingKey}; undefined for anything that function does not write, or the reference would not.
 */
export function parseRecordingKey(text: string): RecordingKey | undefined {
  const slash = text.indexOf('/');
  if (slash < 0 || !text.endsWith('.cast')) return undefined;
  return parseParts(text.slice(0, slash), text.slice(slash + 1, -'.cast'.length));
}

/** The parts of an id, whatever its time is: cheap, to look for what has it. */
export function splitRecordingId(id: string): RecordingKey | undefined {
  const separator = id.lastIndexOf('_');
  const nodeId = separator < 0 ? undefined : decodeNodeId(id.slice(0, separator));
  return nodeId === undefined ? undefined : { nodeId, time: id.slice(separator + 1) };
}

/** Of a name in the folder of a node: {@link parseRecordingKey} without the folder. */
export function parseCastName(nodeId: string, name: string): RecordingKey | undefined {
  const time = name.slice(0, -SUFFIX.cast.length);
  return name.endsWith(SUFFIX.cast) && wholeSeconds(time) !== undefined ? { nodeId, time } : undefined;
}

/** The inverse of {@link recordingId}; undefined for anything else, whatever a URL may hold. */
export function parseRecordingId(text: string): RecordingKey | undefined {
  const separator = text.lastIndexOf('_');
  if (separator < 0) return undefined;
  return parseParts(text.slice(0, separator), text.slice(separator + 1));
}

/** Folder of the names that say which recordings belong together. */
export const SESSIONS_FOLDER = '.sessions/';

/** `<id>~<mark>`, the name in that folder: a listing of the folder tells all there is to know. */
export function markName(key: RecordingKey, mark: string): string {
  return `${recordingId(key)}~${mark}`;
}

/** The inverse of {@link markName}: id and mark; undefined for anything else. */
export function parseMarkName(name: string): { readonly id: string; readonly mark: string } | undefined {
  const match = /^([^~/]+)~([0-9a-f]{32})$/.exec(name);
  const [, id = '', mark = ''] = match ?? [];
  return match === null ? undefined : { id, mark };
}

/** The folder of a node id. @throws TailcastError `UPLOAD_REFUSED` when it is empty or too long. */
export function encodeNodeId(nodeId: string): string {
  // as all of Tailscale's are; a listing asks for every recording
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

/** The node id of a folder name; undefined unless the name is exactly what {@link encodeNodeId} writes. */
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

/** Nanoseconds since the epoch as RFC 3339 in UTC with exactly nine fraction digits. */
export function formatTime(nanoseconds: bigint): string {
  const rest = nanoseconds % NANOSECONDS_PER_SECOND;
  // before 1970 the rest is negative, and a fraction counts forward all the same
  const fraction = rest < 0n ? rest + NANOSECONDS_PER_SECOND : rest;
  const seconds = (nanoseconds - fraction) / NANOSECONDS_PER_SECOND;
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  return `${whole}.${fraction.toString().padStart(9, '0')}Z`;
}

/** The time of a key with exactly nine fraction digits, as recorders of ours write it: sorts by time. */
export function fixedWidth(time: string): string {
  return FIXED_WIDTH.test(time) ? time : formatTime(parseTime(time) ?? 0n);
}

/** How times sort that stand in keys: below 0, the left one is earlier. */
function compareTimes(left: string, right: string): number {
  const isWide = left.length === FIXED_LENGTH && right.length === FIXED_LENGTH;
  const [earlier, later] = isWide ? [left, right] : [fixedWidth(left), fixedWidth(right)];
  return earlier === later ? 0 : earlier < later ? -1 : 1;
}

/** The newest first, in the order of {@link orderOf}, without making that. */
export function newestKeyFirst(left: RecordingKey, right: RecordingKey): number {
  const byTime = compareTimes(right.time, left.time);
  if (byTime !== 0) return byTime;
  return left.nodeId === right.nodeId ? 0 : left.nodeId < right.nodeId ? 1 : -1;
}

/** Fixed-width time, then node: sorts by time. */
export function orderOf({ nodeId, time }: RecordingKey): string {
  return `${fixedWidth(time)} ${nodeId}`;
}

/** RFC 3339 in UTC with zero to nine fraction digits → nanoseconds since the epoch; undefined if it is no real time. */
export function parseTime(text: string): bigint | undefined {
  const milliseconds = wholeSeconds(text);
  if (milliseconds === undefined) return undefined;
  const fraction = text[19] === '.' ? text.slice(20, -1) : '';
  return BigInt(milliseconds) * 1_000_000n + BigInt(fraction.padEnd(9, '0'));
}

/** The second in which a time lies, in milliseconds since the epoch; undefined if it is no real time. */
function wholeSeconds(text: string): number | undefined {
  if (!TIME.test(text)) return undefined;
  const milliseconds = Date.parse(`${text.slice(0, 19)}Z`);
  // Date.parse rolls 30 February over to March, and 24:00 to the next day
  const isReal = new Date(milliseconds).getUTCDate() === Number(text.slice(8, 10));
  return isReal ? milliseconds : undefined;
}

function parseParts(folder: string, time: string): RecordingKey | undefined {
  const nodeId = decodeNodeId(folder);
  return nodeId === undefined || wholeSeconds(time) === undefined ? undefined : { nodeId, time };
}
