/** JSON values of the API, and safe access to them. No function changes its arguments. */
export type Json = string | number | boolean | null | readonly Json[] | ApiObject;

export interface ApiObject {
  readonly [key: string]: Json | undefined;
}

/** Parses JSON. Throws `SyntaxError` for invalid text. */
export function parseApiJson(text: string): Json {
  const value: unknown = JSON.parse(text);
  return isJson(value) ? value : null;
}

/** True if `value` can be a JSON value. Only the outermost level is checked, because the values come from a parser. */
export function isJson(value: unknown): value is Json {
  return value === null || ['string', 'number', 'boolean', 'object'].includes(typeof value);
}

export function isObject(value: unknown): value is ApiObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isArray(value: unknown): value is readonly Json[] {
  return Array.isArray(value);
}

/** Returns the value at `path`; undefined if a part of the path is missing. Array indexes are decimal strings. */
export function at(value: Json | undefined, ...path: readonly string[]): Json | undefined {
  let current = value;
  for (const key of path) {
    if (isArray(current)) current = current[Number(key)];
    else if (isObject(current)) current = Object.hasOwn(current, key) ? current[key] : undefined;
    else return undefined;
  }
  return current;
}

/** Returns the string at `path`, or the empty string, which means "not set" in the API. */
export function stringAt(value: Json | undefined, ...path: readonly string[]): string {
  const found = at(value, ...path);
  return typeof found === 'string' ? found : '';
}

/** Returns the number at `path`, or undefined. */
export function numberAt(value: Json | undefined, ...path: readonly string[]): number | undefined {
  const found = at(value, ...path);
  return typeof found === 'number' ? found : undefined;
}

/** True if the value at `path` is exactly `true`. */
export function flagAt(value: Json | undefined, ...path: readonly string[]): boolean {
  return at(value, ...path) === true;
}

/** Returns the object at `path`, or an empty object. */
export function objectAt(value: Json | undefined, ...path: readonly string[]): ApiObject {
  const found = at(value, ...path);
  return isObject(found) ? found : {};
}

/** Returns the array at `path`, or an empty array. */
export function arrayAt(value: Json | undefined, ...path: readonly string[]): readonly Json[] {
  const found = at(value, ...path);
  return isArray(found) ? found : [];
}

/** Returns the strings in the array at `path`, without other elements. */
export function stringsAt(value: Json | undefined, ...path: readonly string[]): readonly string[] {
  return arrayAt(value, ...path).filter((member) => typeof member === 'string');
}

/** Returns the fields of the object at `path` whose values are strings, for example labels or annotations. */
export function stringMapAt(
  value: Json | undefined,
  ...path: readonly string[]
): ReadonlyMap<string, string> {
  const entries = Object.entries(objectAt(value, ...path));
  return new Map(entries.flatMap(([key, member]) => (typeof member === 'string' ? [[key, member]] : [])));
}

/** Returns namespace, name and UID of an API object. Missing parts are empty. */
export function identify(object: ApiObject): {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
} {
  const of = (member: string): string => stringAt(object, 'metadata', member);
  return { namespace: of('namespace'), name: of('name'), uid: of('uid') };
}

/** Returns a copy of `object` with a value at `path`; `undefined` removes the field. Creates missing parents. */
export function withValue(
  object: ApiObject,
  path: readonly [string, ...string[]],
  value: Json | undefined,
): ApiObject {
  const [key, next, ...rest] = path;
  const copy: Record<string, Json | undefined> = { ...object };
  const inner = next === undefined ? value : withValue(objectAt(object, key), [next, ...rest], value);
  if (inner === undefined) delete copy[key];
  else
    Object.defineProperty(copy, key, { value: inner, enumerable: true, writable: true, configurable: true });
  return copy;
}

/** True if two JSON values are equal. The order of fields does not matter. */
export function equalJson(left: Json | undefined, right: Json | undefined): boolean {
  if (left === right) return true;
  if (isArray(left) && isArray(right)) {
    return left.length === right.length && left.every((member, index) => equalJson(member, right[index]));
  }
  if (!isObject(left) || !isObject(right)) return false;
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  return [...keys].every((key) => equalJson(at(left, key), at(right, key)));
}
