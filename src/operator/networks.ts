/** Parses networks and addresses into numbers, and formats them. Pure. */
import { isIP } from 'node:net';

export interface Network {
  /** IP version: 4 or 6. */
  readonly family: number;
  readonly first: bigint;
  /** Number of addresses. */
  readonly size: bigint;
  /** True if all bits after the prefix were zero in the parsed text. */
  readonly isAligned: boolean;
}

/** @returns undefined for an invalid CIDR */
export function networkOf(text: string): Network | undefined {
  const match = /^([0-9a-fA-F.:]+)\/(0|[1-9]\d{0,2})$/.exec(text);
  const [, address = '', length = ''] = match ?? [];
  const family = isIP(address);
  const bits = family === 4 ? 32n : 128n;
  if (family === 0 || BigInt(length) > bits) return undefined;
  const size = 1n << (bits - BigInt(length));
  const number = numberOf(address, family);
  return { family, first: number - (number % size), size, isAligned: number % size === 0n };
}

function numberOf(address: string, family: number): bigint {
  if (family === 4) return address.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
  // The URL parser normalises IPv6, including an IPv4 suffix.
  const [head = '', tail] = canonical(address).split('::');
  const groups = (text: string): string[] => text.split(':').filter((group) => group !== '');
  const [left, right] = [groups(head), groups(tail ?? '')];
  const all = [...left, ...Array.from({ length: 8 - left.length - right.length }, () => '0'), ...right];
  return all.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
}

/** Returns the address at an offset in the network, in the text form that Kubernetes and tailscaled use. */
export function addressAt({ family, first }: Network, offset: bigint): string {
  const number = first + offset;
  const parts = (count: number, bits: bigint): bigint[] =>
    Array.from(
      { length: count },
      (_, index) => (number >> (bits * BigInt(count - 1 - index))) & ((1n << bits) - 1n),
    );
  if (family === 4) return parts(4, 8n).join('.');
  return canonical(
    parts(8, 16n)
      .map((part) => part.toString(16))
      .join(':'),
  );
}

/** True if the network contains the address. */
export function contains({ family, first, size }: Network, address: string): boolean {
  if (isIP(address) !== family) return false;
  const offset = numberOf(address, family) - first;
  return offset >= 0n && offset < size;
}

/** Returns the network that contains only this address. */
export function hostRoute(address: string): string {
  return `${address}/${isIP(address) === 4 ? 32 : 128}`;
}

function canonical(address: string): string {
  return new URL(`http://[${address}]/`).hostname.slice(1, -1);
}
