import { once } from 'node:events';
import type { AddressInfo, ListenOptions, Server } from 'node:net';

export interface ListenAddress {
  /** Without brackets. */
  readonly host: string;
  /** 0: the system chooses. */
  readonly port: number;
}

/**
 * Opens a TCP port.
 *
 * @returns where
 * @throws a system error, e.g. `EADDRINUSE`
 */
export async function listenOn(server: Server, options: ListenOptions): Promise<AddressInfo> {
  server.listen(options);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address;
}
