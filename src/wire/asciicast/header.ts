/**
 * Encodes and parses the first line of a recording: an asciicast header (docs.asciinema.org, asciicast v2) with
 * additional keys of the recorder protocol. Like clients of the reference, the encoder writes the same keys in the
 * same order and omits the same empty values.
 *
 * The parser accepts missing and `null` keys. Unknown keys are kept in `extra`, where integers stay exact.
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

/** Kubernetes session of a recording. The field names are the JSON keys. */
export interface CastKubernetes {
  readonly PodName: string;
  readonly Namespace: string;
  /** Name of the container; empty if the request named no container. */
  readonly Container: string;
  /** Type of the session: `exec` or `attach`. */
  readonly SessionType: string;
}

/** Fields of an asciicast v2 header. The field names are the JSON keys. */
export interface CastHeader {
  readonly version: 2;
  /** Columns and rows; 0 without a terminal. */
  readonly width: number;
  readonly height: number;
  /** Start of the recording, in Unix seconds. */
  readonly timestamp: number;
  /** Arguments of the command, joined with spaces. Absent if the session has no command, as for attach. */
  readonly command?: string;
  /** Tailnet node of the client: MagicDNS name without trailing dot (`srcNode`) and stable id (`srcNodeID`). */
  readonly srcNode: string;
  readonly srcNodeID: string;
  /** Tags of the client's node; present only for a tagged node. */
  readonly srcNodeTags?: readonly string[];
  /** Id (up to 64 bits) and login of the user; present only for a user's node. */
  readonly srcNodeUserID?: bigint;
  readonly srcNodeUser?: string;
  /** Environment variables; `null` for Kubernetes sessions. */
  readonly env: ReadonlyMap<string, string> | null;
  /** `sshUser`, `localUser` and `connectionID` describe SSH sessions. They are empty for other sessions. */
  readonly sshUser: string;
  readonly localUser: string;
  readonly connectionID: string;
  /** The Kubernetes session; absent for SSH sessions. */
  readonly kubernetes?: CastKubernetes;
  /** Tailnet node that uploaded the recording. The recorder adds this field before it stores the recording. */
  readonly dstNode?: string;
  readonly dstNodeID?: string;
  /**
   * Additional keys. The encoder writes them after all other keys, in the order of this map. Must not contain a key
   * that has its own field here.
   */
  readonly extra?: ReadonlyMap<string, JsonValue>;
}

/** A parsed header. */
export interface ParsedCastHeader extends CastHeader {
  readonly extra: ReadonlyMap<string, JsonValue>;
}

/**
 * Maximum length of a header line, in UTF-16 code units. The limit is high because the header contains the
 * command line.
 */
export const MAX_HEADER_LENGTH = 1024 * 1024;

/**
 * Header key that tailcast's gateway adds. Its value is the version of the conventions that the recording follows.
 * Players and the reference (Tailscale's API-server proxy and tsrecorder) ignore it.
 */
export const CONVENTIONS_KEY = 'tailcast';
/** Version 1 of the conventions: resize events contain `COLSxROWS`, as in asciicast. */
export const CONVENTIONS = 1;

/**
 * Header key that tailcast's gateway adds in `noauth` mode, in which the client uses its own credentials. Its value is
 * the audit id of the session at the API server. The value is empty if the client chose the audit id.
 */
export const AUDIT_ID_KEY = 'tailcastAuditId';

/** Header key that a gateway with several Kubernetes clusters adds: the name of the cluster. */
export const CLUSTER_KEY = 'tailcastCluster';

/** Format of cluster names: a DNS label. */
export const CLUSTER_NAME = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

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
 * Returns a header line, with a line break.
 *
 * @throws WireError `malformed` for a number that JSON cannot express or a key in `extra` that has its own field;
 *   `limit` for a line that `parseCastHeader` would reject.
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

/** Omits an empty text, like Go's `omitempty`. */
function textMember(key: string, text = ''): [string, JsonValue][] {
  return text === '' ? [] : [[key, text]];
}

function encodeKubernetes({ PodName, Namespace, Container, SessionType }: CastKubernetes): JsonObject {
  return { PodName, Namespace, Container, SessionType };
}

/**
 * Parses a header line, with or without its line break. Missing or `null` texts become empty texts, and missing numbers
 * become 0.
 *
 * @throws WireError `malformed` for invalid JSON, another version, or a value of a wrong type; `limit` for a line over
 * 1 Mi code units.
 */
export function parseCastHeader(line: string): ParsedCastHeader {
  if (line.length > MAX_HEADER_LENGTH) throw new WireError('limit', 'the header is too long');
  const json = parseJsonObject(line);
  if (jsonField(json, 'version') !== 2) throw new WireError('malformed', 'not asciicast version 2');
  const tags = stringList(json, 'srcNodeTags');
  const userId = integerField(json, 'srcNodeUserID');
  const kubernetes = object(json, 'kubernetes');
  return {
    version: 2,
    width: size(json, 'width'),
    height: size(json, 'height'),
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
 * True if the resize events of a recording contain `ROWSxCOLS`. Only the reference's API-server proxy writes them in
 * this order. The headers of its recordings contain the key `kubernetes`, but not the key that tailcast's gateway adds.
 * SSH recordings have no resize events.
 */
export function hasReversedResize(header: ParsedCastHeader): boolean {
  return header.kubernetes !== undefined && !header.extra.has(CONVENTIONS_KEY);
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
