import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { listenOn } from './listen.ts';

export interface SocketPair {
  readonly near: Socket;
  readonly far: Socket;
}

/** Opens two ends of one loopback connection. Both ends may be half-closed. */
export async function socketPair(): Promise<SocketPair> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  await listenOn(server);
  const accepted = once(server, 'connection');
  const near = connect({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    allowHalfOpen: true,
    noDelay: true,
  });
  await once(near, 'connect');
  const [far] = (await accepted) as [Socket];
  server.close();
  return { near, far };
}
