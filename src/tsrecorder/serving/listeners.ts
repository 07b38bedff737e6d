/**
 * Listeners of a recorder: one address for all clients, or one for uploads and one for viewers. With two addresses,
 * firewalls and the tailnet policy can distinguish uploads from viewers. Each address has its own limit of connections.
 */
import type { ListenAddress } from '../../listen.ts';
import type { Logger } from '../../observe/logger.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import { addHealth } from './api.ts';
import { listenHttp, type HttpServer, type ServerOptions } from './http-server.ts';
import { NO_UPLOADS, type Uploads } from './uploads.ts';

export interface ListenersOptions extends Pick<
  ServerOptions,
  'maxConnections' | 'headTimeoutMs' | 'idleTimeoutMs' | 'streamWindowBytes' | 'connectionWindowBytes'
> {
  readonly upload: ListenAddress;
  /** Address for viewers. Default: the address for uploads. */
  readonly read: ListenAddress | undefined;
  readonly uploads: Uploads;
  readonly viewers: Pick<ServerOptions, 'routes' | 'upgrade'>;
  readonly freeBytes: () => Promise<number | undefined>;
  readonly metrics: Pick<RecorderMetrics, 'connections'>;
  readonly log: Logger;
}

export interface Listeners {
  /** Address for uploads. */
  readonly address: ListenAddress;
  /** URL for viewers: `http://host:port`. */
  readonly url: string;
  readonly readUrl: string;
  /** Closes all listeners; see {@link HttpServer.close}. */
  close(graceMs: number): Promise<void>;
}

/**
 * Starts the listeners. Each listener has its own `maxConnections`. All listeners serve the health checks.
 *
 * @throws a system error if an address is unusable. In that case, nothing listens
 */
export async function openListeners(options: ListenersOptions): Promise<Listeners> {
  const { upload, read, uploads, viewers, freeBytes, metrics, log } = options;
  const listen = (
    listener: 'upload' | 'read',
    address: ListenAddress,
    serves: Pick<ServerOptions, 'uploads' | 'routes' | 'upgrade'>,
  ): Promise<HttpServer> =>
    listenHttp({
      ...options,
      ...address,
      ...serves,
      onConnections: (open) => metrics.connections.set({ listener }, open),
    });
  if (read === undefined) {
    return describe(await listen('upload', upload, { uploads, ...viewers }), undefined);
  }
  const forUploads = await listen('upload', upload, {
    uploads,
    routes: (app) => addHealth(app, { freeBytes, log }),
    upgrade: (_request, socket) => socket.destroy(),
  });
  try {
    return describe(forUploads, await listen('read', read, { uploads: NO_UPLOADS, ...viewers }));
  } catch (error) {
    await forUploads.close(0);
    throw error;
  }
}

function describe(upload: HttpServer, read: HttpServer | undefined): Listeners {
  const { address: host, port } = upload.address;
  return {
    address: { host, port },
    url: urlOf(upload),
    readUrl: urlOf(read ?? upload),
    async close(graceMs) {
      await Promise.all([upload.close(graceMs), read?.close(graceMs)]);
    },
  };
}

function urlOf({ address: { address, port, family } }: HttpServer): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
