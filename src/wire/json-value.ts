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
    parsed = JSON.parse(text, keepInteger);
  } catch (cause) {
    throw new WireError('malformed', 'not JSON', { cause });
  }
  return checkValue(parsed, 0);
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

/** A reviver: the third argument is the source text of a primitive (ECMA-262 `JSON.parse` with source text access). */
function keepInteger(_key: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== 'number' || Number.isSafeInteger(value)) return value;
  const source = context?.source;
  return source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

function checkValue(value: unknown, depth: number): JsonValue {
  if (depth > MAX_DEPTH) throw new WireError('limit', 'JSON is nested too deep');
  if (Array.isArray(value)) return value.map((item: unknown) => checkValue(item, depth + 1));
  if (isRecord(value)) return checkMembers(value, depth);
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
