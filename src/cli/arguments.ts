/** Converts the arguments of commands. */
import { InvalidArgumentError } from 'commander';
import { errorText } from '../errors.ts';

/** Wraps a parser, so that commander adds the name of the option to its errors. */
export function argument<T>(parse: (raw: unknown) => T): (raw: string) => T {
  return (raw) => {
    try {
      return parse(raw);
    } catch (error) {
      throw new InvalidArgumentError(errorText(error));
    }
  };
}

/** Collects the values of a repeatable option. Each use of the option takes exactly one value. */
export function several(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

/** Returns the value of an option, or the first value of a repeatable option. Undefined if it is empty. */
export function textOf(value: unknown): string | undefined {
  return textsOf(value)[0];
}

/** Returns the values of a repeatable option, without empty values. */
export function textsOf(value: unknown): readonly string[] {
  const all: readonly unknown[] = Array.isArray(value) ? value : [value];
  return all.filter((text) => typeof text === 'string').filter((text) => text !== '');
}
