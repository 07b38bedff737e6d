/**
 * Listens on ports, and forwards each connection to the same port of one target. `dial` opens the connection to the
 * target. If one end reads slowly, back-pressure stops the other end.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { errorText } from '../errors.ts';
import { createKeyedCounter } from '../keyed-counter.ts';
import { listenOn } from '../listen.ts';
import type { Logger } from '../observe/logger.ts';

/** Result of a forwarded connection. */
export type ForwardOutcome = 'done' | 'broken' | 'unreachable' | 'refused';

export interface ForwarderOptions {
  readonly host: string;
  /** True if clients with this address may connect. Default: all addresses. */
  readonly accepts?: (address: string) => boolean;
  readonly ports: readonly number[];
  /**
   * Connects to a port of the target. Ending the returned stream closes both directions, because it does not support
   * half-closed connections.
   */
  readonly dial: (port: number, signal: AbortSignal) => Promise<Duplex>;
  readonly onEnd: (outcome: ForwardOutcome) => void;
  readonly log: Logger;
  /**
   * Maximum number of concurrent connections. One address may use at most half of the connections that other addresses
   * leave free. Further connections are reset.
   */
  readonly maxConnections?: number;
}

export type Forwarder = Awaited<ReturnType<typeof openForwarder>>;

const MAX_CONNECTIONS = 10_000;
const LINGER_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;

/** @throws Error of the OS, such as `EADDRINUSE` */
export async function openForwarder(options: ForwarderOptions) {
  const { host, log, accepts = () => true, maxConnections = MAX_CONNECTIONS } = options;
  const sockets = new Set<Socket>();
  const slots = createKeyedCounter();
  const over = new AbortController();
  const servers: Server[] = [];
  const bound: number[] = [];
  const close = async (): Promise<void> => {
    over.abort(new Error('the forwarder ends'));
    const closed = servers.map((server) => new Promise<void>((done) => server.close(() => done())));
    for (const socket of sockets) socket.destroy();
    await Promise.all(closed);
    sockets.clear();
  };
  function take(socket: Socket, port: number): void {
    const { remoteAddress = '' } = socket;
    const leave = accepts(remoteAddress) ? slots.takeShare(remoteAddress, maxConnections) : undefined;
    if (leave === undefined) {
      socket.resetAndDestroy();
      options.onEnd('refused');
      return;
    }
    sockets.add(socket);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.setNoDelay(true);
    // Without an error listener, an error would terminate the process.
    socket.on('error', () => undefined);
    const disconnected = new AbortController();
    socket.once('close', () => {
      leave();
      sockets.delete(socket);
      disconnected.abort(new Error('the client is gone'));
    });
    options.dial(port, AbortSignal.any([over.signal, disconnected.signal])).then(
      (target) => {
        if (socket.destroyed) {
          target.destroy();
          return options.onEnd('broken');
        }
        carry(socket, target, options.onEnd);
        socket.resume();
      },
      (error: unknown) => {
        if (!disconnected.signal.aborted) log.warn({ port, error: errorText(error) }, 'target not reached');
        socket.resetAndDestroy();
        options.onEnd('unreachable');
      },
    );
  }
  try {
    for (const port of options.ports) {
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) =>
        take(socket, port),
      );
      servers.push(server);
      bound.push((await listenOn(server, { host, port })).port);
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    /** Ports on which the forwarder listens, in the order of the `ports` option. */
    ports: bound,
    get open(): number {
      return sockets.size;
    },
    close,
  };
}

/**
 * Relays both directions. A client that has sent its last byte still expects the response. Ending the stream to the
 * target would also stop the response, so the stream is ended only after the target has sent nothing for `LINGER_MS`.
 */
function carry(client: Socket, target: Duplex, onEnd: (outcome: ForwardOutcome) => void): void {
  let isComplete = true;
  let linger: NodeJS.Timeout | undefined;
  const wait = (): void => {
    clearTimeout(linger);
    // While the client reads slowly, the target must wait and does not count as silent.
    linger = setTimeout(() => (client.writableNeedDrain ? wait() : void target.end()), LINGER_MS);
  };
  target.on('data', () => {
    if (client.readableEnded) wait();
  });
  client.pipe(target, { end: false });
  target.pipe(client);
  client.once('end', wait);
  const fail = (): void => {
    isComplete = false;
    client.resetAndDestroy();
    target.destroy();
  };
  client.once('error', fail);
  target.once('error', fail);
  // The remote end may have closed the connection before all of its data arrived.
  target.once('close', () => {
    clearTimeout(linger);
    if (!target.readableEnded) fail();
  });
  client.once('close', () => {
    target.destroy();
    onEnd(isComplete && target.readableEnded ? 'done' : 'broken');
  });
}
