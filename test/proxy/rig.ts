/** A gateway's front on loopback with a scripted API server behind it: real TLS sockets on both sides. */
import { connect as connectHttp2, type ClientHttp2Session } from 'node:http2';
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  connect as connectTls,
  createServer as createTlsServer,
  type ConnectionOptions,
  type Server,
  type TLSSocket,
} from 'node:tls';
import { onTestFinished } from 'vitest';
import type { AccessEntry } from '../../src/observe/access-log.ts';
import { createEvents } from '../../src/observe/events.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createMetrics, type Metrics } from '../../src/observe/metrics.ts';
import type { AccountRefusals } from '../../src/proxy/gate/account-refusals.ts';
import type { AccessReviews } from '../../src/proxy/gate/access-review.ts';
import { createGate } from '../../src/proxy/gate/gate.ts';
import type { Rechecks } from '../../src/proxy/gate/recheck.ts';
import type { ApiRequest } from '../../src/recording/request-event.ts';
import {
  createProxyServer,
  type ProxyServer,
  type ProxyServerOptions,
} from '../../src/proxy/front/server.ts';
import { createUpstreamConnector } from '../../src/proxy/upstream/upstream-connect.ts';
import {
  DEFAULT_POOL_LIMITS,
  UpstreamPool,
  type PoolLimits,
} from '../../src/proxy/upstream/upstream-pool.ts';
import type { CapabilityMap, Identity, IdentitySource } from '../../src/tailnet/identity.ts';
import { issueAuthority, issueServer } from '../../src/tailnet/issue-certificate.ts';

export const CAPABILITY = 'tailscale.com/cap/kubernetes';

export interface Pki {
  readonly ca: string;
  readonly key: string;
  readonly cert: string;
}

const dayMs = 86_400_000;

export async function issuePki(): Promise<Pki> {
  const authority = await issueAuthority({ nowMs: Date.now(), validMs: dayMs });
  const pair = await issueServer(authority, {
    names: ['localhost', '127.0.0.1'],
    nowMs: Date.now(),
    validMs: dayMs,
  });
  return { ca: authority.certificatePem, key: pair.keyPem, cert: pair.certificatePem };
}

export function person(rules: readonly unknown[] = [{ impersonate: { groups: ['devs'] } }]): Identity {
  const capabilities: CapabilityMap = new Map([[CAPABILITY, rules]]);
  return {
    kind: 'user',
    nodeId: 'nALICE',
    nodeName: 'laptop.example.ts.net',
    addresses: ['100.64.0.1'],
    userId: 7n,
    login: 'alice@example.com',
    displayName: 'Alice',
    capabilities,
  };
}

/** One connection to the scripted API server, with all received bytes. */
export interface UpstreamSocket {
  readonly socket: TLSSocket;
  /** All bytes received so far, latin1. */
  received(): string;
  /** Resolves when `received()` satisfies the condition; rejects when the connection closes first. */
  until(condition: (text: string) => boolean): Promise<string>;
  readonly closed: Promise<void>;
}

export interface Rig {
  readonly port: number;
  readonly pki: Pki;
  readonly pool: UpstreamPool;
  readonly proxy: ProxyServer;
  readonly metrics: Metrics;
  readonly access: AccessEntry[];
  readonly records: ApiRequest[];
  /** Connections to the scripted upstream, in order. */
  readonly upstreams: UpstreamSocket[];
  /** Replaces the TLS options of later connections to the upstream. */
  rotate(tls: ConnectionOptions): void;
  close(): Promise<void>;
}

