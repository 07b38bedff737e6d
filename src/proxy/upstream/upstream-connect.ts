/**
 * Opens TLS connections to the API server. Connections resume TLS sessions, use TCP keep-alive, and do not use Nagle's
 * algorithm. All connections share one secure context with CA and client certificate, which saves about 25 KB per
 * connection.
 */
import { createDeadline } from '../../async/deadline.ts';
import { isIP, type LookupFunction, type OnReadOpts, type Socket } from 'node:net';
import {
  connect,
  createSecureContext,
  type ConnectionOptions,
  type SecureContext,
  type TLSSocket,
} from 'node:tls';
import { errorText, TailcastError } from '../../errors.ts';
import { SHARED_READ_BUFFER } from '../../memory/read-buffers.ts';
import { UpstreamStream } from './upstream-stream.ts';

/** Address and TLS settings of the API server. `ApiServer` of `kube/api-server` has all these fields. */
export interface UpstreamEndpoint {
  readonly host: string;
  readonly port: number;
  /** Name that the certificate must contain, if it differs from `host`. */
  readonly serverName: string | undefined;
  /** Opens a connection through a proxy. Default: connects to host and port. */
  readonly open?: ((signal: AbortSignal) => Promise<Socket>) | undefined;
  /** Resolver of `host`. Default: the resolver of the OS. */
  readonly lookup?: LookupFunction | undefined;
  /** TLS options. A change of CA or credentials replaces this object. */
  readonly tls: ConnectionOptions;
}

/**
 * Called when the first `length` bytes of the shared read buffer contain data of this connection.
 * @returns false to pause reading
 */
export type OnRead = (length: number) => boolean | void;

export type UpstreamConnector = ReturnType<typeof createUpstreamConnector>;

const KEEP_ALIVE_MS = 30_000;
const CONNECT_TIMEOUT_MS = 10_000;

/** Protocols that the gateway offers in ALPN. */
const ALPN_PROTOCOLS = ['http/1.1'];

/** @param options.connectTimeoutMs timeout for the TCP and TLS handshakes in total, default 10 s */
export function createUpstreamConnector(
  endpoint: UpstreamEndpoint,
  options: { readonly connectTimeoutMs?: number } = {},
) {
  const connectTimeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
  let made: { readonly from: ConnectionOptions; readonly context: SecureContext } | undefined;
  let session: Buffer | undefined;
  async function openTunnel(): Promise<Socket | undefined> {
    if (endpoint.open === undefined) return undefined;
    const signal = AbortSignal.timeout(connectTimeoutMs);
    try {
      return await endpoint.open(signal);
    } catch (error) {
      const where = `${endpoint.host}:${endpoint.port}`;
      if (!signal.aborted) throw error;
      const detail = `${where}: no connection within ${connectTimeoutMs} ms`;
      throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
    }
  }
  async function open(onRead: OnRead | undefined, allowHalfOpen: boolean): Promise<TLSSocket> {
    const tunnel = await openTunnel();
    return new Promise((resolve, reject) => {
      if (made?.from !== endpoint.tls) {
        made = { from: endpoint.tls, context: createSecureContext(endpoint.tls) };
        session = undefined;
      }
      const { context } = made;
      const name = endpoint.serverName ?? endpoint.host;
      const options = {
        ...endpoint.tls,
        secureContext: context,
        host: endpoint.host,
        port: endpoint.port,
        // SNI may contain only hostnames (RFC 6066 §3); without SNI, Node.js compares the certificate with `host`
        servername: isIP(name) === 0 ? name : '',
        ALPNProtocols: ALPN_PROTOCOLS,
        allowHalfOpen,
        ...(endpoint.lookup === undefined ? {} : { lookup: endpoint.lookup }),
        // Node.js ignores `onread` for an existing socket
        ...(tunnel === undefined ? {} : { socket: tunnel }),
        ...(onRead === undefined || tunnel !== undefined ? {} : { onread: readInto(onRead) }),
        ...(session === undefined ? {} : { session }),
      };
      // NOTE: `onread` is documented for `tls.connect`, but missing in the types of its options
      const socket = connect(options);
      const fail = (reason: string, cause?: unknown): void => {
        deadline.clear();
        // drops the TLS session, because an invalid session would make every later handshake fail
        session = undefined;
        socket.destroy();
        const where = `${endpoint.host}:${endpoint.port}`;
        reject(new TailcastError('UPSTREAM_UNAVAILABLE', `${where}: ${reason}`, { cause }));
      };
      const deadline = createDeadline(connectTimeoutMs, () =>
        fail(`no connection within ${connectTimeoutMs} ms`),
      );
      const onError = (error: Error): void => fail(errorText(error), error);
      const onClose = (): void => fail('the connection was closed during the TLS handshake');
      socket.once('error', onError);
      socket.once('close', onClose);
      socket.on('session', (fresh: Buffer) => {
        // a TLS session may arrive after the secure context was replaced; a resumed session skips the certificate
        // check, so only sessions of the current context are kept
        if (made?.context === context) session = fresh;
      });
      socket.once('secureConnect', () => {
        deadline.clear();
        socket.off('error', onError);
        socket.off('close', onClose);
        socket.setNoDelay(true);
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        resolve(socket);
      });
    });
  }
  return {
    /** The current credentials. A change of the credentials replaces this object. */
    get credentials(): object {
      return endpoint.tls;
    },
    /**
     * Opens a connection.
     *
     * @param onRead called for received data; the connection then emits no 'data' events. Without `onRead`, or through
     * a proxy, the connection is an ordinary stream
     * @throws TailcastError `UPSTREAM_UNAVAILABLE` with the reason if the connection fails or the timeout is over
     */
    connect: (onRead?: OnRead): Promise<TLSSocket> => open(onRead, false),
    /** Opens a connection for an upgrade, as a stream whose pieces are from `memory/read-buffers`. */
    async connectStream(): Promise<UpstreamStream> {
      const stream = new UpstreamStream();
      return stream.attach(await open((length) => stream.received(length), true));
    },
  };
}

function readInto(onRead: OnRead): OnReadOpts {
  return { buffer: SHARED_READ_BUFFER, callback: (length) => onRead(length) !== false };
}
