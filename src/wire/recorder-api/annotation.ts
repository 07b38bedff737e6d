/**
 * Annotations: tailcast's extension of the upload to a recorder. An annotation is a line with a JSON object
 * between the asciicast events, which are JSON arrays. The gateway sends annotations only to tailcast's
 * recorders, over an upgraded connection (`length-prefixed.ts`). The recorder stores them in the notes and
 * the sidecar, not in the cast.
 *
 * The parser is strict: it rejects an unknown kind, an unknown key and a value of a wrong type.
 */
import { decodeBase64 } from '../base64.ts';
import { isRecord } from '../is-record.ts';
import { jsonOrUndefined } from '../json-value.ts';
import { WireError } from '../wire-error.ts';
import { CONFIRMED_ACTIONS, type SessionOrder } from './session-order.ts';

/** Describes the session. Sent once, before all other annotations. */
export interface SessionAnnotation {
  readonly kind: 'session';
  readonly id: string;
  /** The impersonated user and groups. */
  readonly user?: string;
  readonly groups?: readonly string[];
  /** Arguments of the command. The cast header contains them, joined by spaces, in its field `command`. */
  readonly argv?: readonly string[];
  readonly tty: boolean;
  readonly stdin: boolean;
  /** Protocol of the client's connection: `spdy` or `websocket`. */
  readonly protocol: string;
  readonly subprotocol?: string;
  /** Request path without the query. */
  readonly path: string;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string;
  /** True if the session runs only while a moderator watches it. */
  readonly moderated?: boolean;
}

/** Changes the stream (stdout or stderr) of the following output. The initial stream is stdout. */
export interface StreamAnnotation {
  readonly kind: 'stream';
  readonly name: 'stdout' | 'stderr';
}

/** Exact bytes of the next output event, whose text contains U+FFFD because the bytes are not valid UTF-8. */
export interface RawAnnotation {
  readonly kind: 'raw';
  readonly base64: string;
}

/** Marks a position at which output is missing. */
export interface GapAnnotation {
  readonly kind: 'gap';
  readonly bytes?: number;
  readonly reason: string;
}

/** Exit status of the command, from the error stream. */
export interface ExitAnnotation {
  readonly kind: 'exit';
  readonly code?: number;
  readonly message?: string;
}

/**
 * Confirms that the gateway followed a session order of the recorder, ended a pause, or lost a watcher. See
 * `session-order.ts`.
 */
export interface OrderAnnotation extends Omit<SessionOrder, 'action' | 'watcher'> {
  readonly kind: 'order';
  readonly action: (typeof CONFIRMED_ACTIONS)[number];
}

/**
 * Outcomes of a session. `completed` means that the end of the session is proved. All other outcomes mean that the end
 * of the session is not proved.
 */
const END_OUTCOMES = ['completed', 'interrupted', 'violated', 'client-disconnected'] as const;

/**
 * Describes the end of the session. Sent once, after everything else. A recording without this annotation is
 * incomplete.
 */
export interface EndAnnotation {
  readonly kind: 'end';
  readonly outcome: (typeof END_OUTCOMES)[number];
  readonly reason?: string;
  /** Number of output bytes of the session, including lost output. */
  readonly outputBytes: number;
  /** Number of output events that the gateway sent. */
  readonly outputLines: number;
}

export type Annotation =
  | SessionAnnotation
  | StreamAnnotation
  | RawAnnotation
  | GapAnnotation
  | ExitAnnotation
  | OrderAnnotation
  | EndAnnotation;

/** Maximum length of an annotation, in UTF-16 code units. Allows the base64 of the longest output event. */
export const MAX_ANNOTATION_LENGTH = 4 * 1024 * 1024;

type FieldType = 'text' | 'texts' | 'flag' | 'count' | 'integer' | 'base64' | readonly string[];

interface Field {
  readonly type: FieldType;
  readonly required: boolean;
}

const required = (type: FieldType): Field => ({ type, required: true });
const optional = (type: FieldType): Field => ({ type, required: false });

/** Keys of each kind of annotation, in the order in which the gateway sends the keys. */
const FIELDS: Record<Annotation['kind'], Readonly<Record<string, Field>>> = {
  session: {
    id: required('text'),
    user: optional('text'),
    groups: optional('texts'),
    argv: optional('texts'),
    tty: required('flag'),
    stdin: required('flag'),
    protocol: required('text'),
    subprotocol: optional('text'),
    path: required('text'),
    cluster: optional('text'),
    moderated: optional('flag'),
  },
  stream: { name: required(['stdout', 'stderr']) },
  raw: { base64: required('base64') },
  gap: { bytes: optional('count'), reason: required('text') },
  exit: { code: optional('integer'), message: optional('text') },
  order: {
    id: required('text'),
    action: required(CONFIRMED_ACTIONS),
    by: required('text'),
    reason: required('text'),
  },
  end: {
    outcome: required(END_OUTCOMES),
    reason: optional('text'),
    outputBytes: required('count'),
    outputLines: required('count'),
  },
};

/**
 * Returns an annotation with a line break.
 *
 * @throws WireError `malformed` for a value that `parseAnnotation` would reject, `limit` for a line that is too
 * long.
 */
export function encodeAnnotation(annotation: Annotation): string {
  if (!isAnnotation(annotation))
    throw new WireError('malformed', 'a field is missing, unknown or of a wrong type');
  const given = new Map<string, unknown>(Object.entries(annotation));
  const members = ['kind', ...Object.keys(FIELDS[annotation.kind])]
    .filter((key) => given.get(key) !== undefined)
    .map((key) => `${JSON.stringify(key)}:${JSON.stringify(given.get(key))}`);
  const line = `{${members.join(',')}}\n`;
  if (line.length > MAX_ANNOTATION_LENGTH) throw new WireError('limit', 'the annotation is too long');
  return line;
}

/**
 * Parses an annotation, with or without its line break.
 *
 * @returns undefined unless the line is an annotation of at most {@link MAX_ANNOTATION_LENGTH}
 */
export function parseAnnotation(line: string): Annotation | undefined {
  const value = line.length > MAX_ANNOTATION_LENGTH ? undefined : jsonOrUndefined(line);
  return isAnnotation(value) ? value : undefined;
}

function isAnnotation(value: unknown): value is Annotation {
  if (!isRecord(value)) return false;
  const { kind, ...given } = value;
  const fields = typeof kind === 'string' ? new Map(Object.entries(FIELDS)).get(kind) : undefined;
  if (fields === undefined) return false;
  const known = new Map(Object.entries(fields));
  return (
    Object.keys(given).every((key) => known.has(key)) &&
    [...known].every(([key, { type, required: isRequired }]) =>
      given[key] === undefined ? !isRequired : hasType(given[key], type),
    )
  );
}

function hasType(value: unknown, type: FieldType): boolean {
  switch (type) {
    case 'text':
      return typeof value === 'string';
    case 'texts':
      return Array.isArray(value) && value.every((item) => typeof item === 'string');
    case 'flag':
      return typeof value === 'boolean';
    case 'count':
      return Number.isSafeInteger(value) && Number(value) >= 0;
    case 'integer':
      return Number.isSafeInteger(value);
    case 'base64':
      return typeof value === 'string' && isBase64(value);
    default:
      return typeof value === 'string' && type.includes(value);
  }
}

function isBase64(text: string): boolean {
  try {
    decodeBase64(text);
    return true;
  } catch {
    return false;
  }
}
