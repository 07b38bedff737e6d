/** Peer of a connection: the client's address, from the socket or from a PROXY header. */

export interface ConnectionPeer {
  /** Source of the address: the socket, or a PROXY header. */
  readonly source: 'socket' | 'proxy-protocol';
  /** IP address without zone. IPv4-mapped IPv6 addresses are converted to IPv4. */
  readonly address: string;
  readonly port: number;
}

/** Socket of a connection. */
export interface PeerSocket {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

const PEER = Symbol('tailcast.peer');

/** Sets the peer of a connection. Called once for each accepted connection. */
export function setPeer(socket: PeerSocket, peer: ConnectionPeer): void {
  Object.defineProperty(socket, PEER, { value: peer });
}

/**
 * Returns the peer of a connection. All calls for an accepted connection return the same object. Also accepts the
 * socket of an HTTP/2 session.
 */
export function connectionPeer(socket: PeerSocket): ConnectionPeer {
  const peer: unknown = Reflect.get(socket, PEER);
  return isPeer(peer) ? peer : socketPeer(socket);
}

/**
 * Returns the peer at the other end of the socket. Dual-stack sockets show IPv4 peers as `::ffff:192.0.2.1`. IPv6 zones
 * are valid only on this machine.
 */
export function socketPeer({ remoteAddress = '', remotePort = 0 }: PeerSocket): ConnectionPeer {
  const [plain = ''] = remoteAddress.split('%');
  return { source: 'socket', address: plain.replace(/^::ffff:(?=\d+\.)/i, ''), port: remotePort };
}

function isPeer(value: unknown): value is ConnectionPeer {
  return typeof value === 'object' && value !== null && 'source' in value;
}
