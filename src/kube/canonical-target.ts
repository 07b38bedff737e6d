/**
 * The parser of request targets.
 *
 * All decisions about a request (classification, policy, events) are based on the result of this parser, but the
 * original target is forwarded unchanged. Every program between the gateway and the API server must therefore interpret
 * the target in the same way. A target that some parser could interpret differently is refused instead of normalized.
 *
 * A target has up to two parts. The *judged* part names the Kubernetes resource. This part must not contain encoded
 * slashes, percent signs, `;` or empty segments, because no valid name contains them. The *app* part follows
 * `/api/v1/…/(pods|services|nodes)/<name>/proxy` and belongs to the program behind the proxy. It may contain encoded
 * slashes, double slashes and `;`, but no text that any parser could interpret as a dot segment, because a dot segment
 * could lead out of the app part.
 */
import { TailcastError } from '../errors.ts';

/** A parsed request target. */
export interface Target {
  /** The target as received; the gateway forwards it unchanged. */
  readonly raw: string;
  /** `raw` up to the first `?`. */
  readonly rawPath: string;
  /** `raw` after the first `?`; empty without a query. */
  readonly rawQuery: string;
  /** `rawPath`, percent-decoded exactly once. A trailing slash is kept, as in Go's `URL.Path`. */
  readonly path: string;
  /** Segments of `path` without leading and trailing slashes, as in Kubernetes' RequestInfo. */
  readonly segments: readonly string[];
  /** Decoded name-value pairs in order. Like Go's `url.ParseQuery`, the parser drops invalid pairs. */
  readonly query: TargetQuery;
}

/** Decoded name-value pairs of a query string, in order, with repeated names. */
export type TargetQuery = readonly (readonly [name: string, value: string])[];

/**
 * Maximum length of path and query together, in characters. The limit for the target together with all headers has the
 * same value.
 */
export const MAX_TARGET_LENGTH = 256 * 1024;
/** Maximum length of the path, in characters. */
export const MAX_PATH_LENGTH = 16 * 1024;
/**
 * Maximum number of pairs in the query. Go returns no pairs at all if there are more than 10,000, so the limit must be
 * lower.
 */
export const MAX_QUERY_PARAMETERS = 4096;

const SLASH = 0x2f;

/**
 * @param raw the request target of an HTTP/1.1 request line or the `:path` of an HTTP/2 request
 * @throws TailcastError `REQUEST_NOT_CANONICAL`, `TARGET_TOO_LONG`
 */
export function parseTarget(raw: string): Target {
  refuseLongTarget(raw);
  if (raw.charCodeAt(0) !== SLASH) refuse('it does not start with "/"');
  const mark = raw.indexOf('?');
  const rawPath = mark === -1 ? raw : raw.slice(0, mark);
  const rawQuery = mark === -1 ? '' : raw.slice(mark + 1);
  if (rawPath.length > MAX_PATH_LENGTH) throw new TailcastError('TARGET_TOO_LONG', 'its path is over 16 KiB');
  refuseOddCharacters(raw, rawPath.length);
  const path = needsCheck(rawPath) ? checkPath(rawPath) : rawPath;
  return { raw, rawPath, rawQuery, path, segments: splitPath(path), query: parseQuery(rawQuery) };
}

/** @throws TailcastError `TARGET_TOO_LONG` */
export function refuseLongTarget(raw: string): void {
  if (raw.length > MAX_TARGET_LENGTH) throw new TailcastError('TARGET_TOO_LONG', 'it is over 256 KiB');
}

/** Returns the first value of `name`, which is the value that Kubernetes uses for a single-valued option. */
export function firstQueryValue(query: TargetQuery, name: string): string | undefined {
  for (const pair of query) if (pair[0] === name) return pair[1];
  return undefined;
}

/** Returns every value of `name`, in order. */
export function queryValues(query: TargetQuery, name: string): readonly string[] {
  return query.filter((pair) => pair[0] === name).map((pair) => pair[1]);
}

