import { WireError } from './wire-error.ts';

/**
 * Makes the failure of a parser terminal: after `step` has thrown once, every later call throws `dead`.
 *
 * A failed parser has lost its position in the stream. The interpretation of later bytes would be a guess, and
 * guesses must not decide about recording.
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
