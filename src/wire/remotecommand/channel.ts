/**
 * Channel subprotocols of Kubernetes exec and attach over WebSocket (k8s.io/apimachinery `util/remotecommand`,
 * k8s.io/apiserver `util/wsstream`, k8s.io/kubelet `cri/streaming/remotecommand/websocket.go`).
 *
 * A binary message is a channel byte and data; in the base64 variants a text message is a digit and base64.
 * In a fragmented message, only the first frame has the channel byte.
 */
import { encodeWebSocketFrame, OPCODE } from '../websocket/frame.ts';
import { WireError } from '../wire-error.ts';

/** `close` exists since v5. Its data is the number of the channel that the sender has closed. */
export const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4, close: 255 } as const;

export type ChannelVersion = 1 | 2 | 3 | 4 | 5;

export interface ChannelProtocol {
  readonly version: ChannelVersion;
  readonly base64: boolean;
}

const PROTOCOLS: ReadonlyMap<string, ChannelProtocol> = new Map<string, ChannelProtocol>([
  ['', { version: 1, base64: false }],
  ['channel.k8s.io', { version: 1, base64: false }],
  ['v2.channel.k8s.io', { version: 2, base64: false }],
  ['v3.channel.k8s.io', { version: 3, base64: false }],
  ['v4.channel.k8s.io', { version: 4, base64: false }],
  ['v5.channel.k8s.io', { version: 5, base64: false }],
  ['base64.channel.k8s.io', { version: 1, base64: true }],
  ['v4.base64.channel.k8s.io', { version: 4, base64: true }],
]);

/**
 * Parses the name of a selected subprotocol. Returns `undefined` for unknown names. Names are case-sensitive. The empty
 * name means version 1, for clients that offer no subprotocol. SPDY upgrades use the same names in
 * `X-Stream-Protocol-Version`, except those for base64.
 */
export function parseSubprotocol(name: string): ChannelProtocol | undefined {
  return PROTOCOLS.get(name);
}

/**
 * Returns the non-empty names in lines of `Sec-WebSocket-Protocol` or `X-Stream-Protocol-Version`, in order.
 */
export function splitProtocolLines(lines: Iterable<string>): readonly string[] {
  return [...lines]
    .flatMap((line) => line.split(',').map((name) => name.trim()))
    .filter((name) => name !== '');
}

export interface ChannelMessage {
  readonly channel: number;
  readonly data: Uint8Array;
}

/**
 * @throws WireError `malformed` for a channel above 9. The close channel (255) does not exist in base64
 * protocols.
 */
export function encodeBase64Message({ channel, data }: ChannelMessage): Uint8Array {
  if (!Number.isInteger(channel) || channel < 0 || channel > 9) {
    throw new WireError('malformed', 'a base64 message begins with a digit');
  }
  return new TextEncoder().encode(`${channel}${data.toBase64()}`);
}

/** Returns a message of the server as one WebSocket frame. @throws WireError as `encodeBase64Message` */
export function encodeServerMessage({ channel, data }: ChannelMessage, isBase64: boolean): Uint8Array {
  const payload = isBase64
    ? encodeBase64Message({ channel, data })
    : Buffer.concat([Uint8Array.of(channel), data]);
  return encodeWebSocketFrame({ opcode: isBase64 ? OPCODE.text : OPCODE.binary, fin: true, payload });
}
