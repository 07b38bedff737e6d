/**
 * Errors of the codecs in this folder.
 *
 * `malformed`: the bytes break the format. `limit`: one of our limits is exceeded. `dead`: the parser has thrown
 * before; `cause` is that first error. Messages never quote payload bytes.
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
