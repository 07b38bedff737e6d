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
