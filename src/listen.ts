import { once } from 'node:events';
import type { AddressInfo, ListenOptions, Server } from 'node:net';

/**
 * Opens a TCP port.
 *
 * @returns where; port 0 lets the system choose
 * @throws a system error, e.g. `EADDRINUSE`
 */
export async function listenOn(server: Server, options: ListenOptions): Promise<AddressInfo> {
  server.listen(options);
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address');
  return address;
}
