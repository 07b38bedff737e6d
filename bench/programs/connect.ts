/** Connections of the load generator. */
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls';
import type { Target } from './plan.ts';

const contexts = new Map<string, SecureContext>();

/** Resolves when the connection can be used. */
export function open(target: Target, alpn: 'http/1.1' | 'h2'): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const tcp = connectTcp({ port: target.port, host: '127.0.0.1', noDelay: true });
    tcp.once('error', reject);
    if (target.preamble !== undefined) tcp.write(target.preamble);
    if (target.ca === undefined) {
      tcp.once('connect', () => resolve(tcp));
      return;
    }
    const socket = connectTls({
      socket: tcp,
      servername: 'localhost',
      secureContext: contextOf(target.ca),
      ALPNProtocols: [alpn],
    });
    socket.once('error', reject);
    socket.once('secureConnect', () => {
      if (socket.alpnProtocol === alpn) resolve(socket);
      else reject(new Error(`${String(socket.alpnProtocol)} instead of ${alpn} was agreed on`));
    });
  });
}

/**
 * Opens connections one after another. If several processes accept from one socket, each process then gets about the
 * same number of connections.
 */
export async function openAll(
  target: Target,
  alpn: 'http/1.1' | 'h2',
  count: number,
): Promise<readonly Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) sockets.push(await open(target, alpn));
  return sockets;
}

function contextOf(ca: string): SecureContext {
  const known = contexts.get(ca);
  if (known !== undefined) return known;
  const made = createSecureContext({ ca: readFileSync(ca) });
  contexts.set(ca, made);
  return made;
}
