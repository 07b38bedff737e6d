/**
 * Handles accepted connections until they are passed to the handler: PROXY header, TLS handshake, deadlines,
 * and the maximum number of such connections.
 */
import { createDeadline } from '../async/deadline.ts';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { isLoopback, normaliseAddress } from './addresses.ts';
import { canonicalHost, type CertificateSource, type LoadedCertificate } from './certificates.ts';
import type { Peer } from './identity.ts';
import { readProxyHeader } from './proxy-header-reader.ts';
import { createTlsTerminator, type TlsTerminator } from './tls-terminator.ts';
import { UnfinishedHandshakes } from './unfinished-handshakes.ts';

export type Alpn = 'h2' | 'http/1.1';

export interface ReceptionOptions {
  /**
   * `require`: every connection must start with a PROXY header (v1 or v2), which contains the address of the peer. Only
   * connections from this machine are accepted.
   */
  readonly proxyProtocol: 'off' | 'require';
  /** Source of the TLS certificates; undefined without TLS. */
  readonly certificates: CertificateSource | undefined;
  readonly log: Logger;
  /** Maximum time from accept to the end of the PROXY header, in milliseconds. */
  readonly headerTimeoutMs: number;
  /** Maximum time from the PROXY header to the end of the TLS handshake, in milliseconds. */
  readonly handshakeTimeoutMs: number;
  /** Maximum number of unfinished TLS handshakes. A further connection closes an unfinished handshake. */
  readonly maxHalfOpen: number;
  /** True to add the server name and the destination address of a connection to its `Peer`. */
  readonly withEntry?: boolean;
  /** Name of the Kubernetes cluster to which all connections of the listener go. */
  readonly cluster?: string | undefined;
  /** Called when a connection is ready, in the same tick. */
  readonly handOver: (socket: Socket, alpn: Alpn, peer: Peer) => void;
}

export function createReception(options: ReceptionOptions) {
  const { log, certificates, headerTimeoutMs, handshakeTimeoutMs } = options;
  const terminator = certificates === undefined ? undefined : createTlsTerminator({ certificates, log });
  const halfOpen = new UnfinishedHandshakes();

  function refuse(raw: Socket, error: unknown, message: string): void {
    log.debug({ address: raw.remoteAddress, error: errorText(error) }, message);
    raw.destroy();
  }

  function handOver(raw: Socket, socket: Socket, alpn: Alpn, peer: Peer): void {
    halfOpen.delete(raw);
    // During the handshake, the socket closes when the client ends its side. After the handshake, an HTTP/1.1 client
    // that has ended its side can still get a response. HTTP/2 needs no half-open sockets, because it ends each
    // stream separately from the connection. Also, Node.js's HTTP/2 sessions expect that the socket closes when the
    // client ends its side.
    socket.allowHalfOpen = alpn === 'http/1.1';
    options.handOver(socket, alpn, peer);
  }

  function secure(raw: Socket, peer: Peer, tls: TlsTerminator): void {
    const deadline = createDeadline(handshakeTimeoutMs, () =>
      refuse(raw, `over ${handshakeTimeoutMs} ms`, 'TLS handshake not finished'),
    );
    raw.once('close', () => deadline.clear());
    const started = tls.start(raw, (socket, fallback) => {
      deadline.clear();
      const named = options.withEntry === true ? withServerName(peer, socket, certificates, fallback) : peer;
      handOver(raw, socket, socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1', named);
    });
    started.catch((error: unknown) => {
      log.error({ error: errorText(error) }, 'connection closed, because there is no certificate');
      raw.destroy();
    });
  }

  function admit(raw: Socket, peer: Peer): void {
    if (terminator === undefined) handOver(raw, raw, 'http/1.1', peer);
    else secure(raw, peer, terminator);
  }

  function admitProxied(raw: Socket, direct: Peer): void {
    if (!isLoopback(direct.address)) {
      refuse(raw, 'not a trusted proxy', 'PROXY header refused');
      return;
    }
    const deadline = createDeadline(headerTimeoutMs, () =>
      refuse(raw, `over ${headerTimeoutMs} ms`, 'PROXY header missing'),
    );
    readProxyHeader(
      raw,
      (header) => {
        deadline.clear();
        if (header.kind === 'local') return admit(raw, direct);
        const { source, destination } = header;
        if (halfOpen.has(raw)) halfOpen.add(raw, source.address);
        admit(raw, { ...source, source: 'proxy-protocol', ...entryOf(options, destination.address) });
      },
      (error) => {
        deadline.clear();
        refuse(raw, error, 'PROXY header refused');
      },
    );
  }

  /**
   * Closes an old connection if there are too many unfinished handshakes. This rarely affects ordinary clients, which
   * finish the handshake within milliseconds.
   */
  function limitHalfOpen(): void {
    const displaced = halfOpen.size > options.maxHalfOpen ? halfOpen.displaced() : undefined;
    if (displaced === undefined) return;
    halfOpen.delete(displaced);
    refuse(displaced, `more than ${options.maxHalfOpen}`, 'too many unfinished handshakes');
  }

  return {
    /** Raw sockets of connections that are not ready yet. */
    halfOpen,
    receive: (raw: Socket) => {
      raw.on('error', (error) => log.debug({ error: errorText(error) }, 'connection error'));
      const peer = socketPeer(raw);
      if (peer === undefined) {
        raw.destroy();
        return;
      }
      halfOpen.add(raw, peer.address);
      raw.once('close', () => halfOpen.delete(raw));
      limitHalfOpen();
      if (options.proxyProtocol === 'require') admitProxied(raw, peer);
      else admit(raw, { ...peer, ...entryOf(options, normaliseAddress(raw.localAddress ?? '')) });
    },
  };
}

function entryOf(
  { withEntry, cluster }: Pick<ReceptionOptions, 'withEntry' | 'cluster'>,
  destination: string | undefined,
): Pick<Peer, 'destination' | 'listener'> {
  return withEntry === true ? { destination, listener: cluster } : {};
}

/**
 * Adds the SNI of a connection to its peer. Without SNI, adds a function that detects host names that the certificate
 * does not cover.
 */
function withServerName(
  peer: Peer,
  { servername }: TLSSocket,
  certificates: CertificateSource | undefined,
  current: LoadedCertificate,
): Peer {
  if (typeof servername === 'string' && servername !== '') {
    return { ...peer, serverName: canonicalHost(servername) };
  }
  return { ...peer, refusesHost: (name) => certificates?.refusesHost?.(name, current) === true };
}

/** Returns `undefined` if the client has disconnected. */
function socketPeer(raw: Socket): Peer | undefined {
  const address = normaliseAddress(raw.remoteAddress ?? '');
  const port = raw.remotePort;
  return address === undefined || port === undefined ? undefined : { address, port, source: 'socket' };
}
