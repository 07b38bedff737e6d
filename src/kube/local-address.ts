/** Addresses that a machine never reaches over a network. Pure. */
import { BlockList, isIP } from 'node:net';

const LOCAL = new BlockList();
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['224.0.0.0', 4],
  ['255.255.255.255', 32],
] as const) {
  LOCAL.addSubnet(network, bits, 'ipv4');
}
for (const [network, bits] of [
  ['::', 127],
  ['fe80::', 10],
  ['ff00::', 8],
] as const) {
  LOCAL.addSubnet(network, bits, 'ipv6');
}

/**
 * True for loopback, link-local, multicast and unspecified addresses. Cloud providers serve credentials at the
 * link-local address 169.254.169.254. Node compares IPv4-mapped addresses with the IPv4 networks.
 *
 * @param address IP address without a zone
 */
export function isLocalAddress(address: string): boolean {
  return LOCAL.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}
