/** A program floods the terminal of a slow client. The client's acknowledgements limit the output in transfer. */
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openTestBuffers } from '../support/elastic-buffers.ts';
import { createSpdyParser, encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { createWebSocketScanner, encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import { openRecorded } from '../support/recorded-rig.ts';
import {
  clientMessage,
  createSpdyPeer,
  MASK,
  serverEnd,
  serverMessage,
  STATUS_SUCCESS,
  utf8,
} from '../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC_TTY,
  SPDY_V4,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
  type Rig,
} from '../support/upgrade-rig.ts';

const MIB = 1024 * 1024;
const SIZE = utf8('{"Width":80,"Height":24}');
const BLOCK = new Uint8Array(32 * 1024).fill(0x61);
const BLOCKS = 128;

/** A protocol: messages of client and server, and a parser for the client's side. */
interface Protocol {
  readonly request: Parameters<typeof askUpgrade>[1];
  readonly subprotocol: string;
  /** Bytes from the client before the flood. */
  readonly hello: Uint8Array;
  readonly flood: Uint8Array;
  /** @returns a parser, which returns the output bytes in a chunk and the responses to pings */
  reader(): (chunk: Uint8Array) => { readonly output: number; readonly answers: readonly Uint8Array[] };
}

const WEBSOCKET: Protocol = {
  request: { target: EXEC_TTY, headers: WEBSOCKET_V5 },
  subprotocol: 'v5.channel.k8s.io',
  hello: clientMessage(4, SIZE),
  flood: Buffer.concat([
    ...Array.from({ length: BLOCKS }, () => serverMessage(1, BLOCK)),
    serverEnd(STATUS_SUCCESS),
  ]),
  reader() {
    const scanner = createWebSocketScanner({ expectMask: false });
    return (chunk) => {
      let output = 0;
      const answers: Uint8Array[] = [];
      for (const piece of scanner.push(chunk)) {
        if (piece.opcode === OPCODE.binary) output += piece.bytes.length;
        if (piece.opcode === OPCODE.ping)
          answers.push(
            encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: piece.bytes, mask: MASK }),
          );
      }
      return { output, answers };
    };
  },
};

const client = createSpdyPeer();
const server = createSpdyPeer();
const SPDY: Protocol = {
  request: { method: 'POST', target: EXEC_TTY, headers: SPDY_V4 },
  subprotocol: 'v4.channel.k8s.io',
  hello: Buffer.concat([
    ...['error', 'stdin', 'stdout', 'resize'].map((role, index) => client.open(index * 2 + 1, role)),
    client.data(7, SIZE),
  ]),
  flood: Buffer.concat([
    ...[1, 3, 5, 7].map((id) => server.reply(id)),
    ...Array.from({ length: BLOCKS }, () => server.data(5, BLOCK)),
    server.data(5, new Uint8Array(0), true),
    server.data(1, STATUS_SUCCESS, true),
  ]),
  reader() {
    const parser = createSpdyParser();
    return (chunk) => {
      let output = 0;
      const answers: Uint8Array[] = [];
      for (const event of parser.push(chunk)) {
        if (event.kind === 'data') output += event.payload.length;
        if (event.kind === 'ping') answers.push(encodeSpdyFrame(event));
      }
      return { output, answers };
    };
  },
};

/** Starts an API server that floods after the client's first bytes, and stores the client's later bytes. */
async function flooding({ hello, flood, subprotocol }: Protocol): Promise<{ rig: Rig; shown: () => Buffer }> {
  const shown: Buffer[] = [];
  const script: UpgradeScript = (request, socket) => {
    socket.write(switching(request, subprotocol));
    socket.on('data', (chunk: Buffer) => {
      const before = Buffer.concat(shown).length;
      shown.push(chunk);
      if (before < hello.length && before + chunk.length >= hello.length) socket.end(flood);
    });
  };
  const { rig } = await openRecorded(script, {
    deps: { buffers: openTestBuffers() },
  });
  return { rig, shown: () => Buffer.concat(shown) };
}

describe.each([
  ['WebSocket', WEBSOCKET],
  ['SPDY', SPDY],
])('a flood on a terminal over %s', (_, protocol) => {
  it('waits for ping responses of its client, which are not forwarded to the API server', async () => {
    const { rig, shown } = await flooding(protocol);
    const { socket, reader } = await askUpgrade(rig.port, protocol.request);
    const read = protocol.reader();
    let output = 0;
    let answering = false;
    let waiting: Uint8Array[] = [];
    const answer = (): void => {
      if (answering && !socket.writableEnded) for (const one of waiting.splice(0)) socket.write(one);
    };
    socket.on('data', (chunk: Buffer) => {
      const seen = read(chunk);
      output += seen.output;
      waiting = [...waiting, ...seen.answers];
      answer();
    });
    socket.write(protocol.hello);
    await reader.until(() => output >= 64 * 1024);
    // while the client does not respond to pings, the gateway keeps the limit on output in transfer at its initial
    // value
    await delay(300);
    expect(output).toBeLessThan(MIB / 2);
    answering = true;
    answer();
    await reader.untilClosed();
    expect(output).toBeGreaterThanOrEqual(BLOCKS * BLOCK.length);
    expect(shown().equals(Buffer.from(protocol.hello))).toBe(true);
    expect(await rig.until('sessionEnded')).toMatchObject({
      outcome: 'completed',
      outputBytes: BLOCKS * BLOCK.length,
    });
  });

  it('does not wait for a client that does not respond to pings', async () => {
    const { rig } = await flooding(protocol);
    const { socket, reader } = await askUpgrade(rig.port, protocol.request);
    socket.write(protocol.hello);
    await reader.untilClosed();
    expect(reader.size).toBeGreaterThan(BLOCKS * BLOCK.length);
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed' });
  });
});
