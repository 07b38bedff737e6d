/**
 * The server side of TLS for connected sockets, whose PROXY header was read already.
 *
 * A `tls.Server` that does not listen receives the sockets through its `connection` event, as Node documents. It
 * takes over their native handles, so bytes pass JavaScript once; bytes that were read already are pushed to it.
 */
import type { Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { asError, errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { TLS_OPTIONS, type CertificateSource, type LoadedCertificate } from './certificates.ts';

export interface TlsTerminator {
  /**
   * Starts the handshake. Calls `done` in the same tick in which it succeeds; destroys `raw` if it fails. There is no
   * timeout: destroying `raw` ends the attempt.
   * @throws TailcastError `CERTIFICATE_UNAVAILABLE`
   */
  start(raw: Socket, done: (socket: TLSSocket) => void): Promise<void>;
}

const ALPN_PROTOCOLS: string[] = ['h2', 'http/1.1'];

export function createTlsTerminator(options: {
  readonly certificates: CertificateSource;
  readonly log: Logger;
}): TlsTerminator {
  const { certificates, log } = options;
  const awaited = new Map<string, (socket: TLSSocket) => void>();
  let fallback: LoadedCertificate | undefined;

  const server = createServer({
    ALPNProtocols: ALPN_PROTOCOLS,
    ...TLS_OPTIONS,
    SNICallback(serverName, answer) {
      certificates.context(serverName).then(
        (context) => answer(null, context === fallback?.context ? undefined : context),
        (error: unknown) => answer(asError(error)),
      );
    },
  });
  server.on('secureConnection', (socket) => {
    const done = awaited.get(connectionKey(socket));
    awaited.delete(connectionKey(socket));
    if (done === undefined) socket.destroy();
    else done(socket);
  });
  server.on('tlsClientError', (error, socket) => {
    log.debug({ address: socket.remoteAddress, error: errorText(error) }, 'TLS handshake failed');
    socket.destroy();
  });

  return {
    async start(raw, done) {
      const current = await certificates.fallback();
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
      awaited.set(key, done);
      raw.once('close', () => {
        if (awaited.get(key) === done) awaited.delete(key);
      });
      server.emit('connection', raw);
    },
  };
}

/** Returns the same key for a TCP socket and its TLS socket, and another key for every other open connection. */
function connectionKey(socket: Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(' ');
}
