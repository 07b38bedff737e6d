/** Frames of a shell with a terminal, for client and API server. */
import { encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import { clientMessage, createSpdyPeer, MASK, serverMessage, utf8 } from './stream-peers.ts';
import { SPDY_V4, WEBSOCKET_V5 } from './upgrade-rig.ts';

/** The frames of one session, by protocol. */
export const WIRES = {
  websocket: () => ({
    headers: WEBSOCKET_V5,
    chosen: 'v5.channel.k8s.io',
    start: new Uint8Array(0),
    greeting: serverMessage(1, utf8('# ')),
    size: clientMessage(4, utf8('{"Width":80,"Height":24}\n')),
    input: (text: string) => clientMessage(0, utf8(text)),
    output: (text: string) => serverMessage(1, utf8(text)),
    ping: encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: utf8('alive?'), mask: MASK }),
    pong: encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: utf8('alive?') }),
  }),
  spdy() {
    const peer = createSpdyPeer();
    const server = createSpdyPeer();
    const ping = encodeSpdyFrame({ kind: 'ping', id: 1 });
    return {
      headers: SPDY_V4,
      chosen: 'v4.channel.k8s.io',
      start: Buffer.concat(
        ['error', 'stdin', 'stdout', 'resize'].map((role, index) => peer.open(index * 2 + 1, role)),
      ),
      greeting: Buffer.concat([...[1, 3, 5, 7].map((id) => server.reply(id)), server.data(5, utf8('# '))]),
      size: peer.data(7, utf8('{"Width":80,"Height":24}\n')),
      input: (text: string) => peer.data(3, utf8(text)),
      output: (text: string) => peer.data(5, utf8(text)),
      ping,
      pong: ping,
    };
  },
};
export type Protocol = keyof typeof WIRES;