export interface RigOptions {
  /** Called for every connection to the upstream. */
  readonly upstream: (connection: UpstreamSocket) => void;
  readonly upstreamPort?: number;
  readonly identity?: Identity;
  readonly identities?: IdentitySource;
  readonly mode?: 'auth' | 'noauth';
  readonly pool?: Partial<PoolLimits>;
  readonly recordApiRequest?: (record: ApiRequest) => Promise<void>;
  readonly server?: Partial<
    Pick<ProxyServerOptions, 'upgrade' | 'own' | 'sessions' | 'late' | 'limits' | 'users'>
  >;
  readonly maxInFlight?: number;
  readonly accountRefusals?: AccountRefusals;
  readonly eventBodyBytes?: number;
  readonly bodyStallMs?: number;
  readonly basePath?: string;
  readonly connectTimeoutMs?: number;
  readonly reviews?: AccessReviews;
  readonly rechecks?: Pick<Rechecks, 'watch'>;
  /** Returns the address of the client of a new connection. Default: a loopback address. */
  readonly addressOf?: () => string;
}

let sharedPki: Promise<Pki> | undefined;

export async function openRig(options: RigOptions): Promise<Rig> {
  const pki = await (sharedPki ??= issuePki());
  const upstreams: UpstreamSocket[] = [];
  const upstreamServer = createTlsServer({ key: pki.key, cert: pki.cert, noDelay: true }, (socket) => {
    const connection = track(socket);
    upstreams.push(connection);
    options.upstream(connection);
  });
  await listening(upstreamServer);
  const upstreamPort = options.upstreamPort ?? portOf(upstreamServer);
  const identity = options.identity ?? person();
  const gate = createGate({
    mode: options.mode ?? 'auth',
    identities: options.identities ?? { whois: () => Promise.resolve(identity) },
    upstreamHost: 'kubernetes.test',
    authorization: () => Promise.resolve('Bearer gateway-token'),
    nowMs: () => performance.now(),
    createId: () => 'request-id',
    reviews: options.reviews,
  });
  const endpoint = {
    host: '127.0.0.1',
    port: upstreamPort,
    serverName: 'localhost',
    tls: { ca: pki.ca } as ConnectionOptions,
  };
  const connector = createUpstreamConnector(
    endpoint,
    options.connectTimeoutMs === undefined ? {} : { connectTimeoutMs: options.connectTimeoutMs },
  );
  const pool = new UpstreamPool(connector, { ...DEFAULT_POOL_LIMITS, ...options.pool }, () =>
    performance.now(),
  );
  const metrics = createMetrics();
  const access: AccessEntry[] = [];
  const records: ApiRequest[] = [];
  const log = createSilentLogger();
  const proxy = createProxyServer({
    pump: {
      gate,
      pool,
      basePath: options.basePath ?? '',
      metrics,
      accessLog: { write: (entry) => access.push(entry) },
      events: createEvents(metrics, log),
      recordApiRequest:
        options.recordApiRequest ??
        ((record) => {
          records.push(record);
          return Promise.resolve();
        }),
      eventBodyBytes: options.eventBodyBytes ?? 1024,
      ...(options.bodyStallMs === undefined ? {} : { bodyStallMs: options.bodyStallMs }),
      maxInFlight: options.maxInFlight ?? 10_000,
      ...(options.accountRefusals === undefined ? {} : { accountRefusals: options.accountRefusals }),
      ...(options.rechecks === undefined ? {} : { rechecks: options.rechecks }),
      keepCookies: options.mode === 'noauth',
      monotonicMs: () => performance.now(),
    },
    upgrade: (_request, socket) => {
      socket.end('HTTP/1.1 599 Upgrade Handler\r\nContent-Length: 0\r\n\r\n');
      return Promise.resolve();
    },
    metrics,
    log,
    ...options.server,
  });
  const front = createTlsServer(
    { key: pki.key, cert: pki.cert, ALPNProtocols: ['h2', 'http/1.1'] },
    (socket) => {
      socket.on('error', () => {});
      const port = socket.remotePort ?? 0;
      const address = options.addressOf?.() ?? '127.0.0.1';
      proxy.serve(socket, socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1', {
        address,
        port,
        source: 'socket',
      });
    },
  );
  await listening(front);
  return {
    port: portOf(front),
    pki,
    pool,
    proxy,
    metrics,
    access,
    records,
    upstreams,
    rotate(tls) {
      endpoint.tls = tls;
    },
    async close() {
      await proxy.close();
      for (const { socket } of upstreams) socket.destroy();
      await Promise.all([closed(front), closed(upstreamServer)]);
    },
  };
}

