import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import type { Duplex } from 'node:stream';
import { serveSpdy, type ServedStream } from './spdy-server.ts';

/** Stream protocol of port-forward over SPDY. The protocol is also used for SPDY inside a WebSocket tunnel. */
export const PORT_FORWARD_PROTOCOL = 'portforward.k8s.io';
/** WebSocket subprotocol of port-forward: a tunnel that contains SPDY. */
export const TUNNEL_PROTOCOL = `SPDY/3.1+${PORT_FORWARD_PROTOCOL}`;

/** Maximum number of forwarded connections. Each connection uses two streams. */
const MAX_FORWARDED = 200;

interface Pair {
  error: ServedStream | undefined;
  data: ServedStream | undefined;
}

/**
 * Serves port-forward on `transport`. Each pair of streams with one `requestid` becomes a connection to the local port
 * from `resolvePort`. If the local port refuses the connection, the error stream of the pair reports the reason.
 * Resolves after the client has disconnected. Source: kubelet `cri/streaming/portforward`.
 */
export async function servePortForward(
  transport: Duplex,
  resolvePort: (containerPort: number) => Promise<number>,
): Promise<void> {
  const pairs = new Map<string, Pair>();
  const sockets = new Set<Socket>();
  const connection = serveSpdy(transport, {
    maxStreams: 2 * MAX_FORWARDED,
    onStream(stream) {
      const key = stream.headers.get('requestid') ?? stream.headers.get('port') ?? '';
      const pair = pairs.get(key) ?? { error: undefined, data: undefined };
      const kind = stream.headers.get('streamtype');
      if (kind === 'error') {
        stream.input.resume();
        pair.error = stream;
      } else if (kind === 'data') {
        pair.data = stream;
      }
      pairs.set(key, pair);
      const { error, data } = pair;
      if (error === undefined || data === undefined) return;
      pairs.delete(key);
      void forward(error, data, resolvePort, sockets);
    },
  });
  await connection.closed;
  for (const socket of sockets) socket.destroy();
}

async function forward(
  error: ServedStream,
  data: ServedStream,
  resolvePort: (containerPort: number) => Promise<number>,
  sockets: Set<Socket>,
): Promise<void> {
  const port = Number(data.headers.get('port'));
  let socket: Socket | undefined;
  error.output.on('error', () => undefined);
  data.output.on('error', () => undefined);
  try {
    socket = await dial(await resolvePort(port));
    sockets.add(socket);
    await Promise.all([pipeline(data.input, socket), pipeline(socket, data.output)]);
  } catch (failure) {
    const reason = failure instanceof Error ? failure.message : String(failure);
    if (socket === undefined) error.output.write(`error forwarding port ${String(port)} to pod: ${reason}`);
  } finally {
    if (socket !== undefined) sockets.delete(socket);
    socket?.destroy();
    data.input.destroy();
    data.output.end();
    error.output.end();
  }
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  await once(socket, 'connect');
  return socket;
}
