/**
 * The API server of the benchmarks, with TLS. The server does little work per request. Its output is known, so that
 * clients can compare every byte. It has its own simple parser for HTTP/1.1, because only the load generator sends
 * requests. HTTP/2 uses Node's server.
 *
 * node upstream.js <cert> <key>      prints {"port":…}
 */
import { readFileSync } from 'node:fs';
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer, type TLSSocket } from 'node:tls';
import {
  BLOCK_BYTES,
  ContentCheck,
  createBlock,
  createSmall,
  EVENT_BYTES,
  LIST_BLOCKS,
  POST_BYTES,
} from './content.ts';
import { serveExec } from './upstream-exec.ts';

const [cert = '', key = ''] = process.argv.slice(2);
const FIELDS =
  'Audit-Id: 6d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\nCache-Control: no-cache, private\r\nContent-Type: ' +
  'application/json\r\n' +
  'X-Kubernetes-Pf-Flowschema-Uid: 0d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\n' +
  'X-Kubernetes-Pf-Prioritylevel-Uid: 1d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\nDate: Sat, 21 Nov 2026 08:00:00 GMT\r\n';
const CHUNK_BYTES = 64 * 1024;

const small = createSmall();
const smallAnswer = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\n${FIELDS}Content-Length: ${small.length}\r\n\r\n`),
  small,
]);
const block = createBlock('json');
const posted = Buffer.from(`{"received":${POST_BYTES}}`);
const postAnswer = Buffer.from(
  `HTTP/1.1 201 Created\r\n${FIELDS}Content-Length: ${posted.length}\r\n\r\n${posted.toString()}`,
);

interface List {
  readonly head: Buffer;
  /** Response bodies, which are sent in turn. */
  readonly pieces: readonly Buffer[];
  readonly count: number;
  readonly tail: string;
}

const plainPieces = cut(block, CHUNK_BYTES);
const lists = new Map<string, () => List>([
  [
    'chunked',
    once(() => ({
      head: Buffer.from(`HTTP/1.1 200 OK\r\n${FIELDS}Transfer-Encoding: chunked\r\n\r\n`),
      pieces: plainPieces.map(framed),
      count: LIST_BLOCKS * plainPieces.length,
      tail: '0\r\n\r\n',
    })),
  ],
  [
    'length',
    once(() => ({
      head: Buffer.from(`HTTP/1.1 200 OK\r\n${FIELDS}Content-Length: ${LIST_BLOCKS * BLOCK_BYTES}\r\n\r\n`),
      pieces: plainPieces,
      count: LIST_BLOCKS * plainPieces.length,
      tail: '',
    })),
  ],
]);

function cut(bytes: Buffer, size: number): readonly Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  );
}

function framed(piece: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n')]);
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

/** Serves the requests of one connection sequentially. */
function serve(socket: TLSSocket): void {
  let pending: Buffer = Buffer.alloc(0);
  let body: ContentCheck | undefined;
  const onData = (chunk: Buffer): void => {
    let bytes = chunk;
    if (body !== undefined) bytes = takeBody(chunk, body);
    if (body !== undefined) return;
    pending = pending.length === 0 ? bytes : Buffer.concat([pending, bytes]);
    for (;;) {
      const end = pending.indexOf('\r\n\r\n');
      if (end === -1) return;
      const head = pending.toString('latin1', 0, end + 2);
      const rest = pending.subarray(end + 4);
      pending = Buffer.alloc(0);
      if (/\r\nupgrade: /i.test(head)) {
        socket.off('data', onData);
        return serveExec(socket, head, rest);
      }
      if (head.startsWith('POST ')) {
        body = new ContentCheck(block, POST_BYTES);
        pending = takeBody(rest, body);
        if (body !== undefined) return;
        continue;
      }
      answer(socket, head);
      pending = rest;
    }
  };
  /** Returns the bytes after the body. */
  const takeBody = (bytes: Buffer, check: ContentCheck): Buffer => {
    const end = Math.min(bytes.length, POST_BYTES - check.received);
    check.push(bytes, 0, end);
    if (check.complete) {
      body = undefined;
      socket.write(postAnswer);
    }
    return bytes.subarray(end);
  };
  socket.on('data', onData);
}

function answer(socket: TLSSocket, head: string): void {
  if (/^GET \S*[?&]watch=true/.test(head)) return watchOnSocket(socket);
  const framing = /^GET \S*\?framing=(\w+) /.exec(head)?.[1];
  const list = framing === undefined ? undefined : lists.get(framing);
  if (list === undefined) socket.write(smallAnswer);
  else sendList(socket, list());
}

/** Writes while the socket accepts data, and continues after `drain`. */
function sendList(socket: TLSSocket, list: List): void {
  socket.write(list.head);
  let sent = 0;
  const send = (): void => {
    while (sent < list.count) {
      const piece = list.pieces[sent % list.pieces.length] ?? Buffer.alloc(0);
      sent += 1;
      if (!socket.write(piece)) return;
    }
    socket.off('drain', send);
    if (list.tail !== '') socket.write(list.tail);
  };
  socket.on('drain', send);
  send();
}

/**
 * Number of groups of watches. Each watch gets one event per second, and the groups get their events at different
 * times.
 */
const WATCH_STEPS = 50;
type SendEvent = (event: string) => void;
const wheel: Set<SendEvent>[] = Array.from({ length: WATCH_STEPS }, () => new Set());
let watches = 0;
let step = 0;
setInterval(() => {
  for (const send of wheel[step] ?? []) {
    const start = `{"type":"MODIFIED","sent":${process.hrtime.bigint()},"object":"`;
    const event = `${start.padEnd(EVENT_BYTES - 3, 'x')}"}\n`;
    send(event);
  }
  step = (step + 1) % WATCH_STEPS;
}, 1000 / WATCH_STEPS);

function addWatch(connection: TLSSocket | ServerHttp2Stream, send: SendEvent): void {
  const slot = wheel[watches++ % WATCH_STEPS];
  slot?.add(send);
  connection.once('close', () => slot?.delete(send));
}

function watchOnSocket(socket: TLSSocket): void {
  addWatch(socket, (event) => socket.write(`${event.length.toString(16)}\r\n${event}\r\n`, 'latin1'));
  socket.write(`HTTP/1.1 200 OK\r\n${FIELDS}Transfer-Encoding: chunked\r\n\r\n`);
}

function watchOnStream(stream: ServerHttp2Stream): void {
  addWatch(stream, (event) => stream.write(event, 'latin1'));
  stream.respond(headers);
}

const http2 = createHttp2Server({ settings: { maxConcurrentStreams: 1000 } });
const headers = [
  ':status',
  '200',
  ...FIELDS.trimEnd()
    .split('\r\n')
    .flatMap((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
];
const smallHeaders = [...headers, 'content-length', String(small.length)];
http2.on('stream', (stream: ServerHttp2Stream, asked) => {
  stream.on('error', () => {});
  if (/[?&]watch=true/.test(asked[':path'] ?? '')) return watchOnStream(stream);
  stream.respond(smallHeaders);
  stream.end(small);
});

const server = createServer(
  { cert: readFileSync(cert), key: readFileSync(key), noDelay: true, ALPNProtocols: ['h2', 'http/1.1'] },
  (socket) => {
    socket.on('error', () => socket.destroy());
    if (socket.alpnProtocol === 'h2') http2.emit('connection', socket);
    else serve(socket);
  },
);
server.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  const address = server.address();
  if (address !== null && typeof address === 'object') console.log(JSON.stringify({ port: address.port }));
});
