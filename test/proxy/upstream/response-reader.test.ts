import { request } from 'node:http';
import { Duplex } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { cleanResponseHeaders } from '../../../src/kube/headers.ts';
import {
  headerList,
  MAX_RESPONSE_HEAD_BYTES,
  parseResponseHead,
  reasonPhrase,
} from '../../../src/proxy/upstream/response-head.ts';
import { ResponseReader, type ResponseSink } from '../../../src/proxy/upstream/response-reader.ts';

interface Seen {
  readonly interim: number[];
  status: number;
  reason: string;
  headers: readonly string[];
  body: string;
  trailers: readonly string[];
  ended: boolean;
}

/** Parses a response in the given pieces. */
function read(
  pieces: readonly Buffer[],
  method: string,
  needsPayload: boolean,
): Seen & { reusable: boolean } {
  const seen: Seen = {
    interim: [],
    status: 0,
    reason: '',
    headers: [],
    body: '',
    trailers: [],
    ended: false,
  };
  const sink: ResponseSink = {
    needsPayload,
    informational: (head) => seen.interim.push(head.status),
    head: (head) => {
      seen.status = head.status;
      seen.reason = reasonPhrase(head);
      seen.headers = headerList(head);
    },
    body: (chunk, start, end) => (seen.body += chunk.toString('latin1', start, end)),
    end: (trailers) => {
      seen.trailers = trailers;
      seen.ended = true;
    },
  };
  const reader = new ResponseReader();
  reader.begin(sink, method);
  for (const piece of pieces) reader.push(piece);
  if (reader.reading) reader.finish();
  return { ...seen, reusable: reader.reusable };
}

/** Reads the same response with Node's own client. */
function oracle(bytes: Buffer, method: string): Promise<Seen> {
  return new Promise((resolve, reject) => {
    const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const interim: number[] = [];
    const outgoing = request({ method, createConnection: () => socket, maxHeaderSize: 1024 * 1024 });
    outgoing.on('information', ({ statusCode }) => interim.push(statusCode));
    outgoing.on('error', reject);
    outgoing.on('response', (message) => {
      let body = '';
      message.setEncoding('latin1');
      message.on('data', (text: string) => (body += text));
      message.on('error', reject);
      message.on('end', () =>
        resolve({
          interim: interim.filter(
            (status, index) => status !== 100 || interim.indexOf(100) === index || true,
          ),
          status: message.statusCode ?? 0,
          reason: message.statusMessage ?? '',
          headers: message.rawHeaders,
          body,
          trailers: message.rawTrailers.map((text, index) => (index % 2 === 0 ? text.toLowerCase() : text)),
          ended: true,
        }),
      );
    });
    outgoing.end();
    socket.push(bytes);
    socket.push(null);
  });
}

