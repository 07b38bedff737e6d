/** Decodes standard base64 with padding (RFC 4648 §4). Does not need Node.js, so it also works in browsers. */
import { WireError } from './wire-error.ts';

/** @throws WireError `malformed` for invalid characters, missing padding, or unused bits that are not zero */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  let bytes: Uint8Array<ArrayBuffer>;
  try {
    bytes = Uint8Array.fromBase64(text, { lastChunkHandling: 'strict' });
  } catch (cause) {
    throw new WireError('malformed', 'invalid base64', { cause });
  }
  // fromBase64 ignores whitespace. Without whitespace, each value has only one base64 form.
  if (Math.ceil(bytes.length / 3) * 4 !== text.length)
    throw new WireError('malformed', 'base64 contains whitespace');
  return bytes;
}
