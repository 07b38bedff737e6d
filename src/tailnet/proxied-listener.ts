/** Listeners behind `tailscale serve`, which names the caller in a PROXY header. */
import type { Socket } from 'node:net';
import { TailcastError } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { isLoopback, normaliseAddress } from './addresses.ts';
import type { Peer } from './identity.ts';
import { createReception } from './reception.ts';

const HEADER_TIMEOUT_MS = 10_000;
const MAX_WITHOUT_HEADER = 1024;

/** Addresses to which tailscaled forwards. The name `localhost` resolves to them. */
const FORWARDED_TO: ReadonlySet<string> = new Set(['127.0.0.1', '::1']);

/**
 * Checks that tailscaled does not forward connections to the address of the listener for PROXY headers. A userspace
 * tailscaled forwards each permitted tailnet port to the same port of 127.0.0.1. Through such a port, peers could
 * bypass `tailscale serve` and send a forged identity in a PROXY header.
 *
 * @param setting beginning of the error message: the name of the setting
 * @throws TailcastError `CONFIG_INVALID`, whose message suggests an address that only this machine can reach
 */
export function assertPrivateProxyListener(
  host: string,
  setting = 'listen: with proxyProtocol=require the listener',
): void {
  const address = normaliseAddress(host);
  if (address !== undefined && isLoopback(address) && !FORWARDED_TO.has(address)) return;
  throw new TailcastError(
    'CONFIG_INVALID',
    `${setting} must be on a loopback address of its own, e.g. 127.0.0.77:8443 with \`tailscale serve … ` +
      `tcp://127.0.0.77:8443\`, not on ${host}: other nodes could bring a PROXY header of their own`,
  );
}

/**
 * Returns a function that reads the PROXY header of a new connection. The connection does not use TLS. Connections from
 * other machines and connections without a valid header are closed.
 *
 * @param handOver called with the peer in the header
 */
export function createHeaderReception(
  handOver: (socket: Socket, peer: Peer) => void,
  log: Logger,
): (socket: Socket) => void {
  const { receive } = createReception({
    proxyProtocol: 'require',
    certificates: undefined,
    log,
    headerTimeoutMs: HEADER_TIMEOUT_MS,
    handshakeTimeoutMs: HEADER_TIMEOUT_MS,
    maxHalfOpen: MAX_WITHOUT_HEADER,
    handOver: (socket, _alpn, peer) => {
      // The recorder's servers expect that Node ends a socket whose client has ended its side.
      socket.allowHalfOpen = false;
      handOver(socket, peer);
    },
  });
  return receive;
}
