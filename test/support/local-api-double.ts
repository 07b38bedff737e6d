/**
 * A double of tailscaled's LocalAPI: a real HTTP server on a Unix socket in a directory of its own. Like tailscaled, it
 * checks `Host`, `Origin` and `Referer`. Tests can set the state of the double, delay its responses, and make it reject
 * requests.
 */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';

export interface LocalApiDouble {
  readonly socketPath: string;
  /**
   * Whois responses by requested address (query parameter `addr`). A string is sent unchanged. Without an entry, the
   * response is 404.
   */
  readonly whois: Map<string, unknown>;
  status: Record<string, unknown>;
  /** The first netmap for IPN bus watchers that request one. */
  netmap: unknown;
  serveConfig: unknown;
  /** PEM text of certificates with their keys, by domain. The response for other domains is 500. */
  readonly certificates: Map<string, string>;
  /**
   * Result of a dial by `host:port`: the loopback port to connect to; `self`: the response has `Dial-Self`; `fail`:
   * 502; `hang`: no response.
   */
  readonly dials: Map<string, number | 'self' | 'fail' | 'hang'>;
  /** Bytes that are sent in the same write as the 101 response to a dial. */
  dialGreeting: string;
  /** Received requests, in order. */
  readonly requests: {
    readonly method: string;
    readonly url: string;
    readonly headers: IncomingMessage['headers'];
  }[];
  /** Requests that change the node, in order: method, path and body. */
  readonly changes: string[];
  /** Delays every response until this promise resolves. */
  hold: Promise<void> | undefined;
  /** Response that replaces the normal responses to all requests. */
  failure: { readonly status: number; readonly body: string } | undefined;
  /** Highest number of concurrent requests. */
  readonly peak: number;
  /** Sends one line to all IPN bus watchers. */
  notify(message: unknown): void;
  /** Resolves when the next watcher connects. */
  nextWatcher(): Promise<void>;
  /** Closes the connections of all watchers. */
  dropWatchers(): void;
  close(): Promise<void>;
}

/** Returns a whois body like tailscaled's, for a node of a user. */
export function userNode(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    Node: {
      ID: 4,
      StableID: 'nAlice',
      Name: 'alice.lab.ts.net.',
      User: 1,
      Addresses: ['100.64.0.4/32', 'fd7a:115c:a1e0::4/128'],
      ...overrides,
    },
    UserProfile: { ID: 1, LoginName: 'alice@example.com', DisplayName: 'Alice' },
    CapMap: { 'tailscale.com/cap/kubernetes': [{ impersonate: { groups: ['readers'] } }] },
  };
}

/** Returns a whois body like tailscaled's, for a tagged node. */
export function taggedNode(tags: readonly string[] = ['tag:ci']): Record<string, unknown> {
  return {
    Node: {
      ID: 5,
      StableID: 'nCi',
      Name: 'ci.lab.ts.net.',
      User: 2,
      Tags: tags,
      Addresses: ['100.64.0.5/32'],
    },
    UserProfile: { ID: 2, LoginName: 'tagged-devices', DisplayName: 'Tagged Devices' },
    CapMap: null,
  };
}

