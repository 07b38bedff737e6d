/**
 * The compression dictionary of SPDY/3 header blocks (draft-mbelshe-httpbis-spdy-00 §2.6.10.1): words with 32-bit
 * lengths, then text without lengths. 1423 bytes, Adler-32 `e3c6a7c2`.
 */
const WORDS =
  'options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow ' +
  'authorization cache-control connection content-base content-encoding content-language content-length ' +
  'content-location content-md5 content-range content-type date etag expect expires from host if-match ' +
  'if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma ' +
  'proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade ' +
  'user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie ' +
  'keep-alive origin';

const TEXT =
  '100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505' +
  '203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized' +
  '403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable' +
  'Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT' +
  'chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,' +
  'text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.';

/**
 * Adler-32 of the dictionary. The first header block of each direction contains it (RFC 1950 §2.2, DICTID).
 */
export const SPDY_DICTIONARY_ID = 0xe3c6_a7c2;

/** Bytes of the dictionary. Callers must not change them. */
export const SPDY_DICTIONARY: Uint8Array = build();

function build(): Uint8Array {
  const encoder = new TextEncoder();
  const parts = WORDS.split(' ').flatMap((word) => {
    const bytes = encoder.encode(word.replace('_', ' '));
    const length = new Uint8Array(4);
    new DataView(length.buffer).setUint32(0, bytes.length);
    return [length, bytes];
  });
  parts.push(encoder.encode(TEXT));
  const dictionary = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    dictionary.set(part, offset);
    offset += part.length;
  }
  return dictionary;
}