/** Creates an upstream that sends these bytes after the headers of each request. The requests must have no body. */
export function answering(...answers: readonly string[]): RigOptions['upstream'] {
  return (connection) => {
    let answered = 0;
    connection.socket.on('data', () => {
      const heads = connection.received().split('\r\n\r\n').length - 1;
      while (answered < heads) {
        connection.socket.write(answers[Math.min(answered, answers.length - 1)]!, 'latin1');
        answered += 1;
      }
    });
  };
}

/** Opens a rig that closes when the test has finished. */
export async function rigWith(
  upstream: RigOptions['upstream'],
  options: Partial<RigOptions> = {},
): Promise<Rig> {
  const rig = await openRig({ upstream, ...options });
  onTestFinished(() => rig.close());
  return rig;
}

function track(socket: TLSSocket): UpstreamSocket {
  const chunks: Buffer[] = [];
  const wakers = new Set<() => void>();
  let isClosed = false;
  const wake = (): void => {
    for (const waker of wakers) waker();
  };
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    wake();
  });
  const received = (): string => Buffer.concat(chunks).toString('latin1');
  const closedPromise = new Promise<void>((resolve) =>
    socket.once('close', () => {
      isClosed = true;
      resolve();
      wake();
    }),
  );
  return {
    socket,
    received,
    closed: closedPromise,
    until: (condition) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          const text = received();
          if (condition(text)) {
            wakers.delete(check);
            resolve(text);
          } else if (isClosed) {
            wakers.delete(check);
            reject(new Error(`closed after ${JSON.stringify(text.slice(-200))}`));
          }
        };
        wakers.add(check);
        check();
      }),
  };
}

/** Opens a raw HTTP/1.1 client connection to the front. */
export async function rawClient(rig: Pick<Rig, 'port' | 'pki'>): Promise<UpstreamSocket> {
  const socket = connectTls({
    port: rig.port,
    host: '127.0.0.1',
    servername: 'localhost',
    ca: rig.pki.ca,
    ALPNProtocols: ['http/1.1'],
  });
  await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject));
  return track(socket);
}

export function http2Client(rig: Pick<Rig, 'port' | 'pki'>): ClientHttp2Session {
  const session = connectHttp2(`https://localhost:${rig.port}`, { ca: rig.pki.ca });
  session.on('error', () => {});
  return session;
}

export interface Answer {
  readonly status: number;
  /** Flat list of the received headers; over HTTP/2 without pseudo-headers. */
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** Trailers as a flat list of names and values. */
  readonly trailers: readonly string[];
  /** Interim statuses, in order. */
  readonly interim: readonly number[];
}

export interface Ask {
  readonly method?: string;
  readonly path: string;
  /** Flat list of headers; `Host` is added. */
  readonly headers?: readonly string[];
  readonly body?: Buffer | string;
  readonly signal?: AbortSignal;
}

/** A client for each protocol. A client returns the complete response, and rejects if the response is truncated. */
export interface Client {
  readonly name: 'h1' | 'h2';
  ask(ask: Ask): Promise<Answer>;
  /** Resolves when the headers of the response have arrived. */
  open(ask: Ask): Promise<OpenAnswer>;
  close(): void;
}

export interface OpenAnswer {
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: NodeJS.ReadableStream & { destroy(): unknown };
  /** Resolves with the body; rejects if the body is truncated. */
  rest(): Promise<Buffer>;
  abort(): void;
}

export function createClient(name: 'h1' | 'h2', rig: Pick<Rig, 'port' | 'pki'>): Client {
  return name === 'h1' ? createHttp1Client(rig) : createHttp2Client(rig);
}

