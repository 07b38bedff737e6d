/**
 * Decrypts TLS and encrypts it again, with one outgoing connection for each incoming one: the minimum cost of a
 * gateway in Node.
 *
 * node tls-hop.js <json>      prints {"port":…}
 */
import { readFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { connect, createServer } from 'node:tls';

export interface TlsHopProgram {
  readonly cert: string;
  readonly key: string;
  /** Target port on this machine, and the file with the CA of the target's certificate. */
  readonly port: number;
  readonly ca: string;
}

const options = JSON.parse(process.argv[2] ?? '{}') as TlsHopProgram;
const ca = readFileSync(options.ca);
const front = {
  cert: readFileSync(options.cert),
  key: readFileSync(options.key),
  ALPNProtocols: ['http/1.1'],
};
const nothing = (): void => undefined;

const server = createServer({ ...front, noDelay: true }, (client) => {
  const upstream = connect({
    host: '127.0.0.1',
    port: options.port,
    servername: 'localhost',
    ca,
    ALPNProtocols: ['http/1.1'],
  });
  upstream.setNoDelay(true);
  pipeline(client, upstream, nothing);
  pipeline(upstream, client, nothing);
});
process.once('SIGTERM', () => process.exit(0));
server.listen(0, '127.0.0.1', 4096, () => {
  console.log(JSON.stringify({ port: (server.address() as AddressInfo).port }));
});
