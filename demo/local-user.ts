/** Identifies the local user at the other end of a loopback connection. */
import { readFile } from 'node:fs/promises';
import { isIPv4 } from 'node:net';

/**
 * Matches the row of an established connection, and captures the local address and the user id. Other states are
 * ignored, because Linux shows user 0 for closed sockets.
 */
const ROW = /^\s*\d+: ([0-9A-F]+:[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 01 \S+ \S+ \S+\s+(\d+) /gm;

/**
 * True if the socket with this address belongs to the user of this process or to root. Linux lists the user of each
 * socket. macOS and Windows have no such list, so the result is true there.
 *
 * @param address loopback IP address of the peer
 */
export async function isOwnSocket(address: string, port: number): Promise<boolean> {
  const own = process.getuid?.();
  if (own === undefined) return true;
  const tables = await Promise.all(
    ['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFile(path, 'latin1').catch(() => undefined)),
  );
  if (tables.every((table) => table === undefined)) return process.platform !== 'linux';
  return isSocketOf(own, tables.join('\n'), address, port);
}

/**
 * True if all established connections from this address belong to the user `own` or to root. All connections are
 * checked, because sockets of several users can share a port if their destinations differ.
 *
 * @param tables content of `/proc/net/tcp` and `/proc/net/tcp6`
 */
export function isSocketOf(own: number, tables: string, address: string, port: number): boolean {
  const names = namesOf(address).map((name) => `${name}:${port.toString(16).toUpperCase().padStart(4, '0')}`);
  const users = [...tables.matchAll(ROW)].flatMap(([, name = '', user]) =>
    names.includes(name) ? [Number(user)] : [],
  );
  return users.length > 0 && users.every((user) => user === own || user === 0);
}

/**
 * Returns the forms in which Linux may list an address. Linux writes addresses as 32-bit words in the byte order of the
 * machine, and may list an IPv4 address as an IPv4-mapped IPv6 address.
 */
function namesOf(address: string): readonly string[] {
  if (!isIPv4(address)) return [`${'0'.repeat(24)}${words([0, 0, 0, 1])}`];
  const name = words(address.split('.').map(Number));
  return [name, `${'0'.repeat(16)}${words([0, 0, 255, 255])}${name}`];
}

function words(bytes: readonly number[]): string {
  return (new Uint32Array(Uint8Array.from(bytes).buffer)[0] ?? 0).toString(16).toUpperCase().padStart(8, '0');
}
