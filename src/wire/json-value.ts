/**
 * JSON whose integers stay exact. `JSON.parse` rounds what does not fit a double, and the formats here carry 64-bit ids:
 * an integer outside the safe range becomes a `bigint`, and `encodeJson` writes it back digit for digit.
 */
import { WireError } from './wire-error.ts';

export type JsonValue = null | boolean | number | bigint | string | readonly JsonValue[] | JsonObject;

/** A JSON object. It comes from outside: look keys up with `Object.hasOwn` or `jsonEntries`, not by plain access. */
export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** Deepest nesting that is read or written; far deeper than any of the formats, far from the end of the stack. */
const MAX_DEPTH = 64;

/**
 * @throws WireError `malformed` when the text is not one JSON value; `limit` when it is nested more than 64 deep.
 */
export function parseJson(text: string): JsonValue {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    throw new WireError('malformed', 'not JSON', { cause });
  }
  // only of what is known to be JSON: a number where none may stand must not become a string
  return checkValue(MAY_HOLD_LONG.test(text) ? JSON.parse(markLong(text)) : parsed, 0);
}

/** A quick look: the shortest integer that a double does not hold has 16 digits. */
const MAY_HOLD_LONG = /\d{16}/;
/** Strings are matched whole, so that nothing within them is taken for a number. */
const STRING_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
/** Before the digits of a long integer. Known to nobody outside, so that no string can look like one. */
const LONG = `${globalThis.crypto.randomUUID()}:`;

/**
 * Long integers as strings. NOTE: a reviver of `JSON.parse` is told their digits, too, but V8 of Node 26 corrupts its memory
 * when one is used on many objects of different shapes, and these come from outside.
 */
function markLong(text: string): string {
  return text.replaceAll(STRING_OR_NUMBER, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${LONG}${token}"` : token,
  );
}

/**
 * For text that nobody has promised to be JSON.
 *
 * @returns what `JSON.parse` makes of it; undefined when it is not JSON
 */
export function jsonOrUndefined(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value;
  } catch {
    return undefined;
  }
}

/** @throws WireError as `parseJson`; `malformed` also when the value is not an object. */
export function parseJsonObject(text: string): JsonObject {
  const value = parseJson(text);
  if (!isJsonObject(value)) throw new WireError('malformed', 'not a JSON object');
  return value;
}

export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `Array.isArray` for a type that is readonly. */
export function isJsonArray(value: JsonValue | undefined): value is readonly JsonValue[] {
  return Array.isArray(value);
}

/** The value under a key of the object itself; `null` counts as absent, as Go's decoder has it. */
export function jsonField(object: JsonObject, key: string): Exclude<JsonValue, null> | undefined {
  return Object.hasOwn(object, key) ? (object[key] ?? undefined) : undefined;
}

/**
 * One line of JSON, without line break.
 *
 * @throws WireError `malformed` for a number JSON cannot hold; `limit` for nesting more than 64 deep.
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
  if (isRecord(value)) return checkMembers(value, depth);
  if (typeof value === 'string' && value.startsWith(LONG)) return BigInt(value.slice(LONG.length));
  return isPrimitive(value) ? value : null;
}

function checkMembers(value: Readonly<Record<string, unknown>>, depth: number): JsonObject {
  // `fromEntries` defines properties, so a key like `__proto__` stays a key.
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [key, checkValue(member, depth + 1)]),
  );
}

function isPrimitive(value: unknown): value is boolean | number | bigint | string {
  return ['boolean', 'number', 'bigint', 'string'].includes(typeof value);
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