/**
 * Returns a boolean option as the API server interprets it. The API server uses the first value. `0` and `false` (in
 * upper or lower case) are false, and all other values are true, including the empty string. Source: apimachinery
 * `Convert_Slice_string_To_bool`.
 */
export function queryFlag(query: TargetQuery, name: string): boolean {
  const value = firstQueryValue(query, name);
  // Go's strings.EqualFold treats the long s (ſ) as s; toLowerCase does not.
  return value !== undefined && value !== '0' && value.replace('ſ', 's').toLowerCase() !== 'false';
}

/**
 * Splits like Go's `strings.Trim(path, "/")` and `strings.Split(…, "/")` in `requestinfo.go`; returns no segments
 * for the root.
 */
function splitPath(path: string): readonly string[] {
  let start = 0;
  let end = path.length;
  while (start < end && path.charCodeAt(start) === SLASH) start++;
  while (end > start && path.charCodeAt(end - 1) === SLASH) end--;
  return start === end ? [] : path.slice(start, end).split('/');
}

/** Characters that are not allowed in the path, and in the query. */
const ODD_IN_PATH = /[^\x21\x22\x24-\x5b\x5d-\x7e]/;
const ODD_IN_QUERY = /[^\x21\x22\x24-\x7e]/;

/**
 * Rejects spaces, control characters, non-ASCII bytes and fragments in the target. Rejects backslashes in the path,
 * because WHATWG parsers convert them to slashes.
 */
function refuseOddCharacters(raw: string, pathLength: number): void {
  const inPath = raw.slice(0, pathLength).search(ODD_IN_PATH);
  const odd = raw[inPath < 0 ? raw.search(ODD_IN_QUERY) : inPath];
  if (odd === undefined) return;
  if (odd === '#') refuse('it holds a fragment');
  refuse(odd === '\\' ? 'its path holds a backslash' : 'it holds a character that must be percent-encoded');
}

/** Returns false for common paths without encoded or suspicious characters. */
function needsCheck(rawPath: string): boolean {
  let previous = 0;
  for (let index = 0; index < rawPath.length; index++) {
    const code = rawPath.charCodeAt(index);
    if (code === 0x25 || code === 0x3b) return true;
    if (previous === SLASH && (code === SLASH || code === 0x2e)) return true;
    previous = code;
  }
  return false;
}

/**
 * Decodes the path segment by segment, and rejects forbidden characters. The part after a `proxy` subresource belongs
 * to a program and has its own rules, in `checkAppPart`.
 */
function checkPath(rawPath: string): string {
  const rawSegments = rawPath.slice(1).split('/');
  const checked: string[] = [];
  for (const [index, rawSegment] of rawSegments.entries()) {
    if (startsAppPart(checked)) {
      return `/${checked.join('/')}/${checkAppPart(rawSegments.slice(index).join('/'))}`;
    }
    // Only the last segment may be empty; the path then ends with a slash.
    if (rawSegment === '' && (index === 0 || index < rawSegments.length - 1)) {
      if (rawPath === '/') return rawPath;
      refuse('its path holds an empty segment');
    }
    checked.push(checkSegment(rawSegment));
  }
  return `/${checked.join('/')}`;
}

/** Returns true if the next segments belong to a program behind a proxy subresource of the core API. */
function startsAppPart(checked: readonly string[]): boolean {
  if (checked.at(-1) !== 'proxy' || checked[0] !== 'api') return false;
  if (checked.length === 5) return checked[2] === 'nodes';
  if (checked.length !== 7) return false;
  return checked[2] === 'namespaces' && (checked[4] === 'pods' || checked[4] === 'services');
}

function checkSegment(rawSegment: string): string {
  const segment = decodeOnce(rawSegment);
  if (segment === '.' || segment === '..') refuse('its path holds a dot segment');
  for (let index = 0; index < segment.length; index++) {
    const code = segment.charCodeAt(index);
    if (code === SLASH || code === 0x5c) refuse('its path holds an encoded slash or backslash');
    if (code === 0x25) refuse('its path is percent-encoded twice');
    if (code === 0x3b) refuse('its path holds a ";"');
  }
  return segment;
}

