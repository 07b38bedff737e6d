/**
 * Pool of keep-alive connections to the API server. A request uses the most recently used idle connection or a new
 * connection. It never waits for the end of another request. The number of connections and their idle time are limited.
 * A request that would exceed the number of connections gets `OVERLOADED`. When the credentials change, connections
 * with old credentials are closed after their current request.
 */
import type { Socket } from 'node:net';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import { give, take } from '../../memory/read-buffers.ts';
import { ResponseReader, type ResponseSink } from './response-reader.ts';

/** The exchange that uses a connection. */
export interface ConnectionUser {
  /** Called when all available bytes were passed to the sink. */
  flush(): void;
  /** Called when the response is complete. */
  responseEnded(): void;
  /** Called when the kernel has accepted the written bytes. */
  drained(): void;
  /** Called when the connection closed before the end of the response. */
  connectionLost(error: TailcastError): void;
}

/** A caller that waits for a connection. */
export interface Waiter {
  connected(connection: UpstreamConnection): void;
  connectFailed(error: TailcastError): void;
}

/** One connection to the API server, and the exchange that uses it. */
export class UpstreamConnection {
  readonly socket: Socket;
  /** Credentials of the connection. */
  readonly credentials: object;
  /** Number of exchanges that have used the connection. */
  uses = 0;
  idleSinceMs = 0;
  readonly #reader = new ResponseReader();
  readonly #pool: UpstreamPool;
  #user: ConnectionUser | undefined;

  constructor(socket: Socket, pool: UpstreamPool, credentials: object) {
    this.socket = socket;
    this.credentials = credentials;
    this.#pool = pool;
    // only a socket that was opened without `onRead` or through a proxy emits 'data'
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('end', () => this.#ended());
    socket.on('error', (error) => this.#lost(errorText(error), error));
    socket.on('close', () => this.#lost('it closed the connection'));
    socket.on('drain', () => this.#guard(() => this.#user?.drained()));
  }

  /** True after the first byte of the current response has arrived. */
  get responseStarted(): boolean {
    return this.#reader.started;
  }

  begin(user: ConnectionUser, sink: ResponseSink, method: string): void {
    this.uses += 1;
    this.#user = user;
    this.#reader.begin(sink, method);
  }

  /**
   * Ends the current exchange. Returns the connection to the pool if it can be reused, and closes it
   * otherwise.
   */
  finish(requestComplete: boolean): void {
    this.#user = undefined;
    if (requestComplete && this.#reader.reusable && !this.socket.destroyed && this.socket.writable) {
      this.#pool.release(this);
    } else {
      this.destroy();
    }
  }

  /** Closes the connection without notifying its user. */
  destroy(): void {
    this.#user = undefined;
    this.socket.destroy();
    this.#pool.forget(this);
  }

  /** Called when the first `length` bytes of the shared read buffer contain data of this connection. */
  received(length: number): void {
    // takes the bytes out of the shared buffer before any other code can read into it
    const chunk = take(length);
    this.#read(chunk);
    give(chunk);
  }

  #read(chunk: Buffer): void {
    const user = this.#user;
    if (user === undefined) {
      // the API server sent bytes without a request, so the connection is not reused
      return this.destroy();
    }
    this.#guard(() => {
      this.#reader.push(chunk);
      this.#delivered(user);
    });
  }

  #delivered(user: ConnectionUser): void {
    user.flush();
    // the sink may have aborted the exchange during these calls
    if (!this.#reader.reading && this.#user === user) user.responseEnded();
  }

  #ended(): void {
    const user = this.#user;
    if (user === undefined) return this.destroy();
    this.#guard(() => {
      this.#reader.finish();
      this.#delivered(user);
    });
  }

  /** Runs an event handler. If it throws, only the exchange of this connection fails. */
  #guard(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#fail(asTailcastError(error));
    }
  }

  #lost(reason: string, cause?: Error): void {
    this.#fail(new TailcastError('UPSTREAM_BROKEN', reason, { cause }));
  }

  #fail(error: TailcastError): void {
    const user = this.#user;
    this.destroy();
    user?.connectionLost(error);
  }
}

/** Opens connections that report received data to a callback. `UpstreamConnector` implements it. */
export interface PoolConnector {
  connect(onRead: (length: number) => void): Promise<Socket>;
  /** The current credentials. A change of the credentials replaces this object. */
  readonly credentials: object;
  /** Returns true if the API server of this connection is healthy. Default: always true. */
  readonly isHealthy?: (socket: Socket) => boolean;
}

/** Limits of a pool. */
export interface PoolLimits {
  /** Maximum number of connections: idle, in use and opening. */
  readonly maxConnections: number;
  readonly maxIdle: number;
  /**
   * Maximum idle time. This time is shorter than the idle timeout of the API server (90 s), so that the gateway closes
   * idle connections first.
   */
  readonly idleMs: number;
}

