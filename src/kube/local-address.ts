/** Detects addresses that are local to a machine or its link. Pure. */
import { BlockList, isIP } from 'node:net';

const LOCAL = blockListOf(
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/4',
  '255.255.255.255/32',
  '::/127',
  'fe80::/10',
  'ff00::/8',
);

/**
 * Returns true for loopback, link-local, multicast and unspecified addresses. Cloud providers serve credentials at the
 * link-local address 169.254.169.254. Node.js compares IPv4-mapped addresses with the IPv4 networks.
 *
 * @param address IP address without a zone
 */
export function isLocalAddress(address: string): boolean {
  return LOCAL.check(address, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

/** Returns a list of networks, each written as `address/bits`. */
export function blockListOf(...networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = '', bits] = network.split('/');
    list.addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}
