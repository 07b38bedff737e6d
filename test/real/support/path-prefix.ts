/**
 * A server that serves another server below a path prefix, as dashboards for several clusters do. Upgrades included.
 * Like Headlamp (backend/cmd/headlamp.go, clusterRequestHandler), the server sets `Host` and `X-Forwarded-Host` to the
 * cluster's name, and forwards `Origin` and all other headers of the browser.
 */
import type { IncomingMessage } from 'node:http';
import { type RequestOptions, createServer, request } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Rig } from '../rig/rig.ts';
import { listenOn } from '../../support/listen.ts';

export interface PathPrefix {
  /** URL that ends with the prefix. */
  readonly url: string;
}

export interface PathPrefixOptions {
  readonly prefix: string;
  /** Target of the requests, without the prefix. */
  readonly target: { readonly url: string; readonly ca: string };
  readonly certificate: { readonly cert: string; readonly key: string };
}

export async function startPathPrefix(rig: Rig, options: PathPrefixOptions): Promise<PathPrefix> {
  const { prefix, target, certificate } = options;
  const outgoing = (incoming: IncomingMessage): RequestOptions | undefined => {
    const path = incoming.url ?? '';
    if (!path.startsWith(`${prefix}/`)) return undefined;
    const { hostname, port, host } = new URL(target.url);
    return {
      hostname,
      port,
      ca: target.ca,
      agent: false,
      method: incoming.method,
      path: path.slice(prefix.length),
      headers: { ...incoming.headers, host, 'x-forwarded-host': host },
    };
  };
  const server = createServer(certificate, (incoming, answer) => {
    const options = outgoing(incoming);
    if (options === undefined) return void answer.writeHead(404).end();
    const sent = request(options, (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers);
      answer.flushHeaders();
      response.pipe(answer);
    });
    sent.on('error', () => answer.destroy());
    answer.on('close', () => sent.destroy());
    incoming.pipe(sent);
  });
  server.on('upgrade', (incoming, socket, head) => {
    const options = outgoing(incoming);
    if (options === undefined) return void socket.destroy();
    const sent = request(options);
    sent.on('error', () => socket.destroy());
    sent.on('response', (response) => {
      socket.end(`HTTP/1.1 ${response.statusCode ?? 502} Refused\r\nConnection: close\r\n\r\n`);
      response.destroy();
    });
    sent.on('upgrade', (response, upstream, upstreamHead) => {
      const lines = ['HTTP/1.1 101 Switching Protocols'];
      for (let index = 0; index < response.rawHeaders.length; index += 2)
        lines.push(`${response.rawHeaders[index]}: ${response.rawHeaders[index + 1]}`);
      socket.write(`${lines.join('\r\n')}\r\n\r\n`);
      socket.write(upstreamHead);
      upstream.write(head);
      socket.on('error', () => upstream.destroy());
      upstream.on('error', () => socket.destroy());
      socket.pipe(upstream);
      upstream.pipe(socket);
    });
    sent.end();
  });
  await listenOn(server);
  rig.onStop(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}` };
}
