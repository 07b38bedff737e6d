/** Responses of a hostile Service on an HTTP/2 connection, frame by frame. */
import type { Socket } from 'node:net';
import { encodeBlock, encodeFields, encodeFrame, FLAG, FRAME, type Field } from './raw-http2.ts';

const EMPTY = Buffer.alloc(0);

type Script = Buffer | ((id: number, socket: Socket) => void);

const number32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value >>> 0);
  return bytes;
};
const setting = (name: number, value: number): Buffer =>
  encodeFrame(FRAME.settings, 0, 0, Buffer.concat([Buffer.of(0, name), number32(value)]));
const head = (id: number, fields: readonly Field[], flags = 0): Buffer =>
  Buffer.concat(encodeBlock(fields, flags, id));
const data = (id: number, text: string | Buffer, flags = 0): Buffer =>
  encodeFrame(FRAME.data, flags, id, Buffer.from(text));
const reset = (id: number, code: number): Buffer => encodeFrame(FRAME.reset, 0, id, number32(code));
const goaway = (last: number, code: number): Buffer =>
  encodeFrame(FRAME.goaway, 0, 0, Buffer.concat([number32(last), number32(code)]));
const times = (count: number, frame: Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => frame));
const OK: Field = [':status', '200'];
const end = (id: number): Buffer => data(id, 'body', FLAG.endStream);
/** A complete response with only the named headers. */
const withHead =
  (...fields: readonly Field[]) =>
  (id: number): Buffer =>
    Buffer.concat([head(id, fields), end(id)]);
/** A complete response with additional headers. */
const withFields = (...fields: readonly Field[]): ((id: number) => Buffer) => withHead(OK, ...fields);
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

export const honestAnswer = withFields();

