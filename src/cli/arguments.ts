/** Converts the arguments of commands. */
import { InvalidArgumentError } from 'commander';
import { errorText } from '../errors.ts';

/** Converts a parser, so that its error names the option. */
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
