/**
 * What stands behind Services: answers over HTTP and UDP with its name and who asked, or with as many bytes as are asked for.
 *
 *   node web.ts <port>
 */
import { createSocket } from 'node:dgram';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';

const port = Number(process.argv[2] ?? '8080');
const name = process.env['POD_NAME'] ?? 'web';

const CHUNK = Buffer.alloc(64 * 1024);

createServer((request, response) => {
  const wanted = Number(new URL(request.url ?? '/', 'http://web').searchParams.get('bytes'));
  if (wanted > 0) {
    const chunks = Math.ceil(wanted / CHUNK.length);
    Readable.from(Array.from({ length: chunks }, () => CHUNK)).pipe(response);
    return;
  }
  response.end(
    JSON.stringify({
      name,
      from: request.socket.remoteAddress,
      path: request.url,
      host: request.headers.host,
      login: request.headers['tailscale-user-login'],
      caller: request.headers['x-forwarded-for'],
    }),
  );
}).listen({ port, host: '::' });

const socket = createSocket('udp6');
socket.on('message', (message, from) => socket.send(`${name}: ${String(message)}`, from.port, from.address));
socket.bind(port, '::');
process.once('SIGTERM', () => process.exit(0));