/** All responses by name. */
export const HTTP2_ANSWERS: Readonly<Record<string, (id: number) => Script>> = {
  'an honest answer': honestAnswer,
  // headers
  Connection: withFields(['connection', 'close']),
  'Keep-Alive': withFields(['keep-alive', 'timeout=5']),
  'Transfer-Encoding': withFields(['transfer-encoding', 'chunked']),
  Upgrade: withFields(['upgrade', 'h2c']),
  'Proxy-Connection': withFields(['proxy-connection', 'close']),
  TE: withFields(['te', 'gzip']),
  'HTTP2-Settings': withFields(['http2-settings', 'AAMAAABk']),
  'cookies and a proxy that asks': withFields(['set-cookie', 'a=b'], ['proxy-authenticate', 'Basic']),
  'capitals in a name': withFields(['X-Upper', 'a']),
  'a space in a name': withFields(['x y', 'a']),
  'a name with a line end': withFields(['x\r\ny', 'a']),
  'a name with a colon': withFields(['x:evil', 'a']),
  'no name': withFields(['', 'a']),
  'a value with lines': withFields(['x-a', 'b\r\nx-evil: 1\r\n\r\nevil']),
  'a value with a line feed': withFields(['x-a', 'b\nx-evil: 1']),
  'a NUL in a value': withFields(['x-a', 'b\0x-evil\0c']),
  'letters whose last bytes are a line end': withFields([
    'x-a',
    Buffer.from('a\u010d\u010ax-b: 1').toString('latin1'),
  ]),
  'two ETags': withFields(['etag', '"a"'], ['etag', '"b"']),
  'two types': withFields(['content-type', 'text/plain'], ['content-type', 'text/html']),
  '300 fields': withFields(...Array.from({ length: 300 }, (_, index): Field => [`x-${index}`, 'y'])),
  'a head of 40 KB': withFields(['x-a', 'b'.repeat(40_000)]),
  'a head of 100 KB': withFields(['x-a', 'b'.repeat(50_000)], ['x-c', 'b'.repeat(50_000)]),
  'a head of 300 KB': withFields(['x-a', 'b'.repeat(300_000)]),
  'a head without end': (id) =>
    Buffer.concat([
      encodeFrame(FRAME.headers, 0, id, encodeFields([OK])),
      times(40, encodeFrame(FRAME.continuation, 0, id, encodeFields([['x', 'y']]))),
    ]),
  'a head that others talk into': (id) =>
    Buffer.concat([
      encodeFrame(FRAME.headers, 0, id, encodeFields([OK])),
      encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8)),
    ]),
  'a head that cannot be decoded': (id) =>
    encodeFrame(FRAME.headers, FLAG.endHeaders, id, Buffer.of(0xff, 0xff, 0xff, 0xff, 0x7f)),
  'a larger table than was agreed': (id) =>
    encodeFrame(FRAME.headers, FLAG.endHeaders, id, Buffer.of(0x3f, 0xff, 0xff, 0x7f, 0x88)),
  // `:status`
  'no status': withHead(['x-a', 'b']),
  'two statuses': withHead(OK, [':status', '404']),
  'a status that is late': withHead(['x-a', 'b'], OK),
  'another pseudo field': withHead(OK, [':path', '/']),
  ...Object.fromEntries(
    ['20', '2000', '999', '000', '-10', 'abc', '', '600', ' 200', '2e2'].map((status) => [
      `status ${JSON.stringify(status)}`,
      withHead([':status', status]),
    ]),
  ),
  'a switch of protocols': withHead([':status', '101'], OK),
  'a switch of protocols before the head': inParts((id) => head(id, [[':status', '101']]), withFields()),
  'a hint that ends': (id) => head(id, [[':status', '103']], FLAG.endStream),
  'a hint and then a body': (id) => Buffer.concat([head(id, [[':status', '103']]), end(id)]),
  'some hints': inParts(
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
  'a 100 that nobody asked for': inParts((id) => head(id, [[':status', '100']]), withFields()),
  'hints without end': inParts((id) => times(40, head(id, [[':status', '103']])), withFields()),
  'a hint that switches': inParts(
    (id) =>
      head(id, [
        [':status', '103'],
        ['connection', 'upgrade'],
      ]),
    withFields(),
  ),
  'a hint after the head': inParts(begun, (id) => head(id, [[':status', '103']])),
  // Content-Length of a body
  'its length': withFields(['content-length', '4']),
  'a body that is short': inParts(
    (id) => head(id, [OK, ['content-length', '9']]),
    (id) => data(id, 'bo'),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'a body that is long': inParts(
    (id) => head(id, [OK, ['content-length', '4']]),
    (id) => data(id, 'bo'),
    (id) => data(id, 'dyHTTP/1.1 200 OK\r\n\r\n'),
    (id) => data(id, '', FLAG.endStream),
  ),
  'more behind the body': inParts(
    (id) => head(id, [OK, ['content-length', '4']]),
    (id) => data(id, 'body'),
    (id) => data(id, 'HTTP/1.1 200 OK\r\n\r\n', FLAG.endStream),
  ),
  'no body where one is promised': (id) => head(id, [OK, ['content-length', '4']], FLAG.endStream),
  'two lengths': withFields(['content-length', '4'], ['content-length', '5']),
  'a length twice': withFields(['content-length', '4'], ['content-length', '4']),
  'a list of lengths': withFields(['content-length', '4, 4']),
  ...Object.fromEntries(
    ['-4', '+4', '4x', '', '0x4', '99999999999999999999'].map((length) => [
      `length ${JSON.stringify(length)}`,
      withFields(['content-length', length]),
    ]),
  ),
  'a 204 with a body': withHead([':status', '204']),
  'a 304 with a body': withHead([':status', '304']),
  'a 304 with the length of what it is not': (id) =>
    head(
      id,
      [
        [':status', '304'],
        ['content-length', '4'],
      ],
      FLAG.endStream,
    ),
  'a body before the head': (id) => Buffer.concat([data(id, 'body'), head(id, [OK])]),
  'a body after the end': (id) => Buffer.concat([honestAnswer(id), data(id, 'evil')]),
  'a head after the end': (id) => Buffer.concat([honestAnswer(id), head(id, [OK])]),
  'empty pieces': (id) => Buffer.concat([head(id, [OK]), times(500, data(id, '')), end(id)]),
  'empty pieces without end': (id) => Buffer.concat([head(id, [OK]), times(2000, data(id, '')), end(id)]),
  padding: (id) =>
    Buffer.concat([
      head(id, [OK]),
      encodeFrame(FRAME.data, FLAG.padded | FLAG.endStream, id, Buffer.from('\x05body\0\0\0\0\0', 'latin1')),
    ]),
  // trailers
  trailers: inParts(
    begun,
    (id) => data(id, 'dy'),
    (id) => head(id, [['grpc-status', '0']], FLAG.endStream),
  ),
  'trailers without end': inParts(begun, (id) => head(id, [['x-a', 'b']])),
  'trailers with a status': inParts(begun, (id) => head(id, [[':status', '500']], FLAG.endStream)),
  'trailers with Connection': inParts(begun, (id) => head(id, [['connection', 'close']], FLAG.endStream)),
  'two heads': inParts(begun, (id) => head(id, [OK])),
  // end of the response
  ...Object.fromEntries(
    [1, 2, 3, 5, 7, 8, 11, 13, 0xffff_ffff].flatMap((code) => [
      [`a reset with ${code} at once`, (id: number) => reset(id, code)],
      [`a reset with ${code} in the body`, inParts(begun, (id) => reset(id, code))],
    ]),
  ),
  'a reset without a fault at once': (id) => reset(id, 0),
  'a reset without a fault before the length is full': inParts(
    (id) => head(id, [OK, ['content-length', '4']]),
    (id) => data(id, 'bo'),
    (id) => reset(id, 0),
  ),
  'a farewell that takes nothing': () => goaway(0, 0),
  'a farewell with a fault': inParts(begun, () => goaway(0x7fff_ffff, 2)),
  'a farewell, and then the end': inParts(
    begun,
    () => goaway(0x7fff_ffff, 0),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'a farewell, and then nothing': () => (id, socket) =>
    void socket.end(Buffer.concat([begun(id), goaway(0x7fff_ffff, 0)])),
  'the end of the connection at once': () => (_id, socket) => void socket.end(),
  'the end of the connection in the body': () => (id, socket) => void socket.end(begun(id)),
  'a crash in the body': () => (id, socket) =>
    void socket.write(begun(id), () => setTimeout(() => crash(socket), 5)),
  // frames and states of the connection
  'room beyond all bounds on the stream': (id) =>
    Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, id, number32(0x7fff_ffff))]),
  'room of nothing on the stream': (id) =>
    Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, id, number32(0))]),
  'room beyond all bounds on the connection': (id) =>
    Buffer.concat([begun(id), encodeFrame(FRAME.windowUpdate, 0, 0, number32(0x7fff_ffff))]),
  'a push': (id) =>
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
  pings: (id) =>
    Buffer.concat([times(300, encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8))), honestAnswer(id)]),
  'pings without end': (id) =>
    Buffer.concat([times(9000, encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8))), honestAnswer(id)]),
  'settings again and again': (id) =>
    Buffer.concat([times(50, encodeFrame(FRAME.settings, 0, 0, EMPTY)), honestAnswer(id)]),
  'no streams any more': inParts(
    begun,
    () => setting(3, 0),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'no room for requests any more': inParts(
    begun,
    () => setting(4, 0),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'no table for heads any more': inParts(
    begun,
    () => setting(1, 0),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'a table without bounds': inParts(
    begun,
    () => setting(1, 0xffff_ffff),
    (id) => data(id, 'dy', FLAG.endStream),
  ),
  'room beyond all bounds by a setting': inParts(begun, () => setting(4, 0xffff_ffff)),
  'frames smaller than may be': inParts(begun, () => setting(5, 1)),
  'the wish to be pushed to': inParts(begun, () => setting(2, 1)),
  'settings on a stream': inParts(begun, (id) => encodeFrame(FRAME.settings, 0, id, EMPTY)),
  'frames that nobody knows': (id) =>
    Buffer.concat([times(200, encodeFrame(0xbe, 0xff, id, Buffer.alloc(100))), honestAnswer(id)]),
  'other places': (id) =>
    Buffer.concat([
      encodeFrame(10, 0, 0, Buffer.concat([Buffer.of(0, 5), Buffer.from('a.com'), Buffer.from('h2=":443"')])),
      encodeFrame(12, 0, 0, Buffer.concat([Buffer.of(0, 13), Buffer.from('https://a.com')])),
      honestAnswer(id),
    ]),
  'an answer to nobody': (id) => Buffer.concat([begun(id), head(id + 20, [OK])]),
  'a request': (id) =>
    Buffer.concat([
      begun(id),
      head(2, [
        [':method', 'GET'],
        [':path', '/'],
      ]),
    ]),
  'more padding than there is': (id) =>
    Buffer.concat([begun(id), encodeFrame(FRAME.data, FLAG.padded, id, Buffer.of(200, 1))]),
  'a frame that is too long': (id) => Buffer.concat([begun(id), data(id, Buffer.alloc(20_000))]),
  'words of HTTP/1.1': (id) =>
    Buffer.concat([begun(id), Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody')]),
};

/** Simulates the crash of a server. */
function crash(socket: Socket): void {
  ((socket as unknown as { readonly _parent?: Socket })._parent ?? socket).resetAndDestroy();
}
