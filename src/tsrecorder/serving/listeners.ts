/**
 * Listeners of a recorder: one address for all clients, or one for uploads and one for viewers. With two addresses,
 * firewalls and the tailnet policy can distinguish uploads from viewers. A further address serves viewers behind
 * `tailscale serve`, which sends the addresses of viewers in PROXY headers. Each address has its own limit of
 * connections.
 */
import type { ListenAddress } from '../../listen.ts';
import type { Logger } from '../../observe/logger.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import { addHealth } from './api.ts';
import { listenHttp, type HttpServer, type ProxyHeaders, type ServerOptions } from './http-server.ts';
import { NO_UPLOADS, type Uploads } from './uploads.ts';

export interface ListenersOptions extends Pick<
  ServerOptions,
  'maxConnections' | 'headTimeoutMs' | 'idleTimeoutMs' | 'streamWindowBytes' | 'connectionWindowBytes'
> {
  readonly upload: ListenAddress;
  /** Address for viewers. Default: the address for uploads. */
  readonly read: ListenAddress | undefined;
  /** Address for viewers whose connections start with a PROXY header. Default: none. */
  readonly proxied: ListenAddress | undefined;
  readonly proxyHeaders: ProxyHeaders;
  readonly uploads: Uploads;
  readonly viewers: Pick<ServerOptions, 'routes' | 'upgrade'>;
  readonly freeBytes: () => Promise<number | undefined>;
  readonly metrics: Pick<RecorderMetrics, 'connections'>;
  readonly log: Logger;
}

export interface Listeners {
  /** Address for uploads. */
  readonly address: ListenAddress;
  /** URL for uploads, `http://host:port`. */
  readonly url: string;
  /** URL for viewers. Equal to `url` if there is no separate listener. */
  readonly readUrl: string;
  /** Address for viewers whose connections start with a PROXY header, if there is one. */
  readonly proxied: ListenAddress | undefined;
  /** Closes all listeners; see {@link HttpServer.close}. */
  close(graceMs: number): Promise<void>;
}

/**
 * Time for the TLS handshake, in milliseconds. `tailscale serve` connects and sends the PROXY header before it has
 * finished the handshake with the viewer. The first handshake also waits for the issue of the certificate.
 */
const HANDSHAKE_MS = 60_000;

/**
 * Starts the listeners. Each listener has its own `maxConnections`. All listeners serve the health checks.
 *
 * @throws a system error if an address is unusable. In that case, nothing listens
 */
export async function openListeners(options: ListenersOptions): Promise<Listeners> {
  const { upload, read, proxied, proxyHeaders, uploads, viewers, freeBytes, metrics, log } = options;
  const forUploads: Serves = {
    uploads,
    routes: (app) => addHealth(app, { freeBytes, log }),
    upgrade: (_request, socket) => socket.destroy(),
  };
  const forViewers: Serves = { uploads: NO_UPLOADS, ...viewers };
  const opened: HttpServer[] = [];
  const listen = async (
    listener: 'upload' | 'read' | 'proxied',
    address: ListenAddress,
    serves: Serves & Partial<ServerOptions>,
  ): Promise<HttpServer> => {
    const server = await listenHttp({
      ...options,
      proxyHeaders: undefined,
      ...address,
      ...serves,
      onConnections: (open) => metrics.connections.set({ listener }, open),
    });
    opened.push(server);
    return server;
  };
  const close = async (graceMs: number): Promise<void> => {
    await Promise.all(opened.map((server) => server.close(graceMs)));
  };
  try {
    const first = await listen('upload', upload, read === undefined ? { uploads, ...viewers } : forUploads);
    const second = read && (await listen('read', read, forViewers));
    const third =
      proxied &&
      (await listen('proxied', proxied, { ...forViewers, proxyHeaders, headTimeoutMs: HANDSHAKE_MS }));
    return {
      address: addressOf(first),
      url: urlOf(first),
      readUrl: urlOf(second ?? first),
      proxied: third && addressOf(third),
      close,
    };
  } catch (error) {
    await close(0);
    throw error;
  }
}

type Serves = Pick<ServerOptions, 'uploads' | 'routes' | 'upgrade'>;

function addressOf({ address: { address: host, port } }: HttpServer): ListenAddress {
  return { host, port };
}

function urlOf({ address: { address, port, family } }: HttpServer): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
