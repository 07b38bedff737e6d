import { Readable, Writable, type Duplex } from 'node:stream';
import { CHANNEL, parseSubprotocol } from '../src/wire/remotecommand/channel.ts';
import { encodeStatus } from '../src/wire/remotecommand/exit-status.ts';
import { OPCODE } from '../src/wire/websocket/frame.ts';
import { createSizes, endOf, guarded, type RemoteStreams, type StreamOptions } from './remote-streams.ts';
import { sendInParts } from './spdy-server.ts';
import { serveWebSocket, type FramePart } from './websocket-server.ts';

const WEBSOCKET_PROTOCOLS = ['', 'v5.channel.k8s.io', 'v4.channel.k8s.io', 'channel.k8s.io'];

/** Returns true if exec and attach support this WebSocket subprotocol. */
export function isRemoteCommandSubprotocol(name: string): boolean {
  return WEBSOCKET_PROTOCOLS.includes(name);
}

/**
 * Opens a session over WebSocket on `socket`. The 101 response on this socket has selected `protocol`. Source:
 * apiserver `pkg/util/wsstream/conn.go`.
 */
export function openWebSocketSession(
  socket: Duplex,
  protocol: string,
  options: StreamOptions,
): RemoteStreams {
  const { version } = parseSubprotocol(protocol) ?? { version: 1 as const };
  const sizes = createSizes();
  const gone = new AbortController();
  const stdin = options.stdin
    ? new Readable({
        read: () => {
          connection.resume();
        },
      })
    : undefined;
  let stdinEnded = false;
  const endStdin = (): void => {
    if (!stdinEnded) stdin?.push(null);
    stdinEnded = true;
  };
  const receive = (channel: number, data: Uint8Array): void => {
    if (channel === CHANNEL.stdin && stdin !== undefined && !stdinEnded && !stdin.destroyed) {
      if (data.byteLength > 0 && !stdin.push(Uint8Array.from(data))) connection.pause();
    } else if (channel === CHANNEL.resize) {
      guarded(sizes.push, () => {
        connection.close(1002);
      })(data);
    } else if (channel === CHANNEL.close && version >= 5 && data[0] === CHANNEL.stdin) {
      endStdin();
    }
  };
  const connection = serveWebSocket(socket, {
    onFrame: createDemultiplexer(receive),
    onEnd: () => {
      gone.abort();
    },
  });
  const send = (channel: number, data: Uint8Array, done?: () => void): void => {
    connection.send(OPCODE.binary, Buffer.concat([Uint8Array.of(channel), data]), done);
  };
  const output = (channel: number): Writable =>
    new Writable({
      highWaterMark: 32 * 1024,
      write(chunk: Uint8Array, _encoding, done) {
        sendInParts(
          chunk,
          (part, sent) => {
            send(channel, part, sent);
          },
          done,
        );
      },
    });
  const stdout = options.stdout ? output(CHANNEL.stdout) : undefined;
  const stderr = options.stderr && !options.tty ? output(CHANNEL.stderr) : undefined;
  // An empty message on the lowest writable channel tells the client that the session has started.
  send(
    stdout !== undefined ? CHANNEL.stdout : stderr !== undefined ? CHANNEL.stderr : CHANNEL.error,
    new Uint8Array(0),
  );
  return {
    stdin,
    stdout,
    stderr,
    onResize: sizes.onResize,
    gone: gone.signal,
    async finish(status) {
      await Promise.all([endOf(stdout), endOf(stderr)]);
      send(CHANNEL.error, encodeStatus(status, version));
      connection.close(1000);
      await connection.closed;
    },
  };
}

/**
 * Separates the channel from the data of frames. Each frame is one message, and the data of a large frame arrives in
 * parts.
 */
function createDemultiplexer(
  receive: (channel: number, data: Uint8Array) => void,
): (part: FramePart) => void {
  let channel: number | undefined;
  return ({ first, bytes }) => {
    if (first) channel = undefined;
    const data = channel === undefined ? bytes.subarray(1) : bytes;
    channel ??= bytes[0];
    if (channel !== undefined) receive(channel, data);
  };
}
