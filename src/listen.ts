import { once } from 'node:events';
import type { AddressInfo, ListenOptions, Server } from 'node:net';

export interface ListenAddress {
  /** IP address or name, without brackets. */
  readonly host: string;
  /** Port number. For 0, the OS selects a free port. */
  readonly port: number;
}

/**
 * Opens a TCP port.
 *
 * @returns the address
 * @throws an error of the OS, e.g. `EADDRINUSE`
 */
export async function listenOn(server: Server, options: ListenOptions): Promise<AddressInfo> {
  server.listen(options);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address;
}
