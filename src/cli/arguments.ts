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

/** Collects the values of a repeatable option. Unlike a list, the option does not take the words after its value. */
export function several(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}
