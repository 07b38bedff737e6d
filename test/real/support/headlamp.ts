/**
 * The protocol of Headlamp's frontend (frontend/src/lib/k8s: pod.ts, apiProxy): sessions over WebSocket with v4 and
 * older, watches over WebSocket, and all paths below a cluster prefix.
 */
import { once } from 'node:events';
import WebSocket from 'ws';

export interface HeadlampServer {
  /** URL with the path prefix of the cluster. */
  readonly url: string;
  readonly ca: string;
  readonly token: string;
  /** Origin of the page. Default: the origin of `url`, as for a page from the same server. */
  readonly origin?: string;
}

const SESSION_PROTOCOLS = ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'];
const WATCH_PROTOCOLS = ['base64.binary.k8s.io'];

export interface HeadlampSession {
  readonly protocol: string;
  readonly stdout: string;
  readonly stderr: string;
  /** Status from the error channel. */
  readonly status: Readonly<Record<string, unknown>>;
}

export async function execute(
  server: HeadlampServer,
  pod: string,
  command: readonly string[],
): Promise<HeadlampSession> {
  const query = new URLSearchParams([
    ...command.map((word) => ['command', word]),
    ['stdin', '1'],
    ['stdout', '1'],
    ['stderr', '1'],
  ]);
  const path = `/api/v1/namespaces/default/pods/${pod}/exec?${query.toString()}`;
  const socket = open(server, path, SESSION_PROTOCOLS);
  const channels = new Map<number, string>();
  socket.on('message', (data: Buffer) => {
    const channel = data[0] ?? -1;
    channels.set(channel, (channels.get(channel) ?? '') + data.subarray(1).toString());
  });
  await once(socket, 'close');
  return {
    protocol: socket.protocol,
    stdout: channels.get(1) ?? '',
    stderr: channels.get(2) ?? '',
    status: JSON.parse(channels.get(3) ?? '{}') as Record<string, unknown>,
  };
}

/** Watches config maps, runs `change`, and returns the types and names of the first `count` events. */
export async function watch(
  server: HeadlampServer,
  name: string,
  count: number,
  change: () => Promise<void>,
): Promise<readonly string[]> {
  const path = `/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3D${name}`;
  const socket = open(server, path, WATCH_PROTOCOLS);
  const seen: string[] = [];
  const enough = new Promise<void>((done, fail) => {
    socket.on('error', fail);
    socket.on('close', () => fail(new Error(`the watch ended after ${seen.join(', ')}`)));
    socket.on('message', (data: Buffer) => {
      // The API server writes watch events as plain JSON, whichever WebSocket protocol the client requests.
      const { type } = JSON.parse(data.toString()) as { type: string };
      if (seen.push(type) === count) done();
    });
  });
  enough.catch(() => undefined);
  try {
    await once(socket, 'open');
    await change();
    await enough;
  } finally {
    socket.terminate();
  }
  return seen;
}

/**
 * Browsers cannot set headers on a WebSocket, so the token is one of the protocols. Browsers send an Origin, and the
 * API server refuses watches without one.
 */
function open(
  { url, ca, token, origin }: HeadlampServer,
  path: string,
  protocols: readonly string[],
): WebSocket {
  const bearer = `base64url.bearer.authorization.k8s.io.${Buffer.from(token).toString('base64url')}`;
  return new WebSocket(url.replace('https:', 'wss:') + path, [bearer, ...protocols], {
    ca,
    origin: origin ?? new URL(url).origin,
  });
}
