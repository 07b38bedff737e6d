import { once } from 'node:events';
import { createServer as createPlain, type IncomingMessage, type Server } from 'node:http';
import {
  connect as connectHttp2,
  createServer as createHttp2,
  type Http2Server,
  type ServerHttp2Stream,
} from 'node:http2';
import { request as secureRequest } from 'node:https';
import { connect as connectTcp, type AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { TailcastError } from '../../src/errors.ts';
import { createTableCertificates, type TableCertificates } from '../../src/ingress/certificates.ts';
import { IngressServer } from '../../src/ingress/server.ts';
import { createUpstreams, type Upstreams } from '../../src/ingress/upstreams.ts';
import { createLogger } from '../../src/observe/logger.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import { createTailnetListener, type TailnetListener } from '../../src/tailnet/listener.ts';
import type { IngressTable } from '../../src/wire/ingress-table.ts';
import { createTestAuthority, type TestAuthority } from '../support/issued-certificates.ts';
import { listenOn } from '../support/listen.ts';

const HOST = 'own.example.org';
const ALICE: Identity = {
  kind: 'user',
  nodeId: 'nAlice',
  nodeName: 'alice.lab.ts.net',
  addresses: ['100.64.0.4'],
  capabilities: new Map(),
  userId: 1n,
  login: 'alice@example.com',
  displayName: 'Alicé',
};
const log = createLogger({ level: 'silent' });

let authority: TestAuthority;
let certificates: TableCertificates;
let table: IngressTable;
let whois: () => Promise<Identity>;
let upstreams: Upstreams;
let server: IngressServer;
let listeners: TailnetListener[];
let service: Server;
let rpc: Http2Server;
let ended: string[];
let seen: IncomingMessage[];
const closing: (() => void)[] = [];

const portOf = (one: { address(): AddressInfo | string | null }): number =>
  (one.address() as AddressInfo).port;
const at = (port: number): string => `http://127.0.0.1:${port}`;

async function certificateFor(names: readonly string[]): Promise<IngressTable['certificates'][number]> {
  const { certificatePem, keyPem } = await authority.issue(names);
  return { hosts: names, certificatePem, keyPem };
}
function use(change: Partial<IngressTable>): void {
  table = { ...table, ...change };
  certificates.use(table);
}

beforeEach(async () => {
  authority = await createTestAuthority();
  seen = [];
  ended = [];
  service = createPlain({ maxHeaderSize: 1024 ** 2 }, (request, response) => {
    seen.push(request);
    if (request.url === '/broken') {
      response.write('begun');
      setImmediate(() => response.destroy());
      return;
    }
    if (request.url === '/whole') {
      request.resume().once('end', () => response.end('whole'));
      return;
    }
    request.pipe(response);
  });
  await listenOn(service);
  rpc = createHttp2();
  rpc.on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.respond(
      { ':status': 200, 'content-type': 'application/grpc', 'x-te': String(headers['te']) },
      { waitForTrailers: true },
    );
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.pipe(stream);
  });
  await listenOn(rpc);
  certificates = createTableCertificates();
  table = {
    version: 1,
    certificates: [await certificateFor([HOST])],
    secure: [HOST],
    redirect: true,
    hosts: [
      {
        name: HOST,
        prefixes: [
          ['/', at(portOf(service))],
          ['/rpc.Echo', at(portOf(rpc))],
        ],
        exact: [],
      },
      { name: 'plain.example.org', prefixes: [['/', at(portOf(service))]], exact: [] },
    ],
  };
  certificates.use(table);
  whois = () => Promise.resolve(ALICE);
  upstreams = createUpstreams();
  server = new IngressServer({
    table: () => table,
    identities: { whois: () => whois() },
    upstreams,
    onEnd: (outcome) => ended.push(outcome),
    log,
    maxRequests: 8,
    bodyStallMs: 300,
  });
  const common = { host: '127.0.0.1', port: 0, proxyProtocol: 'off', log } as const;
  const secure = await createTailnetListener({ ...common, certificates });
  const plain = await createTailnetListener({ ...common, tls: 'none' });
  secure.onConnection(server.handler(true));
  plain.onConnection(server.handler(false));
  listeners = [secure, plain];
});
afterEach(async () => {
  for (const close of closing.splice(0)) close();
  server.close();
  upstreams.close();
  service.closeAllConnections();
  service.close();
  rpc.close();
  await Promise.all(listeners.map((listener) => listener.close(AbortSignal.abort())));
});

