/**
 * Server of the pods behind the tests' Services. The server responds over HTTP and UDP with its name and the caller's
 * address, or with the requested number of bytes. The server returns the digest of an uploaded body, and sends single
 * lines on request. The server also reports the caller over WebSocket. A server on the next port echoes over HTTP/2
 * without TLS, as gRPC servers do.
 *
 *   node web.ts <port>
 */
import { createSocket } from 'node:dgram';
import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocketServer } from 'ws';
import { bodyOf, digestOf } from './body.ts';

const port = Number(process.argv[2] ?? '8080');
const name = process.env['POD_NAME'] ?? 'web';

const CHUNK = Buffer.alloc(64 * 1024);
const LINE_MS = 300;

const factsOf = (request: IncomingMessage): string =>
  JSON.stringify({
    name,
    from: request.socket.remoteAddress,
    path: request.url,
    host: request.headers.host,
    login: request.headers['tailscale-user-login'],
    caller: request.headers['x-forwarded-for'],
  });

/** Yields lines with a pause between them. */
async function* lines(count: number): AsyncGenerator<string> {
  for (let line = 0; line < count; line += 1) {
    if (line > 0) await delay(LINE_MS);
    yield `${line}\n`;
  }
}

const server = createServer((request, response) => {
  const { searchParams } = new URL(request.url ?? '/', 'http://web');
  const number = (key: string): number => Number(searchParams.get(key));
  if (request.method === 'POST') {
    // The digest fails if the client disconnects.
    digestOf(request).then(
      (digest) => response.end(JSON.stringify(digest)),
      () => response.destroy(),
    );
    return;
  }
  if (number('body') > 0) return void Readable.from(bodyOf(number('body'))).pipe(response);
  if (number('lines') > 0) return void Readable.from(lines(number('lines'))).pipe(response);
  const wanted = number('bytes');
  if (wanted > 0) {
    const chunks = Math.ceil(wanted / CHUNK.length);
    Readable.from(Array.from({ length: chunks }, () => CHUNK)).pipe(response);
    return;
  }
  response.end(factsOf(request));
}).listen({ port, host: '::' });

new WebSocketServer({ server }).on('connection', (one, request) => {
  one.on('message', () => one.send(factsOf(request)));
});

createHttp2Server()
  .on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.respond({ 'content-type': headers['content-type'] }, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.pipe(stream);
  })
  .listen({ port: port + 1, host: '::' });

const socket = createSocket('udp6');
socket.on('message', (message, from) => socket.send(`${name}: ${String(message)}`, from.port, from.address));
socket.bind(port, '::');
process.once('SIGTERM', () => process.exit(0));