function checkAppPart(rawRest: string): string {
  const rest = decodeOnce(rawRest);
  if (climbs(rest)) refuse('its path holds a dot segment');
  return rest;
}

/** Maximum number of decoding rounds. A text that is still encoded after these rounds is refused. */
const MAX_DECODINGS = 4;
const ENCODED_SEPARATOR_OR_DOT = /%(?:25|2e|2f|5c|3b)/gi;

/**
 * True if any parser could find a dot segment: after any number of decodings, with slashes or backslashes, and with or
 * without `;params`.
 */
function climbs(decoded: string): boolean {
  let text = decoded;
  for (let round = 0; round < MAX_DECODINGS; round++) {
    if (text.split(/[/\\]/).some((segment) => /^\.{1,2}(?:;.*)?$/.test(segment))) return true;
    const next = text.replace(ENCODED_SEPARATOR_OR_DOT, (escape) =>
      String.fromCharCode(Number.parseInt(escape.slice(1), 16)),
    );
    if (next === text) return false;
    text = next;
  }
  return true;
}

/**
 * Decodes percent-encoding once. Rejects invalid escapes, invalid UTF-8 including overlong forms, and control
 * characters.
 */
function decodeOnce(raw: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(raw);
  } catch (cause) {
    throw new TailcastError('REQUEST_NOT_CANONICAL', 'its path holds a bad percent-encoding', { cause });
  }
  for (let index = 0; index < decoded.length; index++) {
    const code = decoded.charCodeAt(index);
    if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) refuse('its path holds a control character');
  }
  return decoded;
}

/**
 * Parses a query like Go's `url.ParseQuery`, but without errors. Pairs are separated by `&`, a pair with a `;` or an
 * invalid escape is dropped, and `+` is a space. Invalid UTF-8 becomes U+FFFD, which no option name or valid value
 * contains.
 */
function parseQuery(rawQuery: string): TargetQuery {
  if (rawQuery === '') return [];
  const pairs: (readonly [string, string])[] = [];
  const texts = rawQuery.split('&', MAX_QUERY_PARAMETERS + 1);
  if (texts.length > MAX_QUERY_PARAMETERS) refuse(`it has more than ${MAX_QUERY_PARAMETERS} parameters`);
  for (const text of texts) {
    if (text === '' || text.includes(';')) continue;
    const equals = text.indexOf('=');
    const name = unescapeQuery(equals === -1 ? text : text.slice(0, equals));
    const value = equals === -1 ? '' : unescapeQuery(text.slice(equals + 1));
    if (name !== undefined && value !== undefined) pairs.push([name, value]);
  }
  return pairs;
}

const BAD_ESCAPE = /%(?![0-9a-f]{2})/i;

/** Decodes percent-encoding. Returns undefined if Go would reject an escape. */
function unescapeQuery(raw: string): string | undefined {
  const text = raw.includes('+') ? raw.replaceAll('+', ' ') : raw;
  if (!text.includes('%')) return text;
  if (BAD_ESCAPE.test(text)) return undefined;
  try {
    return decodeURIComponent(text);
  } catch {
    // NOTE: Go accepts invalid UTF-8, because its strings consist of bytes. Only the displayed text loses information,
    // because the original target is forwarded.
    return decodeLossy(text);
  }
}

function decodeLossy(text: string): string {
  const bytes = new Uint8Array(text.length);
  let length = 0;
  for (let index = 0; index < text.length; index++, length++) {
    if (text[index] === '%') {
      bytes[length] = Number.parseInt(text.slice(index + 1, index + 3), 16);
      index += 2;
    } else {
      bytes[length] = text.charCodeAt(index);
    }
  }
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, length));
}

function refuse(detail: string): never {
  throw new TailcastError('REQUEST_NOT_CANONICAL', detail);
}
