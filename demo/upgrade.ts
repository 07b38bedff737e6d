import { STATUS_CODES, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { headerLines } from '../src/kube/headers.ts';
import { acceptKey } from '../src/kube/websocket-accept.ts';
import { splitProtocolLines } from '../src/wire/remotecommand/channel.ts';
import { badRequest, encodeBody, forbidden, type ApiStatusError } from './api-status.ts';

const BEARER_PREFIX = 'base64url.bearer.authorization.k8s.io.';

/** True if a subprotocol contains a bearer token (k8s.io/apiserver `authentication/request/websocket`). */
function isBearerSubprotocol(name: string): boolean {
  return name.toLowerCase().startsWith(BEARER_PREFIX);
}

/** An upgrade request before its response. `head` contains bytes that arrived after the request. */
export interface ApiUpgrade {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Uint8Array;
  /** True after the 101 response was sent. After that, the request cannot be rejected. */
  switched?: boolean;
}

/**
 * True for SPDY, false for WebSocket. Like the API server, the function searches for a substring. Throws a 400 error if
 * the request names neither protocol.
 */
export function isSpdy({ request }: ApiUpgrade): boolean {
  const protocol = (request.headers.upgrade ?? '').toLowerCase();
  if (protocol.includes('spdy/3.1')) return true;
  if (protocol.includes('websocket')) return false;
  throw badRequest('unable to upgrade: the Upgrade header names neither SPDY/3.1 nor websocket');
}

/** Returns the subprotocols that a WebSocket client has sent, including the one with its token. */
function subprotocolsOf({ rawHeaders }: IncomingMessage): readonly string[] {
  return splitProtocolLines(headerLines(rawHeaders, 'sec-websocket-protocol'));
}

/** Returns the bearer token that a browser sends as a WebSocket subprotocol; undefined without such a token. */
export function bearerSubprotocol(request: IncomingMessage): string | undefined {
  const name = subprotocolsOf(request).find(isBearerSubprotocol);
  const encoded = name?.slice(name.lastIndexOf('.') + 1);
  return encoded === undefined ? undefined : Buffer.from(encoded, 'base64url').toString('utf8');
}

/**
 * Responds with 101 for SPDY, and selects the first of the client's stream protocols that is in `known`. Throws a 400
 * error if the client names no protocol, and a 403 error if `known` contains none of the client's protocols. Source:
 * apimachinery `pkg/util/httpstream/httpstream.go` (Handshake).
 */
export function acceptSpdy(upgrade: ApiUpgrade, known: readonly string[]): string {
  const { request } = upgrade;
  const offered = splitProtocolLines(headerLines(request.rawHeaders, 'x-stream-protocol-version'));
  if (offered.length === 0) {
    throw badRequest('unable to upgrade: X-Stream-Protocol-Version header is required');
  }
  const chosen = offered.find((name) => known.includes(name));
  if (chosen === undefined) {
    throw forbidden(
      `unable to upgrade: unable to negotiate protocol: client supports [${offered.join(' ')}], server accepts ` +
        `[${known.join(' ')}]`,
    );
  }
  switchProtocols(upgrade, [`Upgrade: SPDY/3.1`, `X-Stream-Protocol-Version: ${chosen}`]);
  return chosen;
}

/**
 * Responds with 101 for WebSocket. Returns the first of the client's subprotocols that `isKnown` accepts, or '' if the
 * client offered none. Throws a 400 error for an invalid handshake, and a 403 error if no subprotocol is accepted.
 */
export function acceptWebSocket(upgrade: ApiUpgrade, isKnown: (name: string) => boolean): string {
  const { request } = upgrade;
  const key = request.headers['sec-websocket-key'] ?? '';
  if (request.method !== 'GET' || request.headers['sec-websocket-version'] !== '13' || key === '') {
    throw badRequest('the WebSocket handshake is incomplete: GET, version 13 and a key are required');
  }
  const offered = subprotocolsOf(request).filter((name) => !isBearerSubprotocol(name));
  const chosen = offered.length === 0 && isKnown('') ? '' : offered.find(isKnown);
  if (chosen === undefined) {
    throw forbidden(`unable to upgrade: none of the subprotocols is supported: [${offered.join(' ')}]`);
  }
  switchProtocols(upgrade, [
    'Upgrade: websocket',
    `Sec-WebSocket-Accept: ${acceptKey(key)}`,
    `Sec-WebSocket-Protocol: ${chosen}`,
  ]);
  return chosen;
}

function switchProtocols(upgrade: ApiUpgrade, lines: readonly string[]): void {
  const { socket, head } = upgrade;
  upgrade.switched = true;
  socket.write(['HTTP/1.1 101 Switching Protocols', 'Connection: Upgrade', ...lines, '', ''].join('\r\n'));
  if (head.byteLength > 0) socket.unshift(Buffer.from(head));
}

/** Rejects an upgrade with a status like the API server, and closes the connection. */
export function refuseUpgrade(socket: Duplex, error: ApiStatusError): void {
  const body = encodeBody(error.status);
  const head = [
    `HTTP/1.1 ${String(error.httpStatus)} ${STATUS_CODES[error.httpStatus] ?? ''}`,
    'Content-Type: application/json',
    'X-Content-Type-Options: nosniff',
    `Content-Length: ${String(Buffer.byteLength(body))}`,
    'Connection: close',
  ];
  socket.on('error', () => undefined);
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}
