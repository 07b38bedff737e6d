/**
 * Parses the header of the PROXY protocol, versions 1 and 2 (haproxy.org `proxy-protocol.txt` §2.1, §2.2),
 * incrementally. Pure: returns one header and the bytes after it. The listener decides whether to trust the
 * sender.
 */
import { normaliseAddress } from './addresses.ts';

/**
 * `proxied`: the sender forwards the connection of another peer. `local`: the sender opened the connection for itself
 * (LOCAL, UNKNOWN, UNSPEC), so the addresses of the socket apply. `rest` is a view of the bytes after the header in the
 * last chunk.
 */
export type ProxyHeader =
  | {
      readonly kind: 'proxied';
      readonly source: { readonly address: string; readonly port: number };
      readonly destination: { readonly address: string; readonly port: number };
      readonly rest: Uint8Array;
    }
  | { readonly kind: 'local'; readonly rest: Uint8Array };

/** Thrown for a missing or invalid PROXY header. */
export class ProxyHeaderError extends Error {
  override readonly name = 'ProxyHeaderError';
}

/**
 * First bytes of a version 2 header: `\r
 * \r
 * \0\r
 * QUIT
 * `.
 */
const SIGNATURE = Uint8Array.of(0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a);
const V1_PREFIX = Uint8Array.of(0x50, 0x52, 0x4f, 0x58, 0x59, 0x20); // "PROXY "
/** Maximum length of a version 1 line in bytes, including CR LF (§2.1). */
const V1_MAX_BYTES = 107;
/** Size of the first fields of a version 2 header: signature, version and command, family and protocol, length. */
const V2_FIXED_BYTES = 16;

const VERSION_2 = 0x20;
const COMMAND_LOCAL = 0x0;
const COMMAND_PROXY = 0x1;
const FAMILY_UNSPEC = 0x00;
const FAMILY_TCP4 = 0x11;
const FAMILY_TCP6 = 0x21;

/**
 * @param limits `maxBytes` limits a version 2 header with its TLVs (which are skipped)
 * @returns `push(chunk)` returns the header when it is complete, and `undefined` before that. `push` throws
 * ProxyHeaderError as soon as the bytes cannot be a header. After a header or an error, every further `push` throws.
 */
export function createProxyHeaderParser(limits: { readonly maxBytes?: number } = {}): {
  push(chunk: Uint8Array): ProxyHeader | undefined;
} {
  const maxBytes = limits.maxBytes ?? 4096;
  let held: Uint8Array = new Uint8Array(0);
  let dead = false;
  return {
    push(chunk) {
      if (dead) throw new ProxyHeaderError('the header has already ended');
      dead = true;
      const bytes = held.length === 0 ? chunk : concat(held, chunk);
      const header = isV1(bytes) ? parseV1(bytes) : parseV2(bytes, maxBytes);
      if (header !== undefined) return header;
      held = bytes.slice();
      dead = false;
      return undefined;
    },
  };
}

/** Returns true for a header of version 1. Throws if `bytes` cannot be the beginning of a header of either version. */
function isV1(bytes: Uint8Array): boolean {
  if (startsAlike(bytes, V1_PREFIX)) return true;
  if (startsAlike(bytes, SIGNATURE)) return false;
  throw new ProxyHeaderError('the connection does not begin with a PROXY header');
}

function startsAlike(bytes: Uint8Array, expected: Uint8Array): boolean {
  return expected.every((byte, index) => index >= bytes.length || bytes[index] === byte);
}

function parseV1(bytes: Uint8Array): ProxyHeader | undefined {
  const end = bytes.subarray(0, V1_MAX_BYTES).indexOf(0x0a);
  if (end === -1) {
    if (bytes.length >= V1_MAX_BYTES) throw new ProxyHeaderError('the version 1 line is too long');
    return undefined;
  }
  const line = String.fromCharCode(...bytes.subarray(0, end + 1));
  const rest = bytes.subarray(end + 1);
  if (/^PROXY UNKNOWN(?: [ -~]*)?\r\n$/.test(line)) return { kind: 'local', rest };
  const match = /^PROXY TCP([46]) (\S+) (\S+) (0|[1-9]\d{0,4}) (0|[1-9]\d{0,4})\r\n$/.exec(line);
  if (match === null) throw new ProxyHeaderError('the version 1 line is malformed');
  const [, family, source = '', destination = '', sourcePort, destinationPort] = match;
  return {
    kind: 'proxied',
    source: endpoint(source, Number(sourcePort), family === '6'),
    destination: endpoint(destination, Number(destinationPort), family === '6'),
    rest,
  };
}

function parseV2(bytes: Uint8Array, maxBytes: number): ProxyHeader | undefined {
  if (bytes.length < V2_FIXED_BYTES) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const command = view.getUint8(12);
  if ((command & 0xf0) !== VERSION_2) throw new ProxyHeaderError('the version is not 2');
  const family = view.getUint8(13);
  const total = V2_FIXED_BYTES + view.getUint16(14);
  if (total > maxBytes) throw new ProxyHeaderError('the version 2 header is too long');
  if (bytes.length < total) return undefined;
  const rest = bytes.subarray(total);
  const payload = bytes.subarray(V2_FIXED_BYTES, total);
  switch (command & 0x0f) {
    case COMMAND_LOCAL:
      return { kind: 'local', rest };
    case COMMAND_PROXY:
      return proxied(family, payload, rest);
    default:
      throw new ProxyHeaderError('the version 2 command is unknown');
  }
}

/** Parses the address blocks of §2.2: source, destination, source port, destination port, then TLVs. */
function proxied(family: number, payload: Uint8Array, rest: Uint8Array): ProxyHeader {
  if (family === FAMILY_UNSPEC) return { kind: 'local', rest };
  if (family !== FAMILY_TCP4 && family !== FAMILY_TCP6) {
    throw new ProxyHeaderError('only TCP over IPv4 or IPv6 is accepted');
  }
  const wide = family === FAMILY_TCP6;
  const size = wide ? 16 : 4;
  if (payload.length < 2 * size + 4) throw new ProxyHeaderError('the version 2 address block is too short');
  checkTlvs(payload.subarray(2 * size + 4));
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  return {
    kind: 'proxied',
    source: endpoint(addressText(payload.subarray(0, size)), view.getUint16(2 * size), wide),
    destination: endpoint(addressText(payload.subarray(size, 2 * size)), view.getUint16(2 * size + 2), wide),
    rest,
  };
}

/**
 * Checks that the TLVs, which are not used, fill the rest of the payload exactly. A TLV is a type, two bytes of length,
 * and a value.
 */
function checkTlvs(tlvs: Uint8Array): void {
  const view = new DataView(tlvs.buffer, tlvs.byteOffset, tlvs.byteLength);
  let offset = 0;
  while (offset < tlvs.length) {
    if (offset + 3 > tlvs.length) throw new ProxyHeaderError('a TLV is cut short');
    offset += 3 + view.getUint16(offset + 1);
  }
  if (offset !== tlvs.length) throw new ProxyHeaderError('a TLV is cut short');
}

function addressText(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return [0, 2, 4, 6, 8, 10, 12, 14].map((offset) => view.getUint16(offset).toString(16)).join(':');
}

function endpoint(
  text: string,
  port: number,
  wide: boolean,
): { readonly address: string; readonly port: number } {
  const address =
    /^[0-9a-fA-F:.]+$/.test(text) && text.includes(':') === wide ? normaliseAddress(text) : undefined;
  if (address === undefined || port > 65_535) throw new ProxyHeaderError('an address is malformed');
  return { address, port };
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}
