/** An additional address of a server on this machine. Tests can close and reopen the address. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { once } from 'node:events';

export interface Address {
  readonly port: number;
  /** Number of accepted connections. */
  readonly connections: () => number;
  /** Stops listening and ends all connections. */
  close(): void;
  /** Listens on the same port again after `close`. */
  reopen(): Promise<void>;
}

/** @param host listening address; default 127.0.0.1 */
export async function openAddress(target: number, host = '127.0.0.1'): Promise<Address> {
  const open = new Set<Socket>();
  let connections = 0;
  const forward = (client: Socket): void => {
    connections += 1;
    const upstream = connect(target, '127.0.0.1');
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => socket.destroy());
      socket.once('close', () => {
        client.destroy();
        upstream.destroy();
        open.delete(socket);
      });
    }
    client.pipe(upstream).pipe(client);
  };
  const listen = async (port: number): Promise<Server> => {
    const server = createServer(forward).listen(port, host);
    await once(server, 'listening');
    return server;
  };
  let server = await listen(0);
  const { port } = server.address() as AddressInfo;
  return {
    port,
    connections: () => connections,
    close() {
      server.close();
      for (const socket of open) socket.destroy();
    },
    async reopen() {
      server = await listen(port);
    },
  };
}
