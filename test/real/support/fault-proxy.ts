/**
 * An HTTP proxy on loopback in front of a real server. The proxy simulates faults of the network and of a busy server.
 */
import { once } from 'node:events';
import { createServer, request as requestHttp, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { listenOn } from '../../support/listen.ts';

/** Fault of one request. */
export type Fault =
  | { readonly kind: 'pass' }
  /** The connection is closed before the request is forwarded. */
  | { readonly kind: 'refuse' }
  /** The request is forwarded, and the connection breaks after this fraction of the response (head and body). */
  | { readonly kind: 'cut'; readonly part: number }
  | { readonly kind: 'status'; readonly status: number }
  | { readonly kind: 'delay'; readonly ms: number }
  /** `act` runs before the request is forwarded. */
  | { readonly kind: 'before'; readonly act: () => Promise<unknown> };

export interface FaultProxy extends AsyncDisposable {
  readonly url: string;
  /** Selects the fault of a request; default: none. */
  decide: (path: string) => Fault;
  /** Number of requests with a fault, by kind; `server`: the server rejected a part of the request. */
  readonly met: Map<string, number>;
}

export async function openFaultProxy(target: string): Promise<FaultProxy> {
  const met = new Map<string, number>();
  const pending = new Set<NodeJS.Timeout>();
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  await listenOn(server);
  const proxy: FaultProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    decide: () => ({ kind: 'pass' }),
    met,
    async [Symbol.asyncDispose]() {
      for (const timer of pending) clearTimeout(timer);
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const fault = proxy.decide(request.url ?? '');
    if (fault.kind !== 'pass') met.set(fault.kind, (met.get(fault.kind) ?? 0) + 1);
    if (fault.kind === 'refuse') {
      request.socket.destroy();
      return;
    }
    const body = await buffer(request);
    if (fault.kind === 'status') {
      const error = { type: 'rejected_execution_exception' };
      response.writeHead(fault.status, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error, status: fault.status }));
      return;
    }
    if (fault.kind === 'delay') {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => {
          pending.delete(timer);
          resolve();
        }, fault.ms);
        pending.add(timer);
      });
    }
    if (fault.kind === 'before') await fault.act();
    const { status, headers, content } = await forward(target, request, body);
    const isRefused = (status >= 400 && status !== 404) || /"status":(?:403|429)/.test(content.toString());
    if (isRefused) met.set('server', (met.get('server') ?? 0) + 1);
    if (fault.kind !== 'cut') {
      response.writeHead(status, headers).end(content);
      return;
    }
    const head = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const whole = Buffer.concat([Buffer.from(`HTTP/1.1 ${status} X\r\n${head.join('')}\r\n`), content]);
    const { socket } = request;
    socket.write(whole.subarray(0, Math.floor(whole.length * fault.part)), () => socket.destroy());
  }
  return proxy;
}

async function forward(
  target: string,
  { method, url, headers }: IncomingMessage,
  body: Buffer,
): Promise<{
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly content: Buffer;
}> {
  const sent = requestHttp(new URL(url ?? '/', target), {
    method: method ?? 'GET',
    agent: false,
    headers: { ...headers, host: new URL(target).host, connection: 'close' },
  });
  const answered = once(sent, 'response') as Promise<[IncomingMessage]>;
  sent.end(body);
  const [response] = await answered;
  const content = await buffer(response);
  return {
    status: response.statusCode ?? 0,
    headers: {
      'content-type': response.headers['content-type'] ?? 'application/json',
      'content-length': String(content.length),
    },
    content,
  };
}
