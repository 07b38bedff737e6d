/**
 * The API server of the benchmarks: TLS, HTTP/1.1, as little work per request as possible. `GET /small` is 2 KB with a
 * length, `GET /list` is 50 MB in chunks. It only ever sees requests without a body.
 *
 *   node bench/upstream.ts <cert> <key>      prints its port
 */
import { readFileSync } from 'node:fs';
import { createServer, type TLSSocket } from 'node:tls';
import { BULK_BYTES, SMALL_BYTES } from './sizes.ts';

const [cert = '', key = ''] = process.argv.slice(2);
const FIELDS =
  'Audit-Id: 6d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n' +
  'X-Kubernetes-Pf-Flowschema-Uid: 0d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\n' +
  'X-Kubernetes-Pf-Prioritylevel-Uid: 1d0f7e0c-2f4e-4f83-9a2c-5f6a4a6b7c8d\r\nDate: Sat, 21 Nov 2026 08:00:00 GMT\r\n';
const small = Buffer.concat([
  Buffer.from(`HTTP/1.1 200 OK\r\n${FIELDS}Content-Length: ${SMALL_BYTES}\r\n\r\n`),
  Buffer.alloc(SMALL_BYTES, 'x'),
]);
const bulkHead = Buffer.from(`HTTP/1.1 200 OK\r\n${FIELDS}Transfer-Encoding: chunked\r\n\r\n`);
const block = 64 * 1024;
const bulkChunk = Buffer.concat([
  Buffer.from(`${block.toString(16)}\r\n`),
  Buffer.alloc(block, 'y'),
  Buffer.from('\r\n'),
]);

const server = createServer(
  { cert: readFileSync(cert), key: readFileSync(key), noDelay: true, ALPNProtocols: ['http/1.1'] },
  (socket) => {
    let pending = '';
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      pending += chunk.toString('latin1');
      for (;;) {
        const end = pending.indexOf('\r\n\r\n');
        if (end === -1) return;
        const bulk = pending.startsWith('GET /list');
        pending = pending.slice(end + 4);
        if (bulk) sendBulk(socket);
        else socket.write(small);
      }
    });
  },
);

/** Writes as long as there is room; goes on when there is room again. */
function sendBulk(socket: TLSSocket): void {
  socket.write(bulkHead);
  let sent = 0;
  const send = (): void => {
    while (sent < BULK_BYTES) {
      sent += block;
      if (!socket.write(bulkChunk)) return;
    }
    socket.off('drain', send);
    socket.write('0\r\n\r\n');
  };
  socket.on('drain', send);
  send();
}

server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  if (address !== null && typeof address === 'object') console.log(address.port);
});
