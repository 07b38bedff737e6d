/**
 * Selects the subprotocols of an exec or attach upgrade that can be recorded, and creates the tap for the
 * negotiated subprotocol. Refuses unknown subprotocols, because such a session could not be recorded.
 */
import { TailcastError } from '../errors.ts';
import { bearerSubprotocols, headerLines, withoutHeader } from '../kube/headers.ts';
import { parseSubprotocol, splitProtocolLines } from '../wire/remotecommand/channel.ts';
import type { SpdyStreams } from './spdy-server-reader.ts';
import { createSpdyTap } from './tap-spdy.ts';
import { createWebSocketTap } from './tap-websocket.ts';
import { violation, type Tap, type TappedSession } from './tap.ts';

export type StreamProtocol = 'spdy' | 'websocket';

/**
 * Returns the offered subprotocols that can be recorded.
 * @param lines values of `Sec-WebSocket-Protocol` or `X-Stream-Protocol-Version`, without bearer tokens
 * @returns the names in the order of the client. Empty if the client offered none; undefined if no offered
 * subprotocol can be recorded
 */
export function recordableSubprotocols(
  protocol: StreamProtocol,
  lines: readonly string[],
): readonly string[] | undefined {
  const offered = splitProtocolLines(lines);
  const known = offered.filter((name) => isRecordable(protocol, name));
  return offered.length > 0 && known.length === 0 ? undefined : known;
}

/**
 * Creates the tap for a connection with the negotiated subprotocol `chosen`.
 * @param streams registry to which the tap adds the streams of a SPDY connection
 * @throws TailcastError `SESSION_VIOLATED` if the subprotocol cannot be recorded
 */
export function createTap(
  session: TappedSession,
  protocol: StreamProtocol,
  chosen: string,
  streams?: SpdyStreams,
): Tap {
  const parsed = parseSubprotocol(chosen);
  if (parsed === undefined || !isRecordable(protocol, chosen)) {
    throw violation('the API server chose a stream protocol that cannot be recorded');
  }
  return protocol === 'spdy'
    ? createSpdyTap(session, parsed.version, streams)
    : createWebSocketTap(session, parsed);
}

function isRecordable(protocol: StreamProtocol, name: string): boolean {
  const parsed = parseSubprotocol(name);
  // A request over SPDY must name a channel-protocol version, because the API server responds with 400 otherwise. SPDY
  // data is never base64.
  return parsed !== undefined && (protocol === 'websocket' || (name !== '' && !parsed.base64));
}

/** Names of the headers with the offered and the chosen subprotocol. */
export const SUBPROTOCOL_HEADER = {
  spdy: 'x-stream-protocol-version',
  websocket: 'sec-websocket-protocol',
} as const;

/**
 * Returns the request headers of a recorded upgrade. The headers offer only subprotocols that the taps can parse.
 */
export function recordableHeaders(
  protocol: StreamProtocol,
  headers: readonly string[],
): { readonly headers: readonly string[]; readonly offered: readonly string[] } {
  const name = SUBPROTOCOL_HEADER[protocol];
  const offered = recordableSubprotocols(protocol, headerLines(headers, name));
  // If a SPDY request names no channel-protocol version, some servers choose the oldest version and others respond with
  // an error.
  if (offered === undefined || (protocol === 'spdy' && offered.length === 0)) {
    throw new TailcastError('UPGRADE_REFUSED', 'none of the offered stream protocols can be recorded');
  }
  const kept = withoutHeader(withoutHeader(headers, name), 'sec-websocket-extensions');
  if (protocol === 'spdy') {
    return {
      headers: [...kept, ...offered.flatMap((version) => ['X-Stream-Protocol-Version', version])],
      offered,
    };
  }
  // In `noauth` mode, the list may contain a bearer token, which the API server removes before it chooses a
  // subprotocol.
  const credentials = headerLines(headers, name).flatMap(bearerSubprotocols);
  const line =
    offered.length === 0 ? [] : ['Sec-WebSocket-Protocol', [...credentials, ...offered].join(', ')];
  return { headers: [...kept, ...line], offered };
}
