/** Responses of a hostile API server on an HTTP/2 connection, frame by frame. */
import type { Socket } from 'node:net';
import { encodeBlock, encodeFields, encodeFrame, FLAG, FRAME, type Field } from './raw-http2.ts';

export const EMPTY = Buffer.alloc(0);

/**
 * Expected result: the status if the response is delivered; `refused`: the client gets 502; `cut`: the client gets an
 * incomplete response and an error.
 */
export type Verdict = number | 'refused' | 'cut';
export type Script = Buffer | ((id: number, socket: Socket) => void);
export interface Shape {
  readonly what: string;
  readonly answer: (id: number) => Script;
  readonly verdict: Verdict;
  /** Expected result for an HTTP/1.1 client, which reads only Content-Length bytes. Default: `verdict`. */
  readonly overHttp1?: Verdict;
  /** True if the response breaks the complete connection, including other watches on it. */
  readonly breaks?: true;
}

const number32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
};
export const setting = (name: number, value: number): Buffer =>
  encodeFrame(FRAME.settings, 0, 0, Buffer.concat([Buffer.of(0, name), number32(value)]));
export const head = (id: number, fields: readonly Field[], flags = 0): Buffer =>
  Buffer.concat(encodeBlock(fields, flags, id));
export const data = (id: number, text: string | Buffer, flags = 0): Buffer =>
  encodeFrame(FRAME.data, flags, id, Buffer.from(text));
const reset = (id: number, code: number): Buffer => encodeFrame(FRAME.reset, 0, id, number32(code));
export const goaway = (last: number, code: number): Buffer =>
  encodeFrame(FRAME.goaway, 0, 0, Buffer.concat([number32(last), number32(code)]));
export const times = (count: number, frame: Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => frame));
export const OK: Field = [':status', '200'];
const end = (id: number): Buffer => data(id, 'body', FLAG.endStream);
/** A complete response with additional headers. */
export const answer = (id: number, fields: readonly Field[], body = end(id)): Buffer =>
  Buffer.concat([head(id, [OK, ...fields]), body]);
export const withFields =
  (...fields: readonly Field[]) =>
  (id: number): Buffer =>
    answer(id, fields);
const withHead =
  (...fields: readonly Field[]) =>
  (id: number): Buffer =>
    Buffer.concat([head(id, fields), end(id)]);
/** Sends the parts separately. */
const inParts =
  (...parts: readonly ((id: number) => Buffer)[]) =>
  () =>
  (id: number, socket: Socket): void => {
    const next = (index: number): void => {
      const part = parts[index]?.(id);
      if (part !== undefined) socket.write(part, () => setTimeout(() => next(index + 1), 5));
    };
    next(0);
  };
const begun = (id: number): Buffer => Buffer.concat([head(id, [OK]), data(id, 'bo')]);

