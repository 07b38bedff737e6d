/** Identifies the local user at the other end of a loopback connection. */
import { readFile } from 'node:fs/promises';
import { isIPv4 } from 'node:net';

/** A row of a table: local address and port, remote ones, state, queues, timers, retransmissions, user. */
const ROW = /^\s*\d+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} [0-9A-F]{2} \S+ \S+ \S+\s+(\d+) /gm;

/**
 * True if the socket with this address belongs to the user of this process or to root. Linux lists the user of each
 * socket. On an OS without such a list (macOS, Windows) the result is true.
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
  const names = namesOf(address);
  const wantedPort = port.toString(16).toUpperCase().padStart(4, '0');
  for (const table of tables)
    for (const [, host = '', at, user] of (table ?? '').matchAll(ROW))
      if (at === wantedPort && names.includes(host) && (Number(user) === own || user === '0')) return true;
  return false;
}

/**
 * Address forms in Linux: words in the byte order of the machine. An IPv4 address may also be an IPv4-mapped IPv6
 * address.
 */
function namesOf(address: string): readonly string[] {
  if (!isIPv4(address)) return [`${'0'.repeat(24)}${words([0, 0, 0, 1])}`];
  const name = words(address.split('.').map(Number));
  return [name, `${'0'.repeat(16)}${words([0, 0, 255, 255])}${name}`];
}

function words(bytes: readonly number[]): string {
  const word = new Uint32Array(Uint8Array.from(bytes).buffer)[0] ?? 0;
  return word.toString(16).toUpperCase().padStart(8, '0');
}
