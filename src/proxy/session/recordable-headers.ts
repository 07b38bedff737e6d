/** The headers of an upgrade whose streams are recorded. */
import { TailcastError } from '../../errors.ts';
import { headerLines, withoutHeader } from '../../kube/header-lines.ts';
import { bearerSubprotocols } from '../../kube/headers.ts';
import { recordableSubprotocols, type StreamProtocol } from '../../recording/stream-plan.ts';

/** Headers with the offered and the chosen subprotocol. */
export const SUBPROTOCOL_HEADER = {
  spdy: 'x-stream-protocol-version',
  websocket: 'sec-websocket-protocol',
} as const;

/** Returns the headers of a recorded upgrade, which offer only subprotocols that the taps can read. */
export function recordableHeaders(
  protocol: StreamProtocol,
  headers: readonly string[],
): { readonly headers: readonly string[]; readonly offered: readonly string[] } {
  const name = SUBPROTOCOL_HEADER[protocol];
  const offered = recordableSubprotocols(protocol, headerLines(headers, name));
  // Without a version some servers choose the oldest one, and others respond with an error.
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
  // Credentials are present in noauth mode only. The API server removes them before it chooses a subprotocol.
  const credentials = headerLines(headers, name).flatMap(bearerSubprotocols);
  const line =
    offered.length === 0 ? [] : ['Sec-WebSocket-Protocol', [...credentials, ...offered].join(', ')];
  return { headers: [...kept, ...line], offered };
}
