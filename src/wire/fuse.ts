import { WireError } from './wire-error.ts';

/**
 * Makes the failure of a parser terminal: after `step` has thrown once, every later call throws `dead`.
 *
 * A parser that failed has lost its place in the stream. Whatever it would say about later bytes is a guess, and a
 * guess must never decide what is recorded.
 */
export function fuse<Input, Output>(step: (input: Input) => Output): (input: Input) => Output {
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
