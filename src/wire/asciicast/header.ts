/**
 * The first line of a recording: an asciicast header (docs.asciinema.org, asciicast v2 and v3) with the keys that the
 * recorder protocol adds. Keys, their order and what is left out when empty are those of the clients in the field.
 *
 * Written is always v2. Read are v2 and v3, and old or foreign files with keys missing or `null`. What this file has no
 * name for is kept in `extra`, with integers exact.
 */
import {
  encodeJson,
  isJsonArray,
  isJsonObject,
  jsonField,
  parseJsonObject,
  type JsonObject,
  type JsonValue,
} from '../json-value.ts';
import { WireError } from '../wire-error.ts';

/** The keys are the JSON keys. */
export interface CastKubernetes {
  readonly PodName: string;
  readonly Namespace: string;
  /** Empty when the request named none. */
  readonly Container: string;
  /** `exec` or `attach`. */
  readonly SessionType: string;
}

/** A header in terms of asciicast v2. The field names are the JSON keys. */
export interface CastHeader {
  readonly version: 2;
  /** Columns and rows; 0 without a terminal. */
  readonly width: number;
  readonly height: number;
  /** Unix seconds. */
  readonly timestamp: number;
  /** argv joined with spaces; absent when there is none, as with attach. */
  readonly command?: string;
  /** The node the session came from: MagicDNS name without trailing dot, stable id. */
  readonly srcNode: string;
  readonly srcNodeID: string;
  /** Only for a tagged node. */
  readonly srcNodeTags?: readonly string[];
  /** Only for a node of a person; 64 bits. */
  readonly srcNodeUserID?: bigint;
  readonly srcNodeUser?: string;
  /** `null` for Kubernetes sessions. */
  readonly env: ReadonlyMap<string, string> | null;
  /** These three are for SSH sessions and empty otherwise. */
  readonly sshUser: string;
  readonly localUser: string;
  readonly connectionID: string;
  /** Absent for SSH sessions. */
  readonly kubernetes?: CastKubernetes;
  /** The node that uploaded, added by the recorder when it stores. */
  readonly dstNode?: string;
  readonly dstNodeID?: string;
  /** Further keys, written last and in this order. A key that has a field here is not allowed. */
  readonly extra?: ReadonlyMap<string, JsonValue>;
}

/** A header that was read: `version` says what the file is, and so how its event times count. */
export interface ParsedCastHeader extends Omit<CastHeader, 'version'> {
  readonly version: 2 | 3;
  readonly extra: ReadonlyMap<string, JsonValue>;
}

/** Longest header line in UTF-16 code units. A command line may be long; a header is not a place to store things. */
export const MAX_HEADER_LENGTH = 1024 * 1024;

/**
 * The key that our gateway adds to its headers; its value says which conventions the recording follows. It is in
 * `extra`, so the named keys stay those of the reference, and players ignore it.
 */
export const CONVENTIONS_KEY = 'tailcast';
/** Resize events are `COLSxROWS`, as asciicast has it. */
export const CONVENTIONS = 1;

/**
 * The key that our gateway adds in noauth mode, where a session runs under credentials of the client's own. Its value is
 * the id under which the audit log of the API server has the session, and empty when the client had chosen that id.
 */
export const AUDIT_ID_KEY = 'tailcastAuditId';

const NAMED: ReadonlySet<string> = new Set([
  'version',
  'width',
  'height',
  'timestamp',
  'command',
  'srcNode',
  'srcNodeID',
  'srcNodeTags',
  'srcNodeUserID',
  'srcNodeUser',
  'env',
  'sshUser',
  'localUser',
  'connectionID',
  'kubernetes',
  'dstNode',
  'dstNodeID',
]);

/**
 * A header line, ending in a line break.
 *
 * @throws WireError `malformed` for a number JSON cannot hold or a named key in `extra`; `limit` for a line that
 *   `parseCastHeader` would not take.
 */
export function encodeCastHeader(header: CastHeader): string {
  const members = namedMembers(header);
  for (const [key, value] of header.extra ?? []) {
    if (NAMED.has(key)) throw new WireError('malformed', `${key} cannot be an extra key of a header`);
    members.push([key, value]);
  }
  const text = members.map(([key, value]) => `${JSON.stringify(key)}:${encodeJson(value)}`).join(',');
  const line = `{${text}}\n`;
  if (line.length > MAX_HEADER_LENGTH) throw new WireError('limit', 'the header is too long');
  return line;
}

function namedMembers(header: CastHeader): [string, JsonValue][] {
  const { srcNodeTags = [], srcNodeUserID = 0n, env, kubernetes } = header;
  const members: [string, JsonValue][] = [
    ['version', 2],
    ['width', header.width],
    ['height', header.height],
    ['timestamp', header.timestamp],
    ...textMember('command', header.command),
    ['srcNode', header.srcNode],
    ['srcNodeID', header.srcNodeID],
  ];
  if (srcNodeTags.length > 0) members.push(['srcNodeTags', srcNodeTags]);
  if (srcNodeUserID !== 0n) members.push(['srcNodeUserID', srcNodeUserID]);
  members.push(
    ...textMember('srcNodeUser', header.srcNodeUser),
    ['env', env === null ? null : Object.fromEntries(env)],
    ['sshUser', header.sshUser],
    ['localUser', header.localUser],
    ['connectionID', header.connectionID],
  );
  if (kubernetes !== undefined) members.push(['kubernetes', encodeKubernetes(kubernetes)]);
  members.push(...textMember('dstNode', header.dstNode), ...textMember('dstNodeID', header.dstNodeID));
  return members;
}

