/** Compares objects of the operator with those of the reference, field by field. */

/** Stands for a missing field or an empty list in a golden file, because the reference omits empty lists. */
export const NOTHING = Symbol('nothing');

/**
 * Returns the fields in which an object differs from its golden file, as paths such as
 * `spec.containers[tailscale].image`. Fields that are missing in the golden file are ignored. Lists of named items are
 * compared by name, and additional items are ignored. Other lists must be equal. The golden file may contain a regular
 * expression instead of a string.
 */
export function differences(golden: unknown, actual: unknown, at = ''): readonly string[] {
  if (golden === NOTHING) {
    return actual === undefined || (Array.isArray(actual) && actual.length === 0) ? [] : [at];
  }
  if (golden instanceof RegExp) return typeof actual === 'string' && golden.test(actual) ? [] : [at];
  if (Array.isArray(golden)) return Array.isArray(actual) ? listDifferences(golden, actual, at) : [at];
  if (!isObject(golden)) return golden === actual ? [] : [at];
  if (!isObject(actual)) return [at];
  return Object.entries(golden).flatMap(([key, value]) =>
    differences(value, actual[key], at === '' ? key : `${at}.${key}`),
  );
}

function listDifferences(
  golden: readonly unknown[],
  actual: readonly unknown[],
  at: string,
): readonly string[] {
  if (golden.length > 0 && golden.every((item) => nameOf(item) !== undefined)) {
    return golden.flatMap((item) => {
      const name = nameOf(item);
      return differences(
        item,
        actual.find((other) => nameOf(other) === name),
        `${at}[${name}]`,
      );
    });
  }
  if (golden.length !== actual.length) return [at];
  return golden.flatMap((item, index) => differences(item, actual[index], `${at}[${index}]`));
}

function nameOf(item: unknown): string | undefined {
  return isObject(item) && typeof item['name'] === 'string' ? item['name'] : undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
