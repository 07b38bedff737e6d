/** True for a JSON object: neither a list nor null. Its fields are unchecked. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