export const DEFAULT_POOL_LIMITS: PoolLimits = { maxConnections: 16_384, maxIdle: 512, idleMs: 60_000 };

export class UpstreamPool {
  readonly #connector: PoolConnector;
  readonly #limits: PoolLimits;
  /** Monotonic clock, in milliseconds. */
  readonly nowMs: () => number;
  /** Idle connections; the most recently used connection is last. */
  readonly #idle: UpstreamConnection[] = [];
  readonly #connections = new Set<UpstreamConnection>();
  /**
   * Callers that wait for any connection, in order of arrival. The pool opens one connection for each of these callers.
   */
  readonly #waiters = new Set<Waiter>();
  /** Callers that wait for a new connection and do not accept a reused connection. */
  readonly #waitersForFresh = new Set<Waiter>();
  readonly #sweep: NodeJS.Timeout;
  #opening = 0;
  #closed = false;

  constructor(connector: PoolConnector, limits: PoolLimits, nowMs: () => number) {
    this.#connector = connector;
    this.#limits = limits;
    this.nowMs = nowMs;
    this.#sweep = setInterval(() => this.#closeStale(), Math.max(10, limits.idleMs / 4)).unref();
  }

  get size(): { readonly total: number; readonly idle: number } {
    return { total: this.#connections.size + this.#opening, idle: this.#idle.length };
  }

  /**
   * Calls `waiter` with a connection, immediately if one is idle.
   * @param fresh true to require a new connection
   * @throws TailcastError `OVERLOADED` or `SHUTTING_DOWN`
   */
  acquire(waiter: Waiter, fresh: boolean): void {
    if (this.#closed) throw new TailcastError('SHUTTING_DOWN');
    const connection = fresh ? undefined : this.#takeIdle();
    if (connection !== undefined) return this.#hand(connection, waiter);
    if (this.size.total >= this.#limits.maxConnections) {
      const stale = fresh ? this.#idle.shift() : undefined;
      if (stale === undefined)
        throw new TailcastError('OVERLOADED', 'no connection to the API server is free');
      stale.destroy();
    }
    this.#openFor(waiter, fresh);
  }

  /** Removes a waiter. The connection that is being opened for this waiter will serve another waiter or become idle. */
  cancel(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    this.#waitersForFresh.delete(waiter);
  }

  /**
   * Takes a connection back. The first waiting caller that accepts a reused connection gets it. If there is no such
   * caller, the connection becomes idle.
   */
  release(connection: UpstreamConnection): void {
    if (this.#closed || !this.#isCurrent(connection)) return connection.destroy();
    if (connection.socket.isPaused()) connection.socket.resume();
    const next = this.#waiters.values().next().value;
    if (next !== undefined) {
      this.#waiters.delete(next);
      return this.#hand(connection, next);
    }
    connection.idleSinceMs = this.nowMs();
    this.#idle.push(connection);
    if (this.#idle.length > this.#limits.maxIdle) this.#idle.shift()?.destroy();
  }

  /** Called by a destroyed connection. */
  forget(connection: UpstreamConnection): void {
    if (!this.#connections.delete(connection)) return;
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
  }

  /** Closes idle connections now, and all others when their exchange ends. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#sweep);
    while (this.#idle.length > 0) this.#idle[0]?.destroy();
  }

  #takeIdle(): UpstreamConnection | undefined {
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined || this.#isCurrent(connection)) return connection;
      connection.destroy();
    }
  }

  #isCurrent({ credentials, socket }: UpstreamConnection): boolean {
    return credentials === this.#connector.credentials && this.#connector.isHealthy?.(socket) !== false;
  }

  /**
   * Gives a connection to a waiter. If the waiter throws, only its own exchange fails, and not the exchange
   * that returned the connection.
   */
  #hand(connection: UpstreamConnection, waiter: Waiter): void {
    try {
      waiter.connected(connection);
    } catch (error) {
      connection.destroy();
      waiter.connectFailed(asTailcastError(error));
    }
  }

  #openFor(waiter: Waiter, fresh: boolean): void {
    const waiting = fresh ? this.#waitersForFresh : this.#waiters;
    waiting.add(waiter);
    this.#opening += 1;
    let connection: UpstreamConnection | undefined;
    const { credentials } = this.#connector;
    this.#connector
      .connect((length) => connection?.received(length))
      .then(
        (socket) => {
          this.#opening -= 1;
          connection = new UpstreamConnection(socket, this, credentials);
          this.#connections.add(connection);
          if (waiting.delete(waiter)) this.#hand(connection, waiter);
          else this.release(connection);
        },
        (error: unknown) => {
          this.#opening -= 1;
          if (waiting.delete(waiter)) waiter.connectFailed(asTailcastError(error));
        },
      );
  }

  #closeStale(): void {
    const limit = this.nowMs() - this.#limits.idleMs;
    while ((this.#idle[0]?.idleSinceMs ?? Infinity) <= limit) this.#idle[0]?.destroy();
  }
}
