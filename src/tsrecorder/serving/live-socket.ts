/**
 * Sends recordings over a WebSocket with the subprotocol `v2.asciicast` of asciinema players. Each message is one line:
 * the header, or an event. For a running session, new events follow. The connection ends with the session. Messages of
 * the client are ignored.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer, type WebSocket } from 'ws';
import { destroyAfter } from '../../async/deadline.ts';
import { errorText } from '../../errors.ts';
import { LIVE_SUBPROTOCOL } from '../../wire/recorder-api/live-view.ts';
import { VIEWER_ACCEPTED_HEADER } from '../../wire/recorder-api/named-viewer.ts';
import type { Logger } from '../../observe/logger.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import type { Catalog } from '../library/catalog.ts';
import type { Hosts } from './hosts.ts';
import { readLines } from '../../wire/lines.ts';
import type { ViewerAccess } from './viewer-access.ts';
import { ownerOf } from './viewing.ts';
import { followCast, presentationOf, presentCast } from '../library/replay.ts';

export interface LiveSocketOptions {
  readonly catalog: Catalog;
  readonly access: ViewerAccess;
  readonly hosts: Hosts;
  readonly log: Logger;
  /**
   * Maximum number of live views. Each viewer may use at most half of the live views that other viewers leave free.
   */
  readonly maxViewers: number;
  /** Interval of pings, in milliseconds. A viewer must respond to each ping. */
  readonly pingMs: number;
}

const ROUTE = /^\/api\/v1\/recordings\/([^/?]{1,1024})\/live$/;
const CLOSE_NORMAL = 1000;
const CLOSE_ERROR = 1011;
/** Time, in milliseconds, that a client has to close a rejected connection before the recorder closes it. */
const LINGER_MS = 1000;

/** Creates the live views of a recorder. */
export function createLiveSockets(options: LiveSocketOptions) {
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: true,
    maxPayload: 1024,
    perMessageDeflate: false,
    handleProtocols: (offered) => (offered.has(LIVE_SUBPROTOCOL) ? LIVE_SUBPROTOCOL : false),
  });

  /** Counts the live views of each viewer. */
  const slots = createKeyedCounter();
  /**
   * Tailnet node ids of viewers that a gateway has named. Map keys: request of the gateway. The response to the
   * upgrade repeats the node id, which confirms to the gateway that the recorder accepted this viewer.
   */
  const named = new WeakMap<IncomingMessage, string>();
  server.on('headers', (headers, request) => {
    const nodeId = named.get(request);
    if (nodeId !== undefined) headers.push(`${VIEWER_ACCEPTED_HEADER}: ${nodeId}`);
  });

  async function accept(request: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const { localAddress } = request.socket;
    const { host, origin } = request.headers;
    const id = idOf(request.url);
    if (!options.hosts.accepts(host, localAddress) || !options.hosts.acceptsOrigin(origin, host)) {
      refuse(socket, '403 Forbidden');
      return;
    }
    const { access } = options;
    const viewer = await access.viewer(request);
    if (socket.destroyed) return;
    const who = viewer.user ?? viewer.nodeId;
    const leave = slots.takeShare(who, options.maxViewers);
    if (leave === undefined) {
      refuse(socket, '503 Service Unavailable');
      return;
    }
    socket.once('close', leave);
    if (viewer.gateway !== undefined) named.set(request, viewer.nodeId);
    const scope = access.scope(viewer);
    const entry = id === undefined ? undefined : await options.catalog.find(id, scope, ownerOf(viewer));
    if (entry === undefined) {
      refuse(socket, '404 Not Found');
      return;
    }
    await access.saw(viewer, 'play', { url: request.url ?? '' }, entry);
    server.handleUpgrade(request, socket, head, (connection) => {
      const stop = access.watch(request, entry, () => connection.terminate());
      connection.once('close', stop);
      void show(options, entry, connection);
    });
  }

  return {
    upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
      accept(request, socket, head).catch((error: unknown) => {
        options.log.warn({ error: errorText(error) }, 'viewer could not be served');
        socket.destroy();
      });
    },
    close(): void {
      for (const viewer of server.clients) viewer.terminate();
      server.close();
    },
  };
}

async function show(options: LiveSocketOptions, entry: CatalogEntry, viewer: WebSocket): Promise<void> {
  const gone = new AbortController();
  const heartbeat = watchHeart(viewer, options.pingMs);
  viewer.on('close', () => {
    clearInterval(heartbeat);
    gone.abort();
  });
  viewer.on('error', () => gone.abort());
  const cast = followCast(entry, gone.signal);
  const presentation = presentationOf(entry);
  try {
    for await (const lines of readLines(
      presentation === undefined ? cast : presentCast(cast, presentation),
    )) {
      for (const line of lines.slice(0, -1)) viewer.send(line, { binary: false });
      // Wait until the last message of the batch was sent.
      const last = lines.at(-1);
      if (last !== undefined) await sent(viewer, last);
      if (gone.signal.aborted) return;
    }
    viewer.close(CLOSE_NORMAL);
  } catch (error) {
    options.log.warn({ recording: entry.recording.id, error: errorText(error) }, 'viewer was cut off');
    viewer.close(CLOSE_ERROR);
  }
}

function sent(viewer: WebSocket, line: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    // Ignore a failed send, because the `close` event follows and ends the loop.
    viewer.send(line, { binary: false }, () => resolve());
  });
}

function watchHeart(viewer: WebSocket, pingMs: number): NodeJS.Timeout {
  let alive = true;
  viewer.on('pong', () => {
    alive = true;
  });
  return setInterval(() => {
    if (!alive) viewer.terminate();
    alive = false;
    viewer.ping();
  }, pingMs);
}

function idOf(target: string | undefined): string | undefined {
  const encoded = ROUTE.exec(target ?? '')?.[1];
  try {
    return encoded === undefined ? undefined : decodeURIComponent(encoded);
  } catch {
    return undefined;
  }
}

function refuse(socket: Duplex, status: string): void {
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
  // Drop further bytes: a paused socket would not notice that the client closed the connection.
  socket.resume();
  destroyAfter(socket, LINGER_MS);
}
