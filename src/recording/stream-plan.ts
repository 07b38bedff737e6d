/**
 * Which subprotocols of an exec or attach upgrade can be recorded, and the taps for the one that was chosen. Pure but for
 * creating the taps. What is not understood here is refused: it must never run unrecorded because it was odd.
 */
import { parseSubprotocol, splitProtocolLines } from '../wire/remotecommand/channel.ts';
import { createSpdyTaps } from './tap-spdy.ts';
import { createWebSocketTaps } from './tap-websocket.ts';
import { violation, type SessionTaps, type TappedSession } from './tap.ts';

export type StreamProtocol = 'spdy' | 'websocket';

/**
 * @param lines values of `Sec-WebSocket-Protocol` or `X-Stream-Protocol-Version`, without bearer tokens
 * @returns those that can be recorded, in the client's order: empty when none was offered, `undefined` when something was
 *   offered and none of it can be
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
 * Taps for a connection on which `chosen` was agreed.
 * @throws TailcastError `SESSION_VIOLATED` when it cannot be recorded
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
  // Over SPDY the version is always named (the API server answers 400 without), and data is never base64.
  return parsed !== undefined && (protocol === 'websocket' || (name !== '' && !parsed.base64));
}
