/** IP addresses as text. Pure: no lookups, no sockets. */
import { BlockList, isIP, isIPv4, isIPv6, SocketAddress } from 'node:net';

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

/**
 * Returns the canonical form of an IP address, without brackets and zone. IPv4-mapped IPv6 addresses become IPv4
 * (`::ffff:100.64.0.1` is `100.64.0.1`). Other IPv6 addresses get their shortest lower-case form (RFC 5952). Returns
 * `undefined` for other text.
 */
export function normaliseAddress(text: string): string | undefined {
  const bare = text.replace(/^\[(.*)\]$/, '$1').replace(/%.*$/, '');
  if (isIPv4(bare)) return bare;
  if (!isIPv6(bare)) return undefined;
  const { address } = new SocketAddress({ address: bare, family: 'ipv6' });
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(address)?.[1];
  return mapped ?? address;
}

/** True if an IP address, or the name `localhost`, is reachable only from this machine. */
export function isLoopback(host: string): boolean {
  const address = normaliseAddress(host);
  if (address === undefined) return host.toLowerCase() === 'localhost';
  return LOOPBACK.check(address, isIPv4(address) ? 'ipv4' : 'ipv6');
}

/**
 * Splits `ip:port` or `[ipv6]:port` like Go's `netip.ParseAddrPort`, but rejects zones, port 0 and leading zeros.
 * Returns `undefined` for rejected and other text, including hostnames.
 */
export function parseAddressPort(
  text: string,
): { readonly address: string; readonly port: number } | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([1-9]\d{0,4})$/.exec(text);
  if (match === null) return undefined;
  const [, ipv6, ipv4, digits] = match;
  const port = Number(digits);
  if (port > 65_535) return undefined;
  if (ipv6 !== undefined) return isIPv6(ipv6) ? { address: ipv6, port } : undefined;
  return ipv4 !== undefined && isIPv4(ipv4) ? { address: ipv4, port } : undefined;
}

/** Returns `ip:port`, with brackets around an IPv6 address. */
export function formatAddressPort(address: string, port: number): string {
  return isIP(address) === 6 ? `[${address}]:${port}` : `${address}:${port}`;
}
