/**
 * Converts the headers of an HTTP/1.1 response for HTTP/2. HTTP/1.1 allows repeated headers. For HTTP/2, Node.js throws
 * if a header in `SINGLE` occurs twice, or if there is a connection header (RFC 9113 §8.2.2).
 *
 * Equal values of a repeated header are merged. Values of list headers are joined (RFC 9110 §5.3). For all other
 * headers, only the first value is used. `upstream/response-head` already rejects a repeated `Content-Length`.
 */

import { TailcastError } from './errors.ts';
import { CONNECTION_FIELDS } from './wire/connection-fields.ts';

/** Headers for which Node.js allows only one value in HTTP/2. A test compares this set with Node.js. */
const SINGLE: ReadonlySet<string> = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-length',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/** Headers that may occur only once, but whose single value may be a list with commas. */
const LISTS: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-language',
  'if-match',
  'if-none-match',
  'x-content-type-options',
]);

/**
 * Maximum length of a header, in bytes. Many clients use nghttp2, which closes the connection after it has decompressed
 * a longer header.
 */
const MAX_FIELD_BYTES = 60 * 1024;

/**
 * @param fields flat list of names and values, from the head or the trailer section of a response
 * @returns a new flat list with names in lower case
 * @throws TailcastError `UPSTREAM_BROKEN` for a header that is too long
 */
export function http2Fields(fields: readonly string[]): string[] {
  const flat: string[] = [];
  let places: Map<string, number> | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    const name = (fields[index] ?? '').toLowerCase();
    const value = fields[index + 1] ?? '';
    if (CONNECTION_FIELDS.has(name)) continue;
    if (name.length + value.length > MAX_FIELD_BYTES)
      throw new TailcastError('UPSTREAM_BROKEN', 'a header that is too long for HTTP/2');
    if (SINGLE.has(name)) {
      const place = (places ??= new Map<string, number>()).get(name);
      if (place !== undefined) {
        const earlier = flat[place] ?? '';
        if (LISTS.has(name) && earlier !== value) flat[place] = `${earlier}, ${value}`;
        continue;
      }
      places.set(name, flat.length + 1);
    }
    flat.push(name, value);
  }
  return flat;
}
