/**
 * Distributes connections among several API servers of one cluster. New connections go to the healthy servers in turn.
 * If a connection fails to open, the next server is tried. Each request is sent to one server, except a read-only
 * request that `upstream.ts` repeats. Idle connections to an unhealthy server are closed.
 */
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { unlessAborted } from '../../async/with-timeout.ts';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import {
  createUpstreamConnector,
  type OnRead,
  type UpstreamConnector,
  type UpstreamEndpoint,
} from './upstream-connect.ts';

/** Host and port of one API server; IPv6 without brackets. */
export interface EndpointAddress {
  readonly host: string;
  readonly port: number;
}

/** State of one API server. `problem` is undefined while the server is healthy. */
export interface EndpointState {
  readonly address: string;
  readonly problem: string | undefined;
}

export interface Endpoints extends UpstreamConnector {
  readonly states: readonly EndpointState[];
  isHealthy(socket: object): boolean;
  /** Requests `/readyz` from every API server. Never rejects. */
  check(timeoutMs: number): Promise<void>;
}

interface Endpoint {
  readonly address: string;
  readonly connector: UpstreamConnector;
  problem: string | undefined;
}

/** Timeout for opening a connection if the cluster has several API servers, in milliseconds. */
const CONNECT_TIMEOUT_MS = 3_000;
/** Statuses with which a server refuses anonymous requests to `/readyz`. Such a server counts as healthy. */
const REFUSES_ANONYMOUS: ReadonlySet<number> = new Set([401, 403]);

/**
 * @param server certificate name, CA and credentials of all API servers
 * @param addresses addresses of the API servers; at least one
 * @param readyPath path of the health check, `/readyz` below the base path
 */
export function createEndpoints(
  server: UpstreamEndpoint & { readonly hostHeader: string },
  addresses: readonly EndpointAddress[],
  readyPath: string,
): Endpoints {
  const isOnly = addresses.length === 1;
  const owners = new WeakMap<object, Endpoint>();
  const endpoints = addresses.map(({ host, port }): Endpoint => {
    const own: UpstreamEndpoint = {
      host,
      port,
      serverName: server.serverName === '' ? server.host : server.serverName,
      open: server.open,
      lookup: server.lookup,
      get tls() {
        return server.tls;
      },
    };
    const limits = isOnly ? {} : { connectTimeoutMs: CONNECT_TIMEOUT_MS };
    const address = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
    return { address, connector: createUpstreamConnector(own, limits), problem: undefined };
  });
  let turn = 0;

  /** Returns all servers, healthy servers first. Each call starts with another server. */
  function inOrder(): readonly Endpoint[] {
    if (isOnly) return endpoints;
    turn += 1;
    const rotated = endpoints.map((_, index) => endpoints[(index + turn) % endpoints.length]);
    return rotated
      .filter((endpoint) => endpoint !== undefined)
      .toSorted((one, other) => Number(one.problem !== undefined) - Number(other.problem !== undefined));
  }

  async function connectAny<T extends object>(
    open: (connector: UpstreamConnector) => Promise<T>,
  ): Promise<T> {
    const problems: TailcastError[] = [];
    for (const endpoint of inOrder()) {
      try {
        const connection = await open(endpoint.connector);
        owners.set(connection, endpoint);
        if (isOnly) endpoint.problem = undefined;
        return connection;
      } catch (error) {
        endpoint.problem = errorText(error);
        problems.push(asTailcastError(error));
      }
    }
    const [first] = problems;
    if (isOnly && first !== undefined) throw first;
    const reasons = problems.map(({ detail, message }) => detail ?? message).join('; ');
    throw new TailcastError('UPSTREAM_UNAVAILABLE', reasons, { cause: first });
  }

  return {
    get credentials() {
      return server.tls;
    },
    get states() {
      return endpoints.map(({ address, problem }) => ({ address, problem }));
    },
    isHealthy: (socket) => isOnly || owners.get(socket)?.problem === undefined,
    connect: (onRead?: OnRead) => connectAny((connector) => connector.connect(onRead)),
    connectStream: () => connectAny((connector) => connector.connectStream()),
    async check(timeoutMs) {
      await Promise.all(
        endpoints.map(async (endpoint) => {
          endpoint.problem = await probe(endpoint, { server, readyPath, timeoutMs });
        }),
      );
    },
  };
}

/** Checks one API server. Returns its problem, or undefined if it is healthy. */
async function probe(
  { connector }: Endpoint,
  options: {
    readonly server: { readonly hostHeader: string };
    readonly readyPath: string;
    readonly timeoutMs: number;
  },
): Promise<string | undefined> {
  const signal = AbortSignal.timeout(options.timeoutMs);
  let socket: Socket | undefined;
  try {
    const opening = connector.connect();
    void opening.then(
      (opened) => (signal.aborted ? opened.destroy() : undefined),
      () => {},
    );
    socket = await unlessAborted(opening, signal);
    const status = await statusOf(socket, options, signal);
    if ((status >= 200 && status < 300) || REFUSES_ANONYMOUS.has(status)) return undefined;
    return `/readyz returned ${status}`;
  } catch (error) {
    return signal.aborted ? `no response to /readyz within ${options.timeoutMs} ms` : errorText(error);
  } finally {
    socket?.destroy();
  }
}

function statusOf(
  socket: Socket,
  { server, readyPath }: Parameters<typeof probe>[1],
  signal: AbortSignal,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const asked = request({
      path: readyPath,
      headers: ['Host', server.hostHeader, 'Connection', 'close', 'User-Agent', 'tailcast'],
      setHost: false,
      createConnection: () => socket,
      signal,
    });
    asked.once('response', ({ statusCode = 0 }) => resolve(statusCode));
    asked.on('error', reject);
    asked.end();
  });
}
