import type { Duplex } from 'node:stream';
import { settledWithin } from '../src/async/with-timeout.ts';
import { parseSubprotocol } from '../src/wire/remotecommand/channel.ts';
import { encodeStatus } from '../src/wire/remotecommand/exit-status.ts';
import { createSizes, endOf, guarded, type RemoteStreams, type StreamOptions } from './remote-streams.ts';
import { serveSpdy, type ServedStream } from './spdy-server.ts';

/** Time in which the client must open its streams. Source: kubelet `DefaultStreamCreationTimeout`. */
const STREAM_CREATION_TIMEOUT_MS = 30_000;
/** Time in which the client must disconnect after it has received all data. */
const LEAVE_TIMEOUT_MS = 5_000;
/** Stream protocols for exec and attach over SPDY that the kubelet supports. */
export const SPDY_PROTOCOLS = [
  'v4.channel.k8s.io',
  'v3.channel.k8s.io',
  'v2.channel.k8s.io',
  'channel.k8s.io',
] as const;

/**
 * Opens a session over SPDY on `socket`. The 101 response on this socket has selected `protocol`. Resolves when the
 * client has opened all requested streams. If the client needs more than 30 s, closes the connection and
 * rejects. Source: kubelet `cri/streaming/remotecommand/httpstream.go`.
 */
export async function openSpdySession(
  socket: Duplex,
  protocol: string,
  options: StreamOptions,
): Promise<RemoteStreams> {
  const { version } = parseSubprotocol(protocol) ?? { version: 1 };
  const expected = [
    'error',
    ...(options.stdin ? ['stdin'] : []),
    ...(options.stdout ? ['stdout'] : []),
    ...(options.stderr && !options.tty ? ['stderr'] : []),
    ...(options.tty && version >= 3 ? ['resize'] : []),
  ];
  const streams = new Map<string, ServedStream>();
  const gone = new AbortController();
  const complete = Promise.withResolvers<undefined>();
  const connection = serveSpdy(socket, {
    maxStreams: 8,
    onStream(stream) {
      streams.set(stream.headers.get('streamtype') ?? '', stream);
      if (expected.every((type) => streams.has(type))) complete.resolve(undefined);
    },
  });
  void connection.closed.then(() => {
    gone.abort();
    complete.reject(new Error('the client left before it opened its streams'));
  });
  const timer = setTimeout(() => {
    connection.close();
    complete.reject(new Error('timed out waiting for client to create streams'));
  }, STREAM_CREATION_TIMEOUT_MS);
  await complete.promise.finally(() => {
    clearTimeout(timer);
  });

  const sizes = createSizes();
  streams.get('resize')?.input.on(
    'data',
    guarded(sizes.push, () => {
      connection.close();
    }),
  );
  for (const type of ['error', 'stdout', 'stderr']) streams.get(type)?.input.resume();
  const [stdout, stderr] = [streams.get('stdout')?.output, streams.get('stderr')?.output];
  return {
    stdin: streams.get('stdin')?.input,
    stdout,
    stderr,
    onResize: sizes.onResize,
    gone: gone.signal,
    async finish(status) {
      await Promise.all([endOf(stdout), endOf(stderr)]);
      const errors = streams.get('error')?.output;
      errors?.write(encodeStatus(status, version));
      await endOf(errors);
      await settledWithin(LEAVE_TIMEOUT_MS, connection.closed);
      connection.close();
    },
  };
}
