import { WireError } from './wire-error.ts';

/**
 * Wraps a function of a parser. After `step` has thrown once, every later call throws a `WireError` with the
 * code `dead`.
 *
 * A failed parser does not know its position in the stream. It could misinterpret later bytes, and decisions
 * about recording must not depend on that.
 */
export function stopAfterFailure<Input, Output>(step: (input: Input) => Output): (input: Input) => Output {
  let failure: { readonly cause: unknown } | undefined;
  return (input) => {
    if (failure !== undefined) throw new WireError('dead', 'the parser has failed before', failure);
    try {
      return step(input);
    } catch (cause) {
      failure = { cause };
      throw cause;
    }
  };
}