export async function startLocalApiDouble(): Promise<LocalApiDouble> {
  const directory = await mkdtemp(join(tmpdir(), 'local-api-'));
  const socketPath = join(directory, 'tailscaled.sock');
  const watching = new Set<ServerResponse>();
  const tunnels = new Set<Duplex>();
  let arrivals: (() => void)[] = [];
  let active = 0;
  let peak = 0;

  const server = createServer((request, response) => {
    void serve(request, response).catch((error: unknown) => response.destroy(error as Error));
  });

  const double: LocalApiDouble = {
    socketPath,
    whois: new Map(),
    status: { BackendState: 'Running', Version: '1.102.5' },
    netmap: undefined,
    serveConfig: {},
    certificates: new Map(),
    dials: new Map(),
    dialGreeting: '',
    requests: [],
    changes: [],
    hold: undefined,
    failure: undefined,
    get peak() {
      return peak;
    },
    notify(message) {
      for (const response of watching) response.write(`${JSON.stringify(message)}\n`);
    },
    nextWatcher: () => new Promise((resolve) => arrivals.push(resolve)),
    dropWatchers() {
      for (const response of watching) response.destroy();
    },
    async close() {
      for (const socket of tunnels) socket.destroy();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
      await rm(directory, { recursive: true, force: true });
    },
  };

  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    active += 1;
    peak = Math.max(peak, active);
    response.once('close', () => {
      active -= 1;
    });
    double.requests.push({ method: request.method!, url: request.url!, headers: request.headers });
    await double.hold;
    if (!isAllowed(request)) return send(response, 403, 'invalid localapi request\n');
    if (double.failure !== undefined) return send(response, double.failure.status, double.failure.body);
    const url = new URL(request.url!, 'http://local-tailscaled.sock');
    const path = url.pathname.replace('/localapi/v0/', '');
    if (path === 'whois') return whois(url, response);
    if (path === 'status') return send(response, 200, JSON.stringify(double.status));
    if (path === 'serve-config') {
      response.setHeader('Etag', '"abc"');
      return send(response, 200, JSON.stringify(double.serveConfig));
    }
    if (['prefs', 'start', 'login-interactive'].includes(path)) return change(path, request, response);
    if (path.startsWith('cert/')) return certificate(url, response);
    if (path === 'watch-ipn-bus') return watch(url, response);
    if (path === 'dial') return send(response, 400, 'bad headers\n');
    return send(response, 404, 'not found\n');
  }

  function whois(url: URL, response: ServerResponse): void {
    const address = url.searchParams.get('addr');
    if (address === null) return send(response, 400, "missing 'addr' parameter\n");
    const body = double.whois.get(address);
    if (body === undefined) return send(response, 404, 'no match for IP:port\n');
    return send(response, 200, typeof body === 'string' ? body : JSON.stringify(body, null, '\t'));
  }

  async function change(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    double.changes.push(`${request.method} ${path} ${await text(request)}`);
    // A login connects the node.
    if (path === 'login-interactive') double.status = { ...double.status, BackendState: 'Running' };
    return send(response, path === 'prefs' ? 200 : 204, path === 'prefs' ? '{}' : '');
  }

  function certificate(url: URL, response: ServerResponse): void {
    const pair = double.certificates.get(decodeURIComponent(url.pathname.replace('/localapi/v0/cert/', '')));
    if (pair === undefined) return send(response, 500, 'acme: no such domain\n');
    return send(response, 200, pair);
  }

  function watch(url: URL, response: ServerResponse): void {
    const mask = Number(url.searchParams.get('mask'));
    if ((mask & 256) !== 0 && (mask & 4096) !== 0)
      return send(response, 400, 'rate limit with peer changes\n');
    response.writeHead(200, { 'Content-Type': 'application/json' });
    response.flushHeaders();
    // Bit with value 2 in the mask: the client requests the initial state.
    if ((mask & 2) !== 0)
      response.write(`${JSON.stringify({ Version: 'double', SessionID: 's', State: 6 })}\n`);
    // Bit with value 8 in the mask: the client requests the initial netmap.
    if ((mask & 8) !== 0 && double.netmap !== undefined)
      response.write(`${JSON.stringify({ Version: 'double', NetMap: double.netmap })}\n`);
    watching.add(response);
    response.once('close', () => watching.delete(response));
    const waiting = arrivals;
    arrivals = [];
    for (const resolve of waiting) resolve();
  }

  server.on('upgrade', (request: IncomingMessage, socket: Duplex) => {
    tunnels.add(socket);
    socket.on('close', () => tunnels.delete(socket));
    socket.on('error', () => socket.destroy());
    double.requests.push({ method: request.method!, url: request.url!, headers: request.headers });
    dial(request, socket);
  });

  function dial(request: IncomingMessage, socket: Duplex): void {
    const target = `${request.headers['dial-host'] as string}:${request.headers['dial-port'] as string}`;
    const to = double.dials.get(target);
    if (request.method !== 'POST') return refuse(socket, '405 Method Not Allowed');
    if (!isAllowed(request)) return refuse(socket, '403 Forbidden', 'invalid localapi request');
    // Case-sensitive, like the check in tailscaled.
    if (!request.headers.connection?.includes('upgrade') || request.headers.upgrade !== 'ts-dial') {
      return refuse(socket, '400 Bad Request', 'bad headers');
    }
    if (to === 'hang') return;
    if (to === 'self') return refuse(socket, '200 OK', '', `Dial-Self: true\r\nDial-Addr: ${target}\r\n`);
    if (to === 'fail' || to === undefined) return refuse(socket, '502 Bad Gateway', 'dial failure: refused');
    const upstream = connect(to, '127.0.0.1');
    tunnels.add(upstream);
    upstream.on('error', () => socket.destroy());
    upstream.on('close', () => {
      tunnels.delete(upstream);
      socket.destroy();
    });
    socket.on('close', () => upstream.destroy());
    upstream.once('connect', () => {
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: ts-dial\r\nConnection: upgrade\r\n\r\n${double.dialGreeting}`,
      );
      upstream.pipe(socket);
      socket.pipe(upstream);
    });
  }

  server.listen(socketPath);
  await once(server, 'listening');
  return double;
}

function isAllowed(request: IncomingMessage): boolean {
  const { host, origin, referer } = request.headers;
  return (host === '' || host === 'local-tailscaled.sock') && origin === undefined && referer === undefined;
}

function send(response: ServerResponse, status: number, body: string): void {
  response.statusCode = status;
  response.end(body);
}

function refuse(socket: Duplex, status: string, body = '', headers = ''): void {
  socket.end(
    `HTTP/1.1 ${status}\r\n${headers}Content-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
  );
}
