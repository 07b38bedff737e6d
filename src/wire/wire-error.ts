/**
 * Errors of the codecs in this folder.
 *
 * `malformed`: the bytes violate the format. `limit`: the bytes exceed a limit of tailcast. `dead`: the
 * parser has already thrown an error, which is the `cause`. Messages never quote payload bytes.
 */
export type WireErrorCode = 'malformed' | 'limit' | 'dead';

export class WireError extends Error {
  override readonly name = 'WireError';
  readonly code: WireErrorCode;

  constructor(code: WireErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/**
 * Wraps a function of a parser. After `step` has thrown once, every later call throws a `WireError` with the
 * code `dead`.
 *
 * A failed parser does not know its position in the stream. It could misinterpret later bytes, and decisions about
 * recording must not depend on such a result.
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
