/**
 * HTTP functions for upgrades. The request is parsed strictly: a request that another parser could interpret
 * differently is refused. This module also encodes response heads, because the HTTP server of Node.js no longer owns
 * the socket of an upgrade.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TailcastError } from '../../errors.ts';
import { headerLines } from '../../kube/headers.ts';
import { formatWarning } from '../../kube/warning.ts';

/** The requested protocol. */
export interface UpgradeRequest {
  /** `other` means a protocol that Kubernetes does not use. */
  readonly protocol: 'websocket' | 'spdy' | 'other';
  /** Value of the `Upgrade` header for the API server. Known protocols have a fixed spelling. */
  readonly value: string;
}

/** A request as Node.js parsed it. */
export interface RawUpgrade {
  readonly method: string;
  readonly httpVersion: string;
  /** Flat list of header names and values, as received. */
  readonly rawHeaders: readonly string[];
}

const KNOWN = new Map<string, UpgradeRequest>([
  ['websocket', { protocol: 'websocket', value: 'websocket' }],
  ['spdy/3.1', { protocol: 'spdy', value: 'SPDY/3.1' }],
]);

/** Protocols that could carry further HTTP requests, which the gate would not see. */
const CARRIES_HTTP = /^(?:h2c|http|tls|connect-)/i;

/**
 * Parses the requested protocol. The `Upgrade` header may contain a list and may occur several times. Case is
 * ignored.
 * @throws TailcastError `UPGRADE_REFUSED` for HTTP/1.0, a body, two known protocols, a method that the
 * protocol forbids, HTTP or TLS as the protocol, or a missing protocol
 */
export function parseUpgradeRequest(request: RawUpgrade): UpgradeRequest {
  if (request.httpVersion !== '1.1') throw refused(`HTTP/${request.httpVersion} cannot be upgraded`);
  if (hasBody(request.rawHeaders)) throw refused('it has a body');
  const tokens = listValues(request.rawHeaders, 'upgrade');
  if (tokens.length === 0) throw refused('it names no protocol');
  if (tokens.some((token) => CARRIES_HTTP.test(token))) throw refused('it requests another version of HTTP');
  const known = new Set(tokens.flatMap((token) => KNOWN.get(token.toLowerCase()) ?? []));
  if (known.size > 1) throw refused('it names two protocols');
  for (const found of known) {
    const methods = found.protocol === 'websocket' ? ['GET'] : ['GET', 'POST'];
    if (!methods.includes(request.method))
      throw refused(`${found.value} is not allowed with ${request.method}`);
    return found;
  }
  return { protocol: 'other', value: tokens.join(', ') };
}

function listValues(rawHeaders: readonly string[], name: string): readonly string[] {
  return headerLines(rawHeaders, name)
    .flatMap((line) => line.split(','))
    .map((token) => token.trim())
    .filter((token) => token !== '');
}

/** Returns true if the request has a body. Node.js would return the body as the first bytes of the new protocol. */
function hasBody(rawHeaders: readonly string[]): boolean {
  return (
    headerLines(rawHeaders, 'transfer-encoding').length > 0 ||
    headerLines(rawHeaders, 'content-length').some((value) => !/^0+$/.test(value.trim()))
  );
}

function refused(detail: string): TailcastError {
  return new TailcastError('UPGRADE_REFUSED', detail);
}

/** Encodes a response head. @param fields flat list of header names and values */
export function encodeUpgradeHead(status: string, fields: readonly string[]): Buffer {
  let head = `HTTP/1.1 ${status}\r\n`;
  for (let index = 0; index < fields.length; index += 2) head += `${fields[index]}: ${fields[index + 1]}\r\n`;
  return Buffer.from(`${head}\r\n`, 'latin1');
}

/** Returns one `Warning` header per text, as a flat list. */
export function warningLines(warnings: readonly string[]): readonly string[] {
  return warnings.flatMap((text) => ['Warning', formatWarning(text)]);
}

/**
 * Encodes a body with chunked transfer coding (RFC 9112 §7.1). If the body breaks off, the last chunk is missing, and
 * the client sees that the response is incomplete.
 */
export async function* encodeChunks(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array | string> {
  for await (const piece of body) {
    if (piece.length === 0) continue;
    yield `${piece.length.toString(16)}\r\n`;
    yield piece;
    yield '\r\n';
  }
  yield '0\r\n\r\n';
}

const KEEP_ALIVE_MS = 30_000;

/** Disables the idle timeout, because a session may be silent for hours. TCP keep-alive detects a dead peer. */
export function prepareSocket(socket: Duplex): void {
  if (!(socket instanceof Socket)) return;
  socket.setTimeout(0);
  socket.setNoDelay(true);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
}