interface Answered {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}
async function ask(
  path: string,
  options: { headers?: object; body?: string; host?: string; localAddress?: string } = {},
): Promise<Answered> {
  const { headers = {}, body, host = HOST, localAddress } = options;
  const request = secureRequest({
    host: '127.0.0.1',
    port: listeners[0]!.address.port,
    servername: HOST,
    ca: authority.caPem,
    path,
    method: body === undefined ? 'GET' : 'POST',
    headers: { host, ...headers },
    agent: false,
    ...(localAddress === undefined ? {} : { localAddress }),
  });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const text = (await response.setEncoding('utf8').toArray()).join('');
  return { status: response.statusCode ?? 0, headers: response.headers, body: text };
}
function plainText(text: string): Promise<string> {
  const socket = connectTcp(listeners[1]!.address.port, '127.0.0.1');
  socket.write(text);
  return socket
    .setEncoding('utf8')
    .toArray()
    .then((parts) => parts.join(''));
}

describe('the server of Ingresses', () => {
  it('serves with the certificate of the table, the request as it was', async () => {
    const answer = await ask('/a%20b?q=1', { body: 'hello' });
    expect(answer).toMatchObject({ status: 200, body: 'hello' });
    expect(seen[0]).toMatchObject({ method: 'POST', url: '/a%20b?q=1' });
    expect(seen[0]!.headers.host).toBe(HOST);
  });

  it('asks nobody for a caller who is not known', async () => {
    whois = () => Promise.reject(new TailcastError('IDENTITY_UNKNOWN'));
    expect((await ask('/')).status).toBe(403);
    whois = () => Promise.reject(new TailcastError('IDENTITY_UNAVAILABLE'));
    expect((await ask('/')).status).toBe(503);
    expect(seen).toEqual([]);
    expect(ended).toEqual(['refused', 'refused']);
  });

  it('serves another certificate when the table has one', async () => {
    const shown = async (): Promise<string> => {
      const socket = connectTls({
        port: listeners[0]!.address.port,
        host: '127.0.0.1',
        servername: HOST,
        ca: authority.caPem,
      });
      await once(socket, 'secureConnect');
      const { serialNumber } = socket.getPeerCertificate();
      socket.destroy();
      return serialNumber;
    };
    const before = await shown();
    use({ certificates: [await certificateFor([HOST])] });
    const after = await shown();
    expect(after).not.toBe(before);
    expect(() => use({ certificates: [{ hosts: [], certificatePem: 'none', keyPem: 'none' }] })).toThrow(
      'the certificate of all hosts cannot be used',
    );
    expect(await shown()).toBe(after);
  });

  it('ends the handshake of a name that no certificate is for', async () => {
    const socket = connectTls({
      port: listeners[0]!.address.port,
      host: '127.0.0.1',
      servername: 'other.example.org',
      rejectUnauthorized: false,
    });
    const [error] = (await once(socket, 'error')) as [Error];
    expect(error).toBeInstanceOf(Error);
    expect((await ask('/', { host: 'other.example.org' })).status).toBe(421);
  });

  it('leads HTTP to HTTPS, and serves by it only what no certificate is named for', async () => {
    const get = (host: string): Promise<string> =>
      plainText(`GET /x?y HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    expect(await get(`${HOST}:80`)).toMatch(
      new RegExp(`^HTTP/1.1 301 [^]*location: https://${HOST}/x\\?y\r\n`, 'i'),
    );
    expect(await get('plain.example.org')).toMatch(/^HTTP\/1.1 200 /);
    expect(await get('other.example.org')).toMatch(/^HTTP\/1.1 404 /);
    use({ redirect: false });
    expect(await get(HOST)).toMatch(/^HTTP\/1.1 404 /);
    expect(seen.map(({ headers }) => headers.host)).toEqual(['plain.example.org']);
  });

  it('forwards WebSockets with the name of the caller, and the refusal of a Service unchanged', async () => {
    const sockets = new WebSocketServer({ noServer: true });
    const logins: unknown[] = [];
    service.on('upgrade', (request, socket, head) => {
      logins.push(request.headers['tailscale-user-login']);
      if (request.url === '/no') {
        socket.end('HTTP/1.1 418 Teapot\r\nContent-Length: 5\r\n\r\nno tea');
        return;
      }
      sockets.handleUpgrade(request, socket, head, (one) => one.on('message', (data) => one.send(data)));
    });
    const open = (path: string): WebSocket => {
      const headers = { host: HOST, 'tailscale-user-login': 'mallory@example.com' };
      const tls = { servername: HOST, ca: authority.caPem };
      return new WebSocket(`wss://127.0.0.1:${listeners[0]!.address.port}${path}`, { ...tls, headers });
    };
    const client = open('/ws');
    closing.push(() => client.terminate());
    await once(client, 'open');
    client.send('echo');
    const [data] = (await once(client, 'message')) as [Buffer];
    expect(data.toString()).toBe('echo');
    expect(logins).toEqual(['alice@example.com']);
    expect(server.inFlight).toBe(1);
    client.close();
    await once(client, 'close');
    const refused = open('/no');
    const [, response] = (await once(refused, 'unexpected-response')) as [unknown, IncomingMessage];
    expect(response.statusCode).toBe(418);
  });

  it('takes gRPC along: HTTP/2 on both sides, with trailers', async () => {
    const session = connectHttp2(`https://127.0.0.1:${listeners[0]!.address.port}`, {
      servername: HOST,
      ca: authority.caPem,
    });
    closing.push(() => session.destroy());
    const stream = session.request({
      ':method': 'POST',
      ':path': '/rpc.Echo/Say',
      ':authority': HOST,
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    stream.end('question');
    const trailers = once(stream, 'trailers');
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
    const body = (await stream.setEncoding('utf8').toArray()).join('');
    expect(headers).toMatchObject({ ':status': 200, 'x-te': 'trailers' });
    expect(body).toBe('question');
    expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0' });
  });

  it('ends a request whose body stalls, and no request whose body is slow or whose response has begun', async () => {
    const send = async (path: string, pieces: AsyncIterable<string>): Promise<Answered> => {
      const request = secureRequest({
        host: '127.0.0.1',
        port: listeners[0]!.address.port,
        servername: HOST,
        ca: authority.caPem,
        path,
        method: 'POST',
        headers: { host: HOST },
        agent: false,
      });
      request.on('error', () => undefined);
      const answered = once(request, 'response') as Promise<[IncomingMessage]>;
      void Readable.from(pieces).pipe(request);
      const [response] = await answered;
      const body = (await response.setEncoding('utf8').toArray()).join('');
      return { status: response.statusCode ?? 0, headers: response.headers, body };
    };
    const stalls = async function* (): AsyncGenerator<string> {
      yield 'x';
      await new Promise(() => undefined);
    };
    const slow = async function* (pauseMs: number): AsyncGenerator<string> {
      for (let count = 0; count < 4; count++) {
        yield 'x';
        await pause(pauseMs);
      }
    };
    expect(await send('/whole', stalls())).toMatchObject({ status: 408 });
    expect(ended).toEqual(['refused']);
    expect(await send('/whole', slow(150))).toMatchObject({ status: 200, body: 'whole' });
    expect(await send('/', slow(400))).toMatchObject({ status: 200, body: 'xxxx' });
  });

  it('serves so many requests at a time, and no more', async () => {
    const wait = Promise.withResolvers<Identity>();
    whois = () => wait.promise;
    // Each address gets at most half of the free slots: of 8 slots, the addresses get 4, 2, 1 and 1.
    const addresses = [2, 2, 2, 2, 3, 3, 4, 5, 6].map((last) => `127.0.0.${last}`);
    const answers = addresses.map((localAddress) => ask('/', { localAddress }));
    const first = await Promise.race(answers);
    expect(first.status).toBe(503);
    wait.resolve(ALICE);
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(8);
    expect(server.inFlight).toBe(0);
  });

  it('takes fields of so many bytes, and no more', async () => {
    const most = 128 * 1024 - 1;
    const fields = ['Host', 'plain.example.org', 'Connection', 'close', 'X-Long'];
    // The limit applies to the sum of the lengths of target, header names and values.
    const rest = most - '/'.length - fields.join('').length;
    const wish = (value: string): string =>
      `GET / HTTP/1.1\r\nHost: plain.example.org\r\nConnection: close\r\nX-Long: ${value}\r\n\r\n`;
    expect(await plainText(wish('a'.repeat(rest)))).toMatch(/^HTTP\/1\.1 200 /);
    expect(seen).toHaveLength(1);
    expect(await plainText(wish('a'.repeat(rest + 1)))).toMatch(/^HTTP\/1\.1 431 /);
    expect(seen).toHaveLength(1);
  });
});