export const SHAPES: readonly Shape[] = [
  { what: 'an honest answer', answer: withFields(), verdict: 200 },
  // fields
  { what: 'Connection', answer: withFields(['connection', 'close']), verdict: 'refused' },
  { what: 'Keep-Alive', answer: withFields(['keep-alive', 'timeout=5']), verdict: 'refused' },
  { what: 'Transfer-Encoding', answer: withFields(['transfer-encoding', 'chunked']), verdict: 'refused' },
  { what: 'Upgrade', answer: withFields(['upgrade', 'h2c']), verdict: 'refused' },
  { what: 'Proxy-Connection', answer: withFields(['proxy-connection', 'close']), verdict: 'refused' },
  { what: 'TE', answer: withFields(['te', 'gzip']), verdict: 'refused' },
  { what: 'HTTP2-Settings', answer: withFields(['http2-settings', 'AAMAAABk']), verdict: 200 },
  {
    what: 'cookies and a proxy that asks',
    answer: withFields(['set-cookie', 'a=b'], ['proxy-authenticate', 'Basic']),
    verdict: 200,
  },
  { what: 'capitals in a name', answer: withFields(['X-Upper', 'a']), verdict: 'refused' },
  { what: 'a space in a name', answer: withFields(['x y', 'a']), verdict: 200 },
  { what: 'a name with a line end', answer: withFields(['x\r\ny', 'a']), verdict: 200 },
  { what: 'a name with a colon', answer: withFields(['x:evil', 'a']), verdict: 200 },
  { what: 'no name', answer: withFields(['', 'a']), verdict: 200 },
  { what: 'a value with lines', answer: withFields(['x-a', 'b\r\nx-evil: 1\r\n\r\nevil']), verdict: 200 },
  { what: 'a value with a line feed', answer: withFields(['x-a', 'b\nx-evil: 1']), verdict: 200 },
  { what: 'a NUL in a value', answer: withFields(['x-a', 'b\0x-evil\0c']), verdict: 200 },
  {
    what: 'letters whose last bytes are a line end',
    answer: withFields(['x-a', Buffer.from('a\u010d\u010ax-b: 1').toString('latin1')]),
    verdict: 200,
  },
  { what: 'two ETags', answer: withFields(['etag', '"a"'], ['etag', '"b"']), verdict: 200 },
  {
    what: 'two types',
    answer: withFields(['content-type', 'text/plain'], ['content-type', 'text/html']),
    verdict: 200,
  },
  {
    what: '300 fields',
    answer: withFields(...Array.from({ length: 300 }, (_, index): Field => [`x-${index}`, 'y'])),
    verdict: 'refused',
  },
  { what: 'a head of 40 KB', answer: withFields(['x-a', 'b'.repeat(40_000)]), verdict: 200 },
  {
    what: 'a head of 100 KB',
    answer: withFields(['x-a', 'b'.repeat(50_000)], ['x-c', 'b'.repeat(50_000)]),
    verdict: 200,
  },
  {
    what: 'a head of 300 KB',
    answer: withFields(['x-a', 'b'.repeat(300_000)]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'a head without end',
    answer: (id) =>
      Buffer.concat([
        encodeFrame(FRAME.headers, 0, id, encodeFields([OK])),
        times(40, encodeFrame(FRAME.continuation, 0, id, encodeFields([['x', 'y']]))),
      ]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'a head that others talk into',
    answer: (id) =>
      Buffer.concat([
        encodeFrame(FRAME.headers, 0, id, encodeFields([OK])),
        encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8)),
      ]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'a head that cannot be decoded',
    answer: (id) => encodeFrame(FRAME.headers, FLAG.endHeaders, id, Buffer.of(0xff, 0xff, 0xff, 0xff, 0x7f)),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'a larger table than was agreed',
    answer: (id) => encodeFrame(FRAME.headers, FLAG.endHeaders, id, Buffer.of(0x3f, 0xff, 0xff, 0x7f, 0x88)),
    verdict: 'refused',
    breaks: true,
  },
  // status
  { what: 'no status', answer: withHead(['x-a', 'b']), verdict: 'refused' },
  { what: 'two statuses', answer: withHead(OK, [':status', '404']), verdict: 'refused' },
  { what: 'a status that is late', answer: withHead(['x-a', 'b'], OK), verdict: 'refused' },
  { what: 'another pseudo field', answer: withHead(OK, [':path', '/']), verdict: 'refused' },
  ...['20', '2000', '999', '000', '-10', 'abc', '', '600', ' 200', '2e2'].map((status): Shape => ({
    what: `status ${JSON.stringify(status)}`,
    answer: withHead([':status', status]),
    verdict: 'refused',
  })),
  { what: 'a switch of protocols', answer: withHead([':status', '101'], OK), verdict: 'refused' },
  {
    what: 'a switch of protocols before the head',
    answer: inParts((id) => head(id, [[':status', '101']]), withFields()),
    verdict: 'refused',
  },
  {
    what: 'a hint that ends',
    answer: (id) => head(id, [[':status', '103']], FLAG.endStream),
    verdict: 'refused',
  },
  {
    what: 'a hint and then a body',
    answer: (id) => Buffer.concat([head(id, [[':status', '103']]), end(id)]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'some hints',
    answer: inParts(
      (id) =>
        times(
          3,
          head(id, [
            [':status', '103'],
            ['link', '<a>'],
          ]),
        ),
      withFields(),
    ),
    verdict: 200,
  },
  {
    what: 'a 100 that nobody asked for',
    answer: inParts((id) => head(id, [[':status', '100']]), withFields()),
    verdict: 200,
  },
  {
    what: 'hints without end',
    answer: inParts((id) => times(40, head(id, [[':status', '103']])), withFields()),
    verdict: 'refused',
  },
  {
    what: 'a hint that switches',
    answer: inParts(
      (id) =>
        head(id, [
          [':status', '103'],
          ['connection', 'upgrade'],
        ]),
      withFields(),
    ),
    verdict: 'refused',
  },
  {
    what: 'a hint after the head',
    answer: inParts(begun, (id) => head(id, [[':status', '103']])),
    verdict: 'cut',
  },
  // Content-Length of a body
  { what: 'its length', answer: withFields(['content-length', '4']), verdict: 200 },
  {
    what: 'a body that is short',
    answer: inParts(
      (id) => head(id, [OK, ['content-length', '9']]),
      (id) => data(id, 'bo'),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 'cut',
  },
  {
    what: 'a body that is long',
    answer: inParts(
      (id) => head(id, [OK, ['content-length', '4']]),
      (id) => data(id, 'bo'),
      (id) => data(id, 'dyHTTP/1.1 200 OK\r\n\r\n'),
      (id) => data(id, '', FLAG.endStream),
    ),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'more behind the body',
    answer: inParts(
      (id) => head(id, [OK, ['content-length', '4']]),
      (id) => data(id, 'body'),
      (id) => data(id, 'HTTP/1.1 200 OK\r\n\r\n', FLAG.endStream),
    ),
    verdict: 'cut',
    overHttp1: 200,
    breaks: true,
  },
  {
    what: 'no body where one is promised',
    answer: (id) => head(id, [OK, ['content-length', '4']], FLAG.endStream),
    verdict: 'refused',
  },
  {
    what: 'two lengths',
    answer: withFields(['content-length', '4'], ['content-length', '5']),
    verdict: 'refused',
  },
  {
    what: 'a length twice',
    answer: withFields(['content-length', '4'], ['content-length', '4']),
    verdict: 'refused',
  },
  { what: 'a list of lengths', answer: withFields(['content-length', '4, 4']), verdict: 'refused' },
  ...['-4', '+4', '4x', '', '0x4', '99999999999999999999'].map((length): Shape => ({
    what: `length ${JSON.stringify(length)}`,
    answer: withFields(['content-length', length]),
    verdict: 'refused',
  })),
  { what: 'a 204 with a body', answer: withHead([':status', '204']), verdict: 204, breaks: true },
  { what: 'a 304 with a body', answer: withHead([':status', '304']), verdict: 304, breaks: true },
  {
    what: 'a 304 with the length of what it is not',
    answer: (id) =>
      head(
        id,
        [
          [':status', '304'],
          ['content-length', '4'],
        ],
        FLAG.endStream,
      ),
    verdict: 304,
  },
  {
    what: 'a body before the head',
    answer: (id) => Buffer.concat([data(id, 'body'), head(id, [OK])]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'a body after the end',
    answer: (id) => Buffer.concat([answer(id, []), data(id, 'evil')]),
    verdict: 200,
  },
  {
    what: 'a head after the end',
    answer: (id) => Buffer.concat([answer(id, []), head(id, [OK])]),
    verdict: 200,
  },
  {
    what: 'empty pieces',
    answer: (id) => Buffer.concat([head(id, [OK]), times(500, data(id, '')), end(id)]),
    verdict: 200,
  },
  {
    what: 'empty pieces without end',
    answer: (id) => Buffer.concat([head(id, [OK]), times(2000, data(id, '')), end(id)]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'padding',
    answer: (id) =>
      Buffer.concat([
        head(id, [OK]),
        encodeFrame(
          FRAME.data,
          FLAG.padded | FLAG.endStream,
          id,
          Buffer.from('\x05body\0\0\0\0\0', 'latin1'),
        ),
      ]),
    verdict: 200,
  },
  // trailers
  {
    what: 'trailers',
    answer: inParts(
      begun,
      (id) => data(id, 'dy'),
      (id) => head(id, [['grpc-status', '0']], FLAG.endStream),
    ),
    verdict: 200,
  },
  { what: 'trailers without end', answer: inParts(begun, (id) => head(id, [['x-a', 'b']])), verdict: 'cut' },
  {
    what: 'trailers with a status',
    answer: inParts(begun, (id) => head(id, [[':status', '500']], FLAG.endStream)),
    verdict: 'cut',
  },
  {
    what: 'trailers with Connection',
    answer: inParts(begun, (id) => head(id, [['connection', 'close']], FLAG.endStream)),
    verdict: 'cut',
  },
  { what: 'two heads', answer: inParts(begun, (id) => head(id, [OK])), verdict: 'cut' },
  // ends
  ...[1, 2, 3, 5, 7, 8, 11, 13, 0xffff_ffff].flatMap((code): readonly Shape[] => [
    { what: `a reset with ${code} at once`, answer: (id) => reset(id, code), verdict: 'refused' },
    {
      what: `a reset with ${code} in the body`,
      answer: inParts(begun, (id) => reset(id, code)),
      verdict: 'cut',
    },
  ]),
  { what: 'a reset without a fault at once', answer: (id) => reset(id, 0), verdict: 'refused' },
  {
    what: 'a reset without a fault before the length is full',
    answer: inParts(
      (id) => head(id, [OK, ['content-length', '4']]),
      (id) => data(id, 'bo'),
      (id) => reset(id, 0),
    ),
    verdict: 'cut',
  },
  { what: 'a farewell that takes nothing', answer: () => goaway(0, 0), verdict: 'refused', breaks: true },
  {
    what: 'a farewell with a fault',
    answer: inParts(begun, () => goaway(0x7fff_ffff, 2)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'a farewell, and then the end',
    answer: inParts(
      begun,
      () => goaway(0x7fff_ffff, 0),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 200,
  },
  {
    what: 'a farewell, and then nothing',
    answer: () => (id, socket) => void socket.end(Buffer.concat([begun(id), goaway(0x7fff_ffff, 0)])),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'the end of the connection at once',
    answer: () => (_id, socket) => void socket.end(),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'the end of the connection in the body',
    answer: () => (id, socket) => void socket.end(begun(id)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'a crash in the body',
    answer: () => (id, socket) => void socket.write(begun(id), () => setTimeout(() => crash(socket), 5)),
    verdict: 'cut',
    breaks: true,
  },
  // the connection
  {
    what: 'room beyond all bounds on the stream',
    answer: (id) => Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, id, number32(0x7fff_ffff))]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'room of nothing on the stream',
    answer: (id) => Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, id, number32(0))]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'room beyond all bounds on the connection',
    answer: (id) => Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, 0, number32(0x7fff_ffff))]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'a push',
    answer: (id) =>
      Buffer.concat([
        begun(id),
        encodeFrame(
          FRAME.pushPromise,
          FLAG.endHeaders,
          id,
          Buffer.concat([
            number32(2),
            encodeFields([
              [':method', 'GET'],
              [':scheme', 'https'],
              [':authority', 'a'],
              [':path', '/'],
            ]),
          ]),
        ),
      ]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'pings',
    answer: (id) =>
      Buffer.concat([times(300, encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8))), answer(id, [])]),
    verdict: 200,
  },
  {
    what: 'pings without end',
    answer: (id) =>
      Buffer.concat([times(9000, encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8))), answer(id, [])]),
    verdict: 'refused',
    breaks: true,
  },
  {
    what: 'settings again and again',
    answer: (id) => Buffer.concat([times(50, encodeFrame(FRAME.settings, 0, 0, EMPTY)), answer(id, [])]),
    verdict: 200,
  },
  {
    what: 'no streams any more',
    answer: inParts(
      begun,
      () => setting(3, 0),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 200,
  },
  {
    what: 'no room for requests any more',
    answer: inParts(
      begun,
      () => setting(4, 0),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 200,
  },
  {
    what: 'no table for heads any more',
    answer: inParts(
      begun,
      () => setting(1, 0),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 200,
  },
  {
    what: 'a table without bounds',
    answer: inParts(
      begun,
      () => setting(1, 0xffff_ffff),
      (id) => data(id, 'dy', FLAG.endStream),
    ),
    verdict: 200,
  },
  {
    what: 'room beyond all bounds by a setting',
    answer: inParts(begun, () => setting(4, 0xffff_ffff)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'frames smaller than may be',
    answer: inParts(begun, () => setting(5, 1)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'the wish to be pushed to',
    answer: inParts(begun, () => setting(2, 1)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'settings on a stream',
    answer: inParts(begun, (id) => encodeFrame(FRAME.settings, 0, id, EMPTY)),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'frames that nobody knows',
    answer: (id) =>
      Buffer.concat([times(200, encodeFrame(0xbe, 0xff, id, Buffer.alloc(100))), answer(id, [])]),
    verdict: 200,
  },
  {
    what: 'other places',
    answer: (id) =>
      Buffer.concat([
        encodeFrame(
          10,
          0,
          0,
          Buffer.concat([Buffer.of(0, 5), Buffer.from('a.com'), Buffer.from('h2=":443"')]),
        ),
        encodeFrame(12, 0, 0, Buffer.concat([Buffer.of(0, 13), Buffer.from('https://a.com')])),
        answer(id, []),
      ]),
    verdict: 200,
  },
  {
    what: 'an answer to nobody',
    answer: (id) => Buffer.concat([begun(id), head(id + 20, [OK])]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'a request',
    answer: (id) =>
      Buffer.concat([
        begun(id),
        head(2, [
          [':method', 'GET'],
          [':path', '/'],
        ]),
      ]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'more padding than there is',
    answer: (id) => Buffer.concat([begun(id), encodeFrame(FRAME.data, FLAG.padded, id, Buffer.of(200, 1))]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'a frame that is too long',
    answer: (id) => Buffer.concat([begun(id), data(id, Buffer.alloc(20_000))]),
    verdict: 'cut',
    breaks: true,
  },
  {
    what: 'words of HTTP/1.1',
    answer: (id) =>
      Buffer.concat([begun(id), Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody')]),
    verdict: 'cut',
    breaks: true,
  },
];

/** Simulates the crash of a server. */
function crash(socket: Socket): void {
  ((socket as unknown as { readonly _parent?: Socket })._parent ?? socket).resetAndDestroy();
}
