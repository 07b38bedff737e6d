/**
 * The channel subprotocols of Kubernetes exec and attach over WebSocket (k8s.io/apimachinery `util/remotecommand`,
 * k8s.io/apiserver `util/wsstream`, k8s.io/kubelet `cri/streaming/remotecommand/websocket.go`).
 *
 * A binary message is one channel byte and data; in the base64 variants a text message is one digit and base64. With
 * fragmentation the channel byte stands in the first frame of a message only.
 */
import { decodeBase64, encodeBase64Bytes } from '../base64.ts';
import { WireError } from '../wire-error.ts';

/** `close` exists from v5 on: its data is the one channel that its sender has finished. */
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
 * What a chosen subprotocol means; `undefined` if it is not one of the channel protocols. The names are case-sensitive.
 * The empty name is what is chosen when the client offered none: it means version 1.
 * The same names, without the base64 ones, stand in `X-Stream-Protocol-Version` of a SPDY upgrade.
 */
export function parseSubprotocol(name: string): ChannelProtocol | undefined {
  return PROTOCOLS.get(name);
}

const BEARER_PREFIX = 'base64url.bearer.authorization.k8s.io.';

/**
 * Whether a subprotocol is a bearer token in disguise (k8s.io/apiserver `authentication/request/websocket`). Never log
 * it, never select it, and in auth mode do not forward it.
 */
export function isBearerSubprotocol(name: string): boolean {
  return name.toLowerCase().startsWith(BEARER_PREFIX);
}

/** The names in `Sec-WebSocket-Protocol` or `X-Stream-Protocol-Version` lines, in order; empty ones are left out. */
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
 * A whole text message of a base64 protocol: channel digit, then base64 (wsstream `handle`).
 *
 * @throws WireError `malformed` when it is empty, the first character is no digit, or the rest no base64.
 */
export function decodeBase64Message(text: Uint8Array): ChannelMessage {
  const channel = (text[0] ?? 0) - 0x30;
  if (channel < 0 || channel > 9) throw new WireError('malformed', 'a base64 message begins with a digit');
  return { channel, data: decodeBase64(text.subarray(1)) };
}

/** @throws WireError `malformed` for a channel that is no digit: these protocols have no close signal. */
export function encodeBase64Message({ channel, data }: ChannelMessage): Uint8Array {
  if (!Number.isInteger(channel) || channel < 0 || channel > 9) {
    throw new WireError('malformed', 'a base64 message begins with a digit');
  }
  const encoded = encodeBase64Bytes(data);
  const message = new Uint8Array(1 + encoded.length);
  message[0] = 0x30 + channel;
  message.set(encoded, 1);
  return message;
}
