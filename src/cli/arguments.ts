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