function createHttp1Client(rig: Pick<Rig, 'port' | 'pki'>): Client {
  const agent = new Agent({ keepAlive: true, maxSockets: 400 });
  const start = (ask: Ask) => {
    const interim: number[] = [];
    const options: RequestOptions = {
      host: '127.0.0.1',
      port: rig.port,
      servername: 'localhost',
      ca: rig.pki.ca,
      agent,
      maxHeaderSize: 1024 * 1024,
      method: ask.method ?? 'GET',
      path: ask.path,
      headers: ['Host', 'gateway.test', ...(ask.headers ?? [])] as never,
      ...(ask.signal === undefined ? {} : { signal: ask.signal }),
    };
    const request = httpsRequest(options);
    request.on('information', ({ statusCode }) => interim.push(statusCode));
    request.on('continue', () => interim.push(100));
    const response = new Promise<IncomingMessage>((resolve, reject) => {
      request.on('response', resolve);
      request.on('error', reject);
    });
    request.end(ask.body);
    return { request, response, interim };
  };
  return {
    name: 'h1',
    async ask(ask) {
      const { response, interim } = start(ask);
      const message = await response;
      const body = await collect(message);
      return {
        status: message.statusCode ?? 0,
        rawHeaders: message.rawHeaders,
        body,
        trailers: message.rawTrailers,
        interim,
      };
    },
    async open(ask) {
      const { request, response } = start(ask);
      const message = await response;
      message.on('error', () => {});
      return {
        status: message.statusCode ?? 0,
        rawHeaders: message.rawHeaders,
        body: message,
        rest: () => collect(message),
        abort: () => request.destroy(),
      };
    },
    close: () => agent.destroy(),
  };
}

function createHttp2Client(rig: Pick<Rig, 'port' | 'pki'>): Client {
  const session = http2Client(rig);
  const start = (ask: Ask) => {
    const interim: number[] = [];
    const trailers: string[] = [];
    const flat = [
      ':method',
      ask.method ?? 'GET',
      ':path',
      ask.path,
      ':scheme',
      'https',
      ':authority',
      'gateway.test',
    ];
    for (const [index, text] of (ask.headers ?? []).entries())
      flat.push(index % 2 === 0 ? text.toLowerCase() : text);
    const stream = session.request(flat, {
      endStream: ask.body === undefined,
      ...(ask.signal === undefined ? {} : { signal: ask.signal }),
    });
    stream.on('headers', (headers) => interim.push(Number(headers[':status'])));
    stream.on('trailers', (_headers, _flags, raw?: string[]) => {
      if (raw === undefined)
        for (const [key, value] of Object.entries(_headers)) trailers.push(key, String(value));
      else trailers.push(...raw);
    });
    const response = new Promise<{ status: number; rawHeaders: string[] }>((resolve, reject) => {
      stream.on('response', (headers, _flags, raw?: string[]) =>
        resolve({ status: Number(headers[':status']), rawHeaders: (raw ?? []).slice(2) }),
      );
      stream.on('error', reject);
      stream.on('close', () => reject(new Error(`closed with ${stream.rstCode} before a response`)));
    });
    if (ask.body !== undefined) stream.end(ask.body);
    return { stream, response, interim, trailers };
  };
  return {
    name: 'h2',
    async ask(ask) {
      const { stream, response, interim, trailers } = start(ask);
      const { status, rawHeaders } = await response;
      const body = await collect(stream);
      return { status, rawHeaders, body, trailers, interim };
    },
    async open(ask) {
      const { stream, response } = start(ask);
      const { status, rawHeaders } = await response;
      stream.on('error', () => {});
      return { status, rawHeaders, body: stream, rest: () => collect(stream), abort: () => stream.close(8) };
    },
    close: () => session.destroy(),
  };
}

async function collect(stream: NodeJS.ReadableStream & { rstCode?: number }): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk as Buffer));
  if (stream.rstCode !== undefined && stream.rstCode !== 0)
    throw new Error(`stream reset: ${stream.rstCode}`);
  return Buffer.concat(chunks);
}

/** Returns the values of a header, in order, from a flat list. */
export function valuesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name);
}

function listening(server: Server): Promise<void> {
  return new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
