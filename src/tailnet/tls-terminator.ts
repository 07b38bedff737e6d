/**
 * The server's side of TLS for sockets that are already connected, and from which a PROXY header may have been read.
 *
 * A `tls.Server` that listens nowhere is handed the sockets by its `connection` event, as Node documents it. It takes over
 * their native handles, so the bytes do not pass through JavaScript twice; bytes already read are fed to it.
 */
import type { Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { asError, errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { TLS_OPTIONS, type CertificateSource, type LoadedCertificate } from './certificates.ts';

export interface TlsTerminator {
  /**
   * Begins the handshake. `done` is called in the tick in which it has succeeded; when it fails, `raw` is destroyed.
   * There is no deadline here: destroying `raw` ends the attempt.
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

/** The same for a TCP socket and for the TLS socket on top of it, and for no other connection that is open. */
function connectionKey(socket: Socket): string {
  return [socket.remoteAddress, socket.remotePort, socket.localAddress, socket.localPort].join(' ');
}
