/**
 * Server side of TLS for connected sockets. Their PROXY header has already been read.
 *
 * A `tls.Server` that does not listen receives the sockets through its `connection` event, as the Node.js documentation
 * describes. The server takes over their native handles, so that encrypted bytes do not pass through JavaScript. Bytes
 * that were already read from a socket are also passed to the server.
 */
import type { Socket } from 'node:net';
import { createServer, type SecureContext, type TLSSocket } from 'node:tls';
import { asError, errorText, TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import {
  canonicalHost,
  TLS_OPTIONS,
  type CertificateSource,
  type LoadedCertificate,
} from './certificates.ts';

type TlsDone = (socket: TLSSocket, fallback: LoadedCertificate) => void;

export type TlsTerminator = ReturnType<typeof createTlsTerminator>;

const ALPN_PROTOCOLS: string[] = ['h2', 'http/1.1'];

export function createTlsTerminator(options: {
  readonly certificates: CertificateSource;
  readonly log: Logger;
}) {
  const { certificates, log } = options;
  const awaited = new Map<string, (socket: TLSSocket) => void>();
  let fallback: LoadedCertificate | undefined;

  async function choose(serverName: string): Promise<SecureContext> {
    const certificate = await certificates.certificate(serverName);
    const isRefused = certificates.refusesHost?.(canonicalHost(serverName), certificate) === true;
    if (!isRefused) return certificate.context;
    throw new TailcastError(
      'CERTIFICATE_UNAVAILABLE',
      `the certificate does not cover ${JSON.stringify(serverName)}`,
    );
  }

  function fail(error: unknown, socket: TLSSocket): void {
    log.debug({ address: socket.remoteAddress, error: errorText(error) }, 'TLS handshake failed');
    socket.destroy();
  }

  function finish(socket: TLSSocket): void {
    const done = awaited.get(connectionKey(socket));
    awaited.delete(connectionKey(socket));
    if (done === undefined) socket.destroy();
    else done(socket);
  }

  const server = createServer({
    ALPNProtocols: ALPN_PROTOCOLS,
    ...TLS_OPTIONS,
    SNICallback(serverName, answer) {
      choose(serverName).then(
        (context) => answer(null, context === fallback?.context ? undefined : context),
        (error: unknown) => answer(asError(error)),
      );
    },
  });
  server.on('secureConnection', (socket) => {
    const { servername } = socket;
    if (
      certificates.refusesHost === undefined ||
      !socket.isSessionReused() ||
      typeof servername !== 'string'
    ) {
      finish(socket);
      return;
    }
    // OpenSSL also resumes a session under another server name, without a call of SNICallback; so check the name here
    choose(servername).then(
      () => finish(socket),
      (error: unknown) => fail(error, socket),
    );
  });
  server.on('tlsClientError', fail);

  return {
    /**
     * Starts the handshake. Calls `done` in the same tick in which the handshake succeeds. Destroys `raw` if the
     * handshake fails. There is no timeout: destroying `raw` ends the attempt. `fallback` is the certificate for
     * clients without SNI.
     * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
     */
    async start(raw: Socket, done: TlsDone): Promise<void> {
      const current = await certificates.certificate(undefined);
      if (raw.destroyed) return;
      if (current !== fallback) {
        fallback = current;
        server.setSecureContext({
          key: current.pair.keyPem,
          cert: current.pair.certificatePem,
          ...TLS_OPTIONS,
        });
      }
      const key = connectionKey(raw);
      const secured = (socket: TLSSocket): void => done(socket, current);
      awaited.set(key, secured);
      raw.once('close', () => {
        if (awaited.get(key) === secured) awaited.delete(key);
      });
      server.emit('connection', raw);
    },
  };
}

/** Returns a map key that a TCP socket and its TLS socket share. Every other open connection has a different key. */
function connectionKey(socket: Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(' ');
}
