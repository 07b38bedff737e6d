/** Returns true for a JSON object, but false for a list and for null. Does not check the fields. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

type Fields = Readonly<Record<string, unknown>>;

/** Returns true if all these fields exist and have this type. */
export function hasFields(value: Fields, type: 'string' | 'number', ...names: readonly string[]): boolean {
  return names.every((name) => typeof value[name] === type);
}

/** Returns true if each of these fields is missing or has this type. */
export function mayHaveFields(
  value: Fields,
  type: 'string' | 'number',
  ...names: readonly string[]
): boolean {
  return names.every((name) => value[name] === undefined || typeof value[name] === type);
}

/** Returns true for a list of strings. */
export function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}
