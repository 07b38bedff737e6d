/** Connections with an unfinished TLS handshake, grouped by client address. A limit applies to their total number. */
import type { Socket } from 'node:net';

export class UnfinishedHandshakes {
  readonly #addressOf = new Map<Socket, string>();
  readonly #byAddress = new Map<string, Set<Socket>>();

  get size(): number {
    return this.#addressOf.size;
  }

  /** Sockets of the connections, in no particular order. */
  [Symbol.iterator](): Iterator<Socket> {
    return this.#addressOf.keys();
  }

  has(socket: Socket): boolean {
    return this.#addressOf.has(socket);
  }

  /** Adds a connection, or changes the address of a connection. */
  add(socket: Socket, address: string): void {
    this.delete(socket);
    this.#addressOf.set(socket, address);
    const same = this.#byAddress.get(address);
    if (same === undefined) this.#byAddress.set(address, new Set([socket]));
    else same.add(socket);
  }

  delete(socket: Socket): void {
    const address = this.#addressOf.get(socket);
    if (address === undefined) return;
    this.#addressOf.delete(socket);
    const same = this.#byAddress.get(address);
    same?.delete(socket);
    if (same?.size === 0) this.#byAddress.delete(address);
  }

  /**
   * Returns the oldest connection of the address with the most connections. A client that opens more connections than
   * any other client therefore displaces only its own connections.
   */
  displaced(): Socket | undefined {
    let most: ReadonlySet<Socket> = new Set();
    for (const sockets of this.#byAddress.values()) if (sockets.size > most.size) most = sockets;
    const [oldest] = most;
    return oldest;
  }
}