const token = fc.stringMatching(/^x-[a-zA-Z0-9!#$&'*+.^_`|~-]{1,20}$/);
const value = fc.stringMatching(/^[!-~]([ -~\t\x80-\xff]{0,30}[!-~])?$/);
const fields = fc.array(fc.tuple(token, value), { maxLength: 6 });
const bodyBytes = fc.string({ unit: 'binary-ascii', maxLength: 60 });

interface Generated {
  readonly text: string;
  readonly method: string;
}

const response: fc.Arbitrary<Generated> = fc
  .record({
    interim: fc.array(fc.constantFrom(102, 103), { maxLength: 2 }),
    status: fc.constantFrom(200, 201, 204, 304, 404, 503),
    reason: fc.constantFrom('OK', '', 'Not Found At All'),
    fields,
    method: fc.constantFrom('GET', 'HEAD'),
    framing: fc.constantFrom('length', 'chunked', 'close'),
    chunks: fc.array(bodyBytes, { maxLength: 4 }),
    extension: fc.constantFrom('', ';a=b', ';x="y"'),
    trailers: fields,
    upper: fc.boolean(),
  })
  .map((parts) => {
    const lines = (list: readonly (readonly [string, string])[]) =>
      list.map(([name, text]) => `${name}: ${text}\r\n`).join('');
    const bodiless = parts.method === 'HEAD' || parts.status === 204 || parts.status === 304;
    const interim = parts.interim.map((status) => `HTTP/1.1 ${status} Hint\r\nLink: <x>\r\n\r\n`).join('');
    const body = parts.chunks.join('');
    const hex = (length: number) => (parts.upper ? length.toString(16).toUpperCase() : length.toString(16));
    let head = '';
    let payload = body;
    if (parts.status === 204) {
      payload = '';
    } else if (parts.framing === 'length') {
      head = `Content-Length: ${Buffer.byteLength(body, 'latin1')}\r\n`;
    } else if (parts.framing === 'chunked') {
      head = `transfer-encoding: ${parts.upper ? 'Chunked' : 'chunked'}\r\n`;
      payload = parts.chunks
        .filter((chunk) => chunk !== '')
        .map((chunk) => `${hex(chunk.length)}${parts.extension}\r\n${chunk}\r\n`)
        .concat(`0\r\n${lines(parts.trailers)}\r\n`)
        .join('');
    }
    const text =
      `${interim}HTTP/1.1 ` +
      `${parts.status}${parts.reason === '' ? ' ' : ` ${parts.reason}`}\r\n${lines(parts.fields)}${head}\r\n${bodiless ? '' : payload}`;
    return { text, method: parts.method };
  });

function cut(bytes: Buffer, points: readonly number[]): Buffer[] {
  const sorted = [...new Set(points.map((point) => point % (bytes.length + 1)))].sort((a, b) => a - b);
  const pieces: Buffer[] = [];
  let from = 0;
  for (const point of [...sorted, bytes.length]) {
    // each piece is a copy, so that the parser cannot read bytes of adjacent pieces
    if (point > from) pieces.push(Buffer.from(bytes.subarray(from, point)));
    from = point;
  }
  return pieces;
}

describe('response reader', () => {
  it('parses the same responses as Node, in any segmentation', async () => {
    await fc.assert(
      fc.asyncProperty(response, fc.array(fc.nat(), { maxLength: 12 }), async ({ text, method }, points) => {
        const bytes = Buffer.from(text, 'latin1');
        const expected = await oracle(bytes, method);
        const { reusable, ...seen } = read(cut(bytes, points), method, true);
        expect(seen).toEqual(expected);
        expect(typeof reusable).toBe('boolean');
      }),
      { numRuns: 400 },
    );
  });

  it.each([
    ['an unasked 101', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
    ['a 204 with a length', 'HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc'],
    ['a 204 in chunks', 'HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na'],
    ['a signed length', 'HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na'],
    // each of the following responses is complete, and has no other error than the named one
    [
      'a length and chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n',
    ],
    ['an unknown coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n c\r\n\r\n'],
    ['a bare LF', 'HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n'],
    ['a bare CR', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\rc\r\n\r\n'],
    ['a bare CR where its head ends', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\rX'],
    ['a NUL', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\0\r\n\r\n'],
    ['a space before the colon', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA : b\r\n\r\n'],
    ['a header without a name', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n: b\r\n\r\n'],
    ['another protocol', 'HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n'],
    ['a status of six hundred', 'HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n'],
    ['no size in a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n'],
    ['a negative chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n'],
    ['a chunk size beyond 2^52', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000\r\n'],
    ['a chunk longer than it said', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n'],
    ['a chunk line ended by LF', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n'],
    ['endless extensions', `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(5000)}`],
    [
      'endless trailers',
      `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n${'a: b\r\n'.repeat(20_000)}`,
    ],
    ['a malformed trailer', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nnothing\r\n\r\n'],
    ['interim responses without end', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(17)],
    ['an end in the head', 'HTTP/1.1 200 OK\r\nA: b\r\n'],
    ['an end in the body', 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc'],
    ['nothing at all', ''],
  ])('refuses %s', (_, text) => {
    const pieces = text === '' ? [] : [Buffer.from(text, 'latin1')];
    expect(() => read(pieces, 'GET', true)).toThrow(TailcastError);
    // the result is the same if the bytes arrive one at a time
    expect(() =>
      read(
        [...Buffer.from(text, 'latin1')].map((byte) => Buffer.from([byte])),
        'GET',
        true,
      ),
    ).toThrow(TailcastError);
  });

  it('accepts a head of exactly the maximum size, and refuses one byte more', () => {
    const around = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: \r\n\r\n';
    const fits = around.replace('A: ', `A: ${'x'.repeat(MAX_RESPONSE_HEAD_BYTES - around.length)}`);
    expect(read([Buffer.from(fits)], 'GET', true).ended).toBe(true);
    const over = fits.replace('A: ', 'A: x');
    expect(() => read([Buffer.from(over)], 'GET', true)).toThrow(TailcastError);
    expect(() => read([Buffer.from(over.slice(0, -2))], 'GET', true)).toThrow(TailcastError);
  });

  it.each([
    ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok', true],
    ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok', false],
    ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok', false],
    ['HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok', false],
    ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more', false],
    ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX', false],
    ['HTTP/1.1 200 OK\r\n\r\nuntil the end', false],
  ])('after %j reports whether the connection is reusable: %s', (text, reusable) => {
    expect(read([Buffer.from(text)], 'GET', true).reusable).toBe(reusable);
  });

  it('reports a head as clean only if there is nothing to remove', () => {
    const names = [
      'connection',
      'keep-alive',
      'proxy-connection',
      'proxy-authenticate',
      'proxy-authentication-info',
      'te',
      'upgrade',
      'alt-svc',
      'set-cookie',
      'set-cookie2',
      'content-type',
      'x-y',
      'date',
      'warning',
      'trailer',
      'audit-id',
    ];
    for (const name of names) {
      for (const spelled of [name, name.toUpperCase()]) {
        const head = parseResponseHead(Buffer.from(`HTTP/1.1 200 OK\r\n${spelled}: v\r\n\r\n`), 0)!;
        const list = headerList(head);
        const unchanged = cleanResponseHeaders(list, { keepCookies: false }) === list;
        expect({ name, clean: head.clean }).toEqual({ name, clean: unchanged });
      }
    }
  });
});

describe('a head in pieces of one byte', () => {
  it('is read in time proportional to its length', () => {
    const long = `HTTP/1.1 200 OK\r\nX-Long: ${'a'.repeat(MAX_RESPONSE_HEAD_BYTES / 2)}\r\nContent-Length: 2\r\n\r\nok`;
    const pieces = Array.from(Buffer.from(long), (byte) => Buffer.of(byte));
    const startedMs = performance.now();
    expect(read(pieces, 'GET', true)).toMatchObject({ status: 200, body: 'ok', ended: true });
    // parsing takes 0.1 s; it would take 20 s if the parser started from the beginning with each piece
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  }, 60_000);

  it('is refused when it is too long', () => {
    const long = `HTTP/1.1 200 OK\r\nX-Long: ${'a'.repeat(MAX_RESPONSE_HEAD_BYTES)}`;
    const pieces = Array.from(Buffer.from(long), (byte) => Buffer.of(byte));
    expect(() => read(pieces, 'GET', true)).toThrow('its head is too long');
  });
});
