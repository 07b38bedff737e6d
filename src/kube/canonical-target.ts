/**
 * The one reading of a request target.
 *
 * Everything that decides about a request (classification, policy, events) works on what this file returns, and the raw
 * target is forwarded unchanged. So the two must never mean different things to anybody between us and the API server:
 * a target that some parser could read in a second way is refused, not repaired.
 *
 * Two zones. The *judged* part names the Kubernetes resource; no legal name needs an encoded slash, a percent sign, a
 * `;` or an empty segment there, so they are refused. The *app* part, what follows
 * `/api/v1/…/(pods|services|nodes)/<name>/proxy`, belongs to the program behind the proxy: encoded slashes, double
 * slashes and `;` are its own business, and only a dot segment that could climb back out is refused.
 */
import { TailcastError } from '../errors.ts';

/** What a request target says, judged once. */
export interface Target {
  /** The target exactly as it was received; what is forwarded. */
  readonly raw: string;
  /** `raw` up to the first `?`. */
  readonly rawPath: string;
  /** `raw` after the first `?`, without it; empty when there is none. */
  readonly rawQuery: string;
  /** `rawPath`, percent-decoded exactly once. Keeps a trailing slash, as Go's `URL.Path` does. */
  readonly path: string;
  /** `path` without slashes at both ends, split at slashes: what Kubernetes' RequestInfo works on. */
  readonly segments: readonly string[];
  /** Decoded pairs in order, read as Go's `url.ParseQuery` reads them: pairs it drops are not here. */
  readonly query: TargetQuery;
}

/** Decoded name-value pairs of a query string, in order, repeats kept. */
export type TargetQuery = readonly (readonly [name: string, value: string])[];

/** The whole target, path and query. The limit for target and headers together is the same. */
export const MAX_TARGET_LENGTH = 256 * 1024;
/** The path alone. */
export const MAX_PATH_LENGTH = 16 * 1024;
/** Pairs in the query. Go stops reading at 10,000 and then sees no pair at all, so the limit must stay below that. */
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
  const path = needsJudging(rawPath) ? judgePath(rawPath) : rawPath;
  return { raw, rawPath, rawQuery, path, segments: splitPath(path), query: parseQuery(rawQuery) };
}

/** @throws TailcastError `TARGET_TOO_LONG` */
export function refuseLongTarget(raw: string): void {
  if (raw.length > MAX_TARGET_LENGTH) throw new TailcastError('TARGET_TOO_LONG', 'it is over 256 KiB');
}

/** The first value of `name`, which is the only one Kubernetes reads for a single-valued option. */
export function firstQueryValue(query: TargetQuery, name: string): string | undefined {
  for (const pair of query) if (pair[0] === name) return pair[1];
  return undefined;
}

/** Every value of `name`, in order. */
export function queryValues(query: TargetQuery, name: string): readonly string[] {
  return query.filter((pair) => pair[0] === name).map((pair) => pair[1]);
}

/**
 * A boolean option as the API server reads it: the first value counts, and anything but absent, `0` and `false` (any
 * case) is true, the empty string included. Source: apimachinery `Convert_Slice_string_To_bool`.
 */
export function queryFlag(query: TargetQuery, name: string): boolean {
  const value = firstQueryValue(query, name);
  // the long s folds to s in Go's strings.EqualFold, but not in toLowerCase
  return value !== undefined && value !== '0' && value.replace('ſ', 's').toLowerCase() !== 'false';
}

/** Go's `strings.Trim(path, "/")` and `strings.Split(…, "/")`, as `requestinfo.go` does it; no segments for the root. */
function splitPath(path: string): readonly string[] {
  let start = 0;
  let end = path.length;
  while (start < end && path.charCodeAt(start) === SLASH) start++;
  while (end > start && path.charCodeAt(end - 1) === SLASH) end--;
  return start === end ? [] : path.slice(start, end).split('/');
}

/** Spaces, controls, bytes outside ASCII and fragments anywhere; backslashes in the path (WHATWG parsers turn them). */
function refuseOddCharacters(raw: string, pathLength: number): void {
  for (let index = 0; index < raw.length; index++) {
    const code = raw.charCodeAt(index);
    if (code <= 0x20 || code >= 0x7f) refuse('it holds a character that must be percent-encoded');
    if (code === 0x23) refuse('it holds a fragment');
    if (code === 0x5c && index < pathLength) refuse('its path holds a backslash');
  }
}

/** False for the common path that has nothing to decode and nothing to refuse. */
function needsJudging(rawPath: string): boolean {
  let previous = 0;
  for (let index = 0; index < rawPath.length; index++) {
    const code = rawPath.charCodeAt(index);
    if (code === 0x25 || code === 0x3b) return true;
    if (previous === SLASH && (code === SLASH || code === 0x2e)) return true;
    previous = code;
  }
  return false;
}

/** Decodes a path segment by segment, refusing in each zone what that zone may not hold. */
function judgePath(rawPath: string): string {
  const rawSegments = rawPath.slice(1).split('/');
  const judged: string[] = [];
  for (const [index, rawSegment] of rawSegments.entries()) {
    if (startsAppPart(judged)) {
      return `/${judged.join('/')}/${judgeAppPart(rawSegments.slice(index).join('/'))}`;
    }
    // only the very last segment may be empty: that is a trailing slash
    if (rawSegment === '' && (index === 0 || index < rawSegments.length - 1)) {
      if (rawPath === '/') return rawPath;
      refuse('its path holds an empty segment');
    }
    judged.push(judgeSegment(rawSegment));
  }
  return `/${judged.join('/')}`;
}

/** True when what follows the already judged segments belongs to a program behind a proxy subresource of the core API. */
function startsAppPart(judged: readonly string[]): boolean {
  if (judged.at(-1) !== 'proxy' || judged[0] !== 'api') return false;
  if (judged.length === 5) return judged[2] === 'nodes';
  if (judged.length !== 7) return false;
  return judged[2] === 'namespaces' && (judged[4] === 'pods' || judged[4] === 'services');
}

function judgeSegment(rawSegment: string): string {
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

function judgeAppPart(rawRest: string): string {
  const rest = decodeOnce(rawRest);
  if (climbs(rest)) refuse('its path holds a dot segment');
  return rest;
}

/** How often an app part may be percent-encoded before it is refused instead of being understood. */
const MAX_DECODINGS = 4;
const ENCODED_SEPARATOR_OR_DOT = /%(?:25|2e|2f|5c|3b)/gi;

/**
 * True when any reader, however often it decodes, whichever slash it splits at, and whether or not it drops `;params`,
 * could see a dot segment.
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

/** One percent-decoding. Bad escapes, bytes that are not UTF-8 (overlong forms too) and control characters are refused. */
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
 * Go's `url.ParseQuery` without its error: pairs are split at `&`, a pair with a `;` or a bad escape is dropped, `+` is a
 * space. Bytes that are not UTF-8 become U+FFFD, which no option name or value that means something contains.
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

/** Undefined when Go would refuse the escape. */
function unescapeQuery(raw: string): string | undefined {
  const text = raw.includes('+') ? raw.replaceAll('+', ' ') : raw;
  if (!text.includes('%')) return text;
  if (BAD_ESCAPE.test(text)) return undefined;
  try {
    return decodeURIComponent(text);
  } catch {
    // NOTE: not an error for Go, whose strings are bytes; only the text we show is lossy, the raw target is forwarded
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