/** Go's `omitempty`. */
function textMember(key: string, text = ''): [string, JsonValue][] {
  return text === '' ? [] : [[key, text]];
}

function encodeKubernetes({ PodName, Namespace, Container, SessionType }: CastKubernetes): JsonObject {
  return { PodName, Namespace, Container, SessionType };
}

/**
 * Reads a header line, with or without its line break. Text that is missing or `null` becomes empty, sizes and
 * timestamp 0; v3's `term.cols` and `term.rows` become `width` and `height`, and `term` itself stays in `extra`.
 *
 * @throws WireError `malformed` when it is no JSON object, no version 2 or 3, or a known key has a value of a wrong
 *   type; `limit` over 1 Mi code units.
 */
export function parseCastHeader(line: string): ParsedCastHeader {
  if (line.length > MAX_HEADER_LENGTH) throw new WireError('limit', 'the header is too long');
  const json = parseJsonObject(line);
  const version = jsonField(json, 'version');
  if (version !== 2 && version !== 3) throw new WireError('malformed', 'not asciicast version 2 or 3');
  const term = version === 3 ? object(json, 'term') : undefined;
  const tags = stringList(json, 'srcNodeTags');
  const userId = integerField(json, 'srcNodeUserID');
  const kubernetes = object(json, 'kubernetes');
  return {
    version,
    width: term === undefined ? size(json, 'width') : size(term, 'cols'),
    height: term === undefined ? size(json, 'height') : size(term, 'rows'),
    timestamp: number(json, 'timestamp'),
    ...optionalText(json, 'command'),
    srcNode: string(json, 'srcNode') ?? '',
    srcNodeID: string(json, 'srcNodeID') ?? '',
    ...(tags === undefined ? {} : { srcNodeTags: tags }),
    ...(userId === undefined ? {} : { srcNodeUserID: userId }),
    ...optionalText(json, 'srcNodeUser'),
    env: environment(json),
    sshUser: string(json, 'sshUser') ?? '',
    localUser: string(json, 'localUser') ?? '',
    connectionID: string(json, 'connectionID') ?? '',
    ...(kubernetes === undefined ? {} : { kubernetes: parseKubernetes(kubernetes) }),
    ...optionalText(json, 'dstNode'),
    ...optionalText(json, 'dstNodeID'),
    extra: new Map(Object.entries(json).filter(([key]) => !NAMED.has(key))),
  };
}

/**
 * Whether the resize events of a recording are `ROWSxCOLS`. The reference's API proxy writes them so, and it is the
 * only producer that does: its headers have `kubernetes`, and not the key our gateway adds. SSH recordings have no
 * resize events.
 */
export function hasReversedResize(header: ParsedCastHeader): boolean {
  return header.version === 2 && header.kubernetes !== undefined && !header.extra.has(CONVENTIONS_KEY);
}

function parseKubernetes(json: JsonObject): CastKubernetes {
  return {
    PodName: string(json, 'PodName') ?? '',
    Namespace: string(json, 'Namespace') ?? '',
    Container: string(json, 'Container') ?? '',
    SessionType: string(json, 'SessionType') ?? '',
  };
}

function environment(json: JsonObject): ReadonlyMap<string, string> | null {
  const env = object(json, 'env');
  if (env === undefined) return null;
  return new Map(Object.keys(env).map((name) => [name, string(env, name) ?? '']));
}

function optionalText<Key extends string>(json: JsonObject, key: Key): { readonly [K in Key]?: string } {
  const value = string(json, key);
  const found: { [K in Key]?: string } = {};
  if (value !== undefined && value !== '') found[key] = value;
  return found;
}

function string(json: JsonObject, key: string): string | undefined {
  const value = jsonField(json, key);
  if (value !== undefined && typeof value !== 'string') throw wrongType(key);
  return value;
}

function stringList(json: JsonObject, key: string): readonly string[] | undefined {
  const value = jsonField(json, key);
  if (value === undefined) return undefined;
  if (!isJsonArray(value)) throw wrongType(key);
  return value.map((item) => {
    if (typeof item !== 'string') throw wrongType(key);
    return item;
  });
}

function object(json: JsonObject, key: string): JsonObject | undefined {
  const value = jsonField(json, key);
  if (value !== undefined && !isJsonObject(value)) throw wrongType(key);
  return value;
}

function number(json: JsonObject, key: string): number {
  const value = jsonField(json, key) ?? 0;
  if (typeof value !== 'number') throw wrongType(key);
  return value;
}

function size(json: JsonObject, key: string): number {
  const value = number(json, key);
  if (!Number.isSafeInteger(value) || value < 0) throw wrongType(key);
  return value;
}

function integerField(json: JsonObject, key: string): bigint | undefined {
  const value = jsonField(json, key);
  if (value === undefined || typeof value === 'bigint') return value;
  if (typeof value !== 'number' || !Number.isInteger(value)) throw wrongType(key);
  return BigInt(value);
}

function wrongType(key: string): WireError {
  return new WireError('malformed', `${key} of the header has a value of a wrong type`);
}
