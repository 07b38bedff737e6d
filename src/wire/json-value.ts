/**
 * JSON with exact integers. `JSON.parse` rounds integers that a double cannot represent, and the formats in `src/wire`
 * have 64-bit ids. An integer outside the safe range becomes a `bigint`, and `encodeJson` writes it back exactly.
 */
import { WireError } from './wire-error.ts';

export type JsonValue = null | boolean | number | bigint | string | readonly JsonValue[] | JsonObject;

/**
 * An untrusted JSON object. Read it with `Object.hasOwn` or `jsonEntries`, because plain property access also
 * finds inherited properties.
 */
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** Maximum nesting depth: far more than the formats need, and far less than the stack allows. */
const MAX_DEPTH = 64;

/** @throws WireError `malformed` unless the text is one JSON value; `limit` for nesting over 64. */
export function parseJson(text: string): JsonValue {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    throw new WireError('malformed', 'not JSON', { cause });
  }
  // `markLong` is applied only to valid JSON, because it could turn an invalid number into a valid string
  return checkValue(MAY_HOLD_LONG.test(text) ? JSON.parse(markLong(text)) : parsed, 0);
}

/** Digits of an integer that a double possibly cannot represent. The shortest such integer has 16 digits. */
const MAY_HOLD_LONG = /\d{16}/;
/** Matches a complete string or a number. Digits inside a string therefore never match as a number. */
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/**
 * Prefix of long integers that were converted to strings. It is random, so that no string of the input can
 * start with it. NOTE: pages over plain HTTP have no `crypto.randomUUID`.
 */
const LONG = `${globalThis.crypto.getRandomValues(new Uint32Array(4)).join('.')}:`;

/**
 * Converts long integers to strings. NOTE: A reviver of `JSON.parse` would also get the digits, but it is not used,
 * because V8 of Node.js 26 corrupts its memory if a reviver handles many objects of different shapes. Untrusted input
 * could cause this corruption.
 */
function markLong(text: string): string {
  return text.replaceAll(STRING_OR_NUMBER, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${LONG}${token}"` : token,
  );
}

/**
 * Parses text that may be invalid JSON.
 *
 * @returns the result of `JSON.parse`; undefined for invalid JSON
 */
export function jsonOrUndefined(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value;
  } catch {
    return undefined;
  }
}

/** True if the nesting of a parsed JSON value is at most 64. `JSON.stringify` fails for a value that is much deeper. */
export function isShallow(value: unknown, depth = 0): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth <= MAX_DEPTH && Object.values(value).every((member) => isShallow(member, depth + 1));
}

/** @throws WireError as `parseJson`; `malformed` also for a value other than an object. */
export function parseJsonObject(text: string): JsonObject {
  const value = parseJson(text);
  if (!isJsonObject(value)) throw new WireError('malformed', 'not a JSON object');
  return value;
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Like `Array.isArray`, but narrows to a readonly array. */
export function isJsonArray(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value);
}

/** Returns the value of an object's own key; `null` counts as absent, as in Go's decoder. */
export function jsonField(object: JsonObject, key: string): Exclude<JsonValue, null> | undefined {
  return Object.hasOwn(object, key) ? (object[key] ?? undefined) : undefined;
}

/**
 * Returns one line of JSON, without line break.
 *
 * @throws WireError `malformed` for a number that JSON cannot express; `limit` for nesting over 64.
 */
export function encodeJson(value: JsonValue): string {
  return encodeNested(value, 0);
}

function encodeNested(value: JsonValue, depth: number): string {
  if (depth > MAX_DEPTH) throw new WireError('limit', 'JSON is nested too deep');
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number' && !Number.isFinite(value)) {
    throw new WireError('malformed', 'a number that JSON cannot hold');
  }
  if (isJsonArray(value)) return `[${value.map((item) => encodeNested(item, depth + 1)).join(',')}]`;
  if (!isJsonObject(value)) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([key, member]) => `${JSON.stringify(key)}:${encodeNested(member, depth + 1)}`,
  );
  return `{${members.join(',')}}`;
}

function checkValue(value: unknown, depth: number): JsonValue {
  if (depth > MAX_DEPTH) throw new WireError('limit', 'JSON is nested too deep');
  if (Array.isArray(value)) return value.map((item: unknown) => checkValue(item, depth + 1));
  if (typeof value === 'object' && value !== null) return checkMembers(value, depth);
  if (typeof value === 'string' && value.startsWith(LONG)) return BigInt(value.slice(LONG.length));
  return isPrimitive(value) ? value : null;
}

function checkMembers(value: object, depth: number): JsonObject {
  // `fromEntries` defines own properties, so a key like `__proto__` remains an ordinary key.
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, checkValue(member, depth + 1)]),
  );
}

function isPrimitive(value: unknown): value is boolean | number | bigint | string {
  return ['boolean', 'number', 'bigint', 'string'].includes(typeof value);
}
