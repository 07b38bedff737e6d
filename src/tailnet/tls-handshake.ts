/** The server's side of a TLS handshake on a socket that is already connected. */
import type { Socket } from 'node:net';
import { TLSSocket, type SecureContext } from 'node:tls';
import { errorText } from '../errors.ts';
import type { CertificateSource } from './certificates.ts';

const ALPN_PROTOCOLS: string[] = ['h2', 'http/1.1'];

/**
 * TLS on a raw socket, whose handle the `TLSSocket` takes over natively (bytes already read are fed to it). `done` is
 * called once, in the same tick as the handshake's end.
 */
export function handshake(
  raw: Socket,
  { fallback, certificates }: { readonly fallback: SecureContext; readonly certificates: CertificateSource },
  done: (error: unknown, socket?: TLSSocket) => void,
): void {
  const socket = new TLSSocket(raw, {
    isServer: true,
    secureContext: fallback,
    ALPNProtocols: ALPN_PROTOCOLS,
    SNICallback(serverName, answer) {
      certificates.context(serverName).then(
        (context) => answer(null, context === fallback ? undefined : context),
        (error: unknown) => answer(error instanceof Error ? error : new Error(errorText(error))),
      );
    },
  });
  let failure: unknown = 'the connection ended';
  const onError = (error: Error): void => {
    failure = error;
  };
  // A client that ends its side in mid-handshake will not finish it.
  const onEnd = (): void => {
    socket.destroy();
  };
  const onClose = (): void => done(failure);
  socket.on('error', onError);
  socket.once('end', onEnd);
  socket.once('close', onClose);
  socket.once('secure', () => {
    socket.off('error', onError);
    socket.off('end', onEnd);
    socket.off('close', onClose);
    done(undefined, socket);
  });
}
