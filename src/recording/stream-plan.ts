/**
 * Selects the subprotocols of an exec or attach upgrade that can be recorded, and creates the taps for the negotiated
 * one. Unknown subprotocols are refused, so that no session runs unrecorded because of its protocol.
 */
import { parseSubprotocol, splitProtocolLines } from '../wire/remotecommand/channel.ts';
import { createSpdyTaps } from './tap-spdy.ts';
import { createWebSocketTaps } from './tap-websocket.ts';
import { violation, type SessionTaps, type TappedSession } from './tap.ts';

export type StreamProtocol = 'spdy' | 'websocket';

/**
 * @param lines values of `Sec-WebSocket-Protocol` or `X-Stream-Protocol-Version`, without bearer tokens Returns the
 *   offered subprotocols that can be recorded.
 * @returns in the order of the client: empty if the client offered none, undefined if none of the offered ones can be
 *   recorded
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
 * Creates the taps for a connection with the negotiated subprotocol `chosen`.
 * @throws TailcastError `SESSION_VIOLATED` if it cannot be recorded
 */
export function createTaps(session: TappedSession, protocol: StreamProtocol, chosen: string): SessionTaps {
  const parsed = parseSubprotocol(chosen);
  if (parsed === undefined || !isRecordable(protocol, chosen)) {
    throw violation('the API server chose a stream protocol that cannot be recorded');
  }
  return protocol === 'spdy' ? createSpdyTaps(session, parsed.version) : createWebSocketTaps(session, parsed);
}

function isRecordable(protocol: StreamProtocol, name: string): boolean {
  const parsed = parseSubprotocol(name);
  // SPDY requests always name a version, otherwise the API server responds with 400. SPDY data is never base64.
  return parsed !== undefined && (protocol === 'websocket' || (name !== '' && !parsed.base64));
}
