/**
 * Response fields as HTTP/2 can carry them. HTTP/1.1 lets a server repeat any field; Node refuses, by an exception, to send
 * a second value of the fields below over HTTP/2, and connection fields at all (RFC 9113 §8.2.2).
 *
 * What becomes of a repeated field: equal values are one value; those of a list are joined (RFC 9110 §5.3); of any other
 * the first one counts. `Content-Length` does not get here twice: `upstream/response-head` refuses a head with two.
 */

import { TailcastError } from './errors.ts';
import { CONNECTION_FIELDS } from './wire/connection-fields.ts';

/** Fields of which Node sends one value only; a test asks Node itself whether the list is whole. */
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

/** Those among them whose value is a list. */
const LISTS: ReadonlySet<string> = new Set([
  'content-encoding',
  'content-language',
  'if-match',
  'if-none-match',
  'x-content-type-options',
]);

/** A longer string makes the header decompression of many clients (nghttp2) end the whole connection. */
const MAX_FIELD_BYTES = 60 * 1024;

/**
 * @param fields flat list of a head or a trailer section, as it may go to the client
 * @returns a new flat list with names in lower case
 * @throws TailcastError `UPSTREAM_BROKEN` for a field that is too long
 */
export function http2Fields(fields: readonly string[]): string[] {
  const flat: string[] = [];
  let places: Map<string, number> | undefined;
  for (let index = 0; index < fields.length; index += 2) {
    const name = (fields[index] ?? '').toLowerCase();
    const value = fields[index + 1] ?? '';
    if (CONNECTION_FIELDS.has(name)) continue;
    if (name.length + value.length > MAX_FIELD_BYTES)
      throw new TailcastError('UPSTREAM_BROKEN', 'a header field that is too long for HTTP/2');
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
