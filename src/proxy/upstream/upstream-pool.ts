/**
 * Keep-alive connections to the API server. A request gets the connection that was used last if one is idle, otherwise
 * a new one is opened: nothing queues behind watches. What is bounded is the number of connections in all (then new
 * requests are refused as `OVERLOADED`) and how many stay idle for how long. One whose credentials have been replaced is closed
 * when its request ends.
 */
import type { Socket } from 'node:net';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import { give, take } from '../../memory/read-buffers.ts';
import { createResponseReader, type ResponseReader, type ResponseSink } from './response-reader.ts';

/** The exchange that uses a connection now. */
export interface ConnectionUser {
  /** All responses in the bytes at hand have been passed to the sink. */
  flush(): void;
  /** The response has been read to its end. */
  responseEnded(): void;
  /** What was written has been taken by the kernel. */
  drained(): void;
  /** The connection is gone before the response ended. */
  connectionLost(error: TailcastError): void;
}

/** Somebody who waits for a connection. */
export interface Waiter {
  connected(connection: UpstreamConnection): void;
  connectFailed(error: TailcastError): void;
}

/** One connection to the API server and the exchange it carries. */
export class UpstreamConnection {
  readonly socket: Socket;
  /** What it was opened with. */
  readonly credentials: object;
  /** Exchanges begun on it. */
  uses = 0;
  idleSinceMs = 0;
  readonly #reader: ResponseReader = createResponseReader();
  readonly #pool: UpstreamPool;
  #user: ConnectionUser | undefined;

  constructor(socket: Socket, pool: UpstreamPool, credentials: object) {
    this.socket = socket;
    this.credentials = credentials;
    this.#pool = pool;
    // a socket that was opened without `onRead` is read like any other; one with it never emits this
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('end', () => this.#ended());
    socket.on('error', (error) => this.#lost(errorText(error), error));
    socket.on('close', () => this.#lost('it closed the connection'));
    socket.on('drain', () => this.#guard(() => this.#user?.drained()));
  }

  /** True once any byte of the current response has come. */
  get responseStarted(): boolean {
    return this.#reader.started;
  }

  begin(user: ConnectionUser, sink: ResponseSink, method: string): void {
    this.uses += 1;
    this.#user = user;
    this.#reader.begin(sink, method);
  }

  /** Ends the current exchange: the connection goes back to the pool if it is as good as new, else it is closed. */
  finish(requestComplete: boolean): void {
    this.#user = undefined;
    if (requestComplete && this.#reader.reusable && !this.socket.destroyed && this.socket.writable) {
      this.#pool.release(this);
    } else {
      this.destroy();
    }
  }

  /** Closes the connection without telling its user. */
  destroy(): void {
    this.#user = undefined;
    this.socket.destroy();
    this.#pool.forget(this);
  }

  /** So many bytes for this connection are in the shared read buffer. */
  received(length: number): void {
    // moved out before anything else runs
    const chunk = take(length);
    this.#read(chunk);
    give(chunk);
  }

  #read(chunk: Buffer): void {
    const user = this.#user;
    if (user === undefined) {
      // nobody asked: an idle connection that speaks is not to be used again
      return this.destroy();
    }
    this.#guard(() => {
      this.#reader.push(chunk);
      this.#delivered(user);
    });
  }

  #delivered(user: ConnectionUser): void {
    user.flush();
    // the sink may have aborted the exchange meanwhile
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

  /** Whatever is thrown in an event of this connection, by its own side or by its user's, ends this exchange alone. */
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

/** Opens connections that call back for what they read; `UpstreamConnector` fits. */
export interface PoolConnector {
  connect(onRead: (length: number) => void): Promise<Socket>;
  /** What connections are opened with now: another object once that has changed. */
  readonly credentials: object;
}

/** Limits of a pool. */
export interface PoolLimits {
  /** Connections in all: idle, in use, being opened. */
  readonly maxConnections: number;
  readonly maxIdle: number;
  /** An idle connection is closed after this long; below the API server's own 90 s, so that we close first. */
  readonly idleMs: number;
}

export const DEFAULT_POOL_LIMITS: PoolLimits = { maxConnections: 16_384, maxIdle: 512, idleMs: 60_000 };

export class UpstreamPool {
  readonly #connector: PoolConnector;
  readonly #limits: PoolLimits;
  /** Monotonic clock, in milliseconds. */
  readonly nowMs: () => number;
  /** Last used last. */
  readonly #idle: UpstreamConnection[] = [];
  readonly #connections = new Set<UpstreamConnection>();
  /** In the order they came; each has a connection being opened for it. */
  readonly #waiters = new Set<Waiter>();
  /** Those who must not be handed a connection that was given back. */
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
   * Calls `waiter` back with a connection, at once if one is idle.
   * @param fresh true for a connection nobody has used before
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

  /** The waiter is not interested any more; the connection being opened for it becomes idle. */
  cancel(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    this.#waitersForFresh.delete(waiter);
  }

  /** Takes a connection back: for the one who waits longest, or to be idle. */
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

  /** Called by a connection that was destroyed. */
  forget(connection: UpstreamConnection): void {
    if (!this.#connections.delete(connection)) return;
    const index = this.#idle.lastIndexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
  }

  /** Closes idle connections now and the others when they are given back. */
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

  #isCurrent({ credentials }: UpstreamConnection): boolean {
    return credentials === this.#connector.credentials;
  }

  /** A waiter that cannot begin fails alone: whoever gave the connection back has nothing to do with it. */
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
