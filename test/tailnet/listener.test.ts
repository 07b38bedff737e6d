import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type Server } from 'node:http';
import {
  connect as connectHttp2,
  createServer as createHttp2Server,
  type ServerHttp2Stream,
} from 'node:http2';
import { connect, createServer as createTcpServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, createSecureContext, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { afterEach, beforeAll, beforeEach, afterAll, describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import {
  loadCertificate,
  type CertificateSource,
  type LoadedCertificate,
} from '../../src/tailnet/certificates.ts';
import type { Peer } from '../../src/tailnet/identity.ts';
import {
  createTailnetListener,
  peerOf,
  type TailnetListener,
  type TailnetListenerOptions,
} from '../../src/tailnet/listener.ts';
import { openSelfSignedCertificates } from '../../src/tailnet/self-signed.ts';
import { createTestAuthority, type TestAuthority } from '../support/issued-certificates.ts';
import { listenOn } from '../support/listen.ts';

const log = createSilentLogger();
const HEADER = 'PROXY TCP4 100.64.0.3 100.64.0.2 33664 443\r\n';
const PROXIED = { address: '100.64.0.3', port: 33_664, source: 'proxy-protocol' };

let authority: TestAuthority;
let certificates: CertificateSource;
let named: Map<string, LoadedCertificate>;
let fallback: LoadedCertificate;

beforeAll(async () => {
  authority = await createTestAuthority();
  fallback = loadCertificate(await authority.issue(['localhost', '127.0.0.1']), 'test');
  named = new Map([['gw.example.com', loadCertificate(await authority.issue(['gw.example.com']), 'test')]]);
  certificates = {
    certificate: (name) => Promise.resolve(named.get(name ?? '') ?? fallback),
  };
});

interface Arrival {
  readonly socket: Socket;
  readonly alpn: string;
  readonly peer: Peer;
}

let listener: TailnetListener;
const sockets: Socket[] = [];

async function listen(
  options: Partial<TailnetListenerOptions> = {},
  handler: (arrival: Arrival) => void = () => undefined,
): Promise<number> {
  listener = await createTailnetListener({
    host: '127.0.0.1',
    port: 0,
    proxyProtocol: 'off',
    certificates,
    log,
    ...options,
  });
  listener.onConnection((socket, alpn, peer) => handler({ socket, alpn, peer }));
  return listener.address.port;
}

/** Echoes every chunk, and closes the connection after the client has closed it. */
function echo({ socket }: Arrival): void {
  socket.pipe(socket);
}

function plain(port: number): Socket {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  sockets.push(socket);
  return socket;
}

async function tls(port: number, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connectTls({
    port,
    host: '127.0.0.1',
    ca: authority.caPem,
    servername: 'localhost',
    ...options,
  });
  sockets.push(socket);
  await once(socket, 'secureConnect');
  socket.on('error', () => undefined);
  return socket;
}

/** Resolves when the socket is closed, normally or by an error. */
function closed(socket: Socket): Promise<boolean> {
  socket.resume();
  if (socket.closed) return Promise.resolve(true);
  return new Promise((resolve) => socket.once('close', () => resolve(true)));
}

async function read(socket: Socket, length: number): Promise<string> {
  let text = '';
  while (text.length < length) text += String((await once(socket, 'data'))[0]);
  return text;
}

beforeEach(() => {
  sockets.length = 0;
});

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await listener.close(AbortSignal.abort());
});

describe('a TLS connection', () => {
  it('is handed over decrypted, with the peer of its socket', async () => {
    const arrivals: Arrival[] = [];
    const port = await listen({}, (arrival) => {
      arrivals.push(arrival);
      echo(arrival);
    });
    const client = await tls(port);
    client.write('hello');
    expect(await read(client, 5)).toBe('hello');
    expect(arrivals).toHaveLength(1);
    expect(arrivals[0]).toMatchObject({
      alpn: 'http/1.1',
      peer: { address: '127.0.0.1', port: client.localPort, source: 'socket' },
    });
    expect(peerOf(arrivals[0]!.socket)).toBe(arrivals[0]!.peer);
    expect(() => peerOf(client)).toThrow(TailcastError);
  });

  it.each([
    [['h2', 'http/1.1'], 'h2'],
    [['http/1.1', 'h2'], 'h2'],
    [['http/1.1'], 'http/1.1'],
    [[], 'http/1.1'],
  ])('that offers %j speaks %s', async (ALPNProtocols, expected) => {
    const arrived = Promise.withResolvers<Arrival>();
    const port = await listen({}, arrived.resolve);
    await tls(port, ALPNProtocols.length > 0 ? { ALPNProtocols } : {});
    expect((await arrived.promise).alpn).toBe(expected);
  });

  it('that offers only unknown protocols is refused', async () => {
    const port = await listen();
    await expect(tls(port, { ALPNProtocols: ['spdy/3.1'] })).rejects.toThrow(/alert/);
  });

  it('gets the certificate of the name it asks for, else the default', async () => {
    const port = await listen();
    const names = async (options: ConnectionOptions): Promise<string | undefined> =>
      (await tls(port, options)).getPeerX509Certificate()?.subjectAltName;
    expect(await names({ servername: 'gw.example.com' })).toBe('DNS:gw.example.com');
    const anyName = { checkServerIdentity: () => undefined };
    expect(await names({ servername: 'unknown.example.com', ...anyName })).toContain('DNS:localhost');
    expect(await names({ servername: '', ...anyName })).toContain('IP Address:127.0.0.1');
  });

  it.each(['localhost', 'gw.example.com'])('resumes its session for %s', async (servername) => {
    const port = await listen({}, echo);
    const first = connectTls({ port, host: '127.0.0.1', ca: authority.caPem, servername });
    sockets.push(first);
    const [session] = (await once(first, 'session')) as [Buffer];
    const second = await tls(port, { session, servername });
    expect(second.isSessionReused()).toBe(true);
  });

  it('may be TLS 1.2 and nothing older', async () => {
    const port = await listen();
    expect((await tls(port, { maxVersion: 'TLSv1.2' })).getProtocol()).toBe('TLSv1.2');
    const old = createSecureContext({ minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ca: authority.caPem });
    await expect(tls(port, { secureContext: old })).rejects.toThrow(/protocol/);
  });

  it.each(['localhost', 'gw.example.com'])(
    'prefers AES-128 for %s, and takes what there is',
    async (servername) => {
      const port = await listen();
      const chosen = async (options: ConnectionOptions): Promise<string | undefined> =>
        (await tls(port, { servername, ...options })).getCipher().standardName;
      expect(await chosen({})).toBe('TLS_AES_128_GCM_SHA256');
      expect(await chosen({ ciphers: 'TLS_AES_256_GCM_SHA384' })).toBe('TLS_AES_256_GCM_SHA384');
      expect(await chosen({ ciphers: 'TLS_CHACHA20_POLY1305_SHA256' })).toBe('TLS_CHACHA20_POLY1305_SHA256');
    },
  );

  it('serves a renewed default certificate without a restart', async () => {
    let current = fallback;
    const port = await listen({
      certificates: { certificate: () => Promise.resolve(current) },
    });
    const serial = async (servername: string): Promise<string | undefined> =>
      (await tls(port, { servername, checkServerIdentity: () => undefined })).getPeerX509Certificate()
        ?.serialNumber;
    expect(await serial('localhost')).toBe(fallback.leaf.serialNumber);
    current = named.get('gw.example.com')!;
    expect(await serial('')).toBe(current.leaf.serialNumber);
    expect(await serial('localhost')).toBe(current.leaf.serialNumber);
  });

  it('is closed when there is no certificate, and others are served later', async () => {
    let broken = true;
    const port = await listen({
      certificates: {
        certificate: (name) =>
          broken
            ? Promise.reject(new TailcastError('CERTIFICATE_UNAVAILABLE'))
            : certificates.certificate(name),
      },
    });
    await expect(tls(port)).rejects.toThrow(/disconnected|ECONNRESET/);
    broken = false;
    await tls(port);
  });

  it('may end its side and still be answered', async () => {
    const port = await listen({}, ({ socket }) => {
      socket.resume().on('end', () => setImmediate(() => socket.end('answer')));
    });
    const client = await tls(port, { allowHalfOpen: true } as ConnectionOptions);
    client.end('question');
    expect(await read(client, 6)).toBe('answer');
  });

  it('destroyed by the other side does not end the process', async () => {
    const arrived = Promise.withResolvers<Arrival>();
    const port = await listen({}, (arrival) => {
      // Node.js reports a reset right after the handshake as an end of the stream, so the owner of the socket must
      // close it.
      echo(arrival);
      arrived.resolve(arrival);
    });
    const upstream = plain(port);
    const relay = await startCuttingRelay(upstream, '', [100_000]);
    await tls(relay.port);
    const { socket } = await arrived.promise;
    upstream.resetAndDestroy();
    expect(await closed(socket)).toBe(true);
    await relay.close();
  });

  it('is accepted with a certificate of our own making', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'listener-'));
    const own = await openSelfSignedCertificates({ directory, log });
    const port = await listen({ certificates: own });
    const client = await tls(port, { ca: own.caPem, host: 'localhost' });
    expect(client.authorized).toBe(true);
    await rm(directory, { recursive: true });
  });
});

describe('an unfinished handshake', () => {
  it('holds nobody else up', async () => {
    const port = await listen({}, echo);
    for (let index = 0; index < 20; index += 1) plain(port).write('\x16\x03');
    const client = await tls(port);
    client.write('x');
    expect(await read(client, 1)).toBe('x');
    expect(listener.halfOpenConnections).toBe(20);
    expect(listener.openConnections).toBe(1);
  });

  it('is ended at the deadline, even one that drips', async () => {
    const port = await listen({ handshakeTimeoutMs: 120 });
    const silent = plain(port);
    const dripping = plain(port);
    dripping.write('\x16\x03\x01\x02\x00');
    const drip = setInterval(() => dripping.write('\x00'), 20);
    await Promise.all([closed(silent), closed(dripping)]);
    clearInterval(drip);
    await expect.poll(() => listener.halfOpenConnections, { interval: 1 }).toBe(0);
  });

  it('is ended when the client ends its side', async () => {
    const port = await listen();
    const client = plain(port);
    client.end('\x16\x03\x01\x02\x00');
    await closed(client);
    await expect.poll(() => listener.halfOpenConnections, { interval: 1 }).toBe(0);
  });

  it('gives way to newer ones when there are too many', async () => {
    const port = await listen({ maxHalfOpen: 3 });
    const clients: Socket[] = [];
    for (let index = 0; index < 4; index += 1) {
      const client = plain(port);
      await once(client, 'connect');
      clients.push(client);
    }
    await closed(clients[0]!);
    expect(listener.halfOpenConnections).toBe(3);
    await tls(port);
  });

  it('is not displaced by those of another address', async () => {
    const port = await listen({ maxHalfOpen: 3, proxyProtocol: 'require' });
    const open = async (address: string): Promise<Socket> => {
      const client = plain(port);
      client.write(HEADER.replace('100.64.0.3', address));
      await once(client, 'connect');
      return client;
    };
    const finish = async (socket: Socket): Promise<void> => {
      const client = connectTls({ socket, ca: authority.caPem, servername: 'localhost' });
      await once(client, 'secureConnect');
    };
    const slow = await open('100.64.0.9');
    // The listener reads the header of the first client before it finishes the handshake of the second one.
    await finish(await open('100.64.0.8'));
    const flood: Socket[] = [];
    for (let index = 0; index < 9; index += 1) flood.push((await open('100.64.0.3')).resume());
    await expect.poll(() => flood.filter((socket) => socket.closed).length).toBe(7);
    await finish(slow);
  });

  it('ends at once for what is not TLS', async () => {
    const port = await listen();
    for (const bytes of ['GET / HTTP/1.1\r\n\r\n', HEADER, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']) {
      const client = plain(port);
      client.write(bytes);
      await closed(client);
    }
    expect(listener.openConnections).toBe(0);
  });
});

describe('a connection that must begin with a PROXY header', () => {
  /** Sends the header and then TLS on the same connection. */
  async function tlsAfter(port: number, header: string | Buffer): Promise<TLSSocket> {
    const socket = plain(port);
    socket.write(header);
    return await tls(port, { socket });
  }

  it.each([
    ['1', HEADER],
    [
      '2 with TLVs',
      Buffer.from(
        '0d0a0d0a000d0a515549540a 21 11 0012 64400003 64400002 8380 01bb 04 0003 aabbcc'.replaceAll(' ', ''),
        'hex',
      ),
    ],
  ])('has the peer the header names (version %s)', async (_version, header) => {
    const arrived = Promise.withResolvers<Arrival>();
    const port = await listen({ proxyProtocol: 'require' }, (arrival) => {
      arrived.resolve(arrival);
      echo(arrival);
    });
    const client = await tlsAfter(port, header);
    client.write('hello');
    expect(await read(client, 5)).toBe('hello');
    expect((await arrived.promise).peer).toEqual(PROXIED);
  });

  it('loses no byte, however header and TLS are cut', async () => {
    const port = await listen({ proxyProtocol: 'require' }, echo);
    // A relay splits the client's bytes at these sizes, so that the PROXY header and the TLS hello are in the same or
    // in different segments.
    for (const sizes of [[1], [7], [HEADER.length - 1, 2], [HEADER.length + 5], [100_000]]) {
      const upstream = plain(port);
      const { port: relayPort, close } = await startCuttingRelay(upstream, HEADER, sizes);
      const client = await tls(relayPort);
      client.write('x'.repeat(3000));
      expect(await read(client, 3000)).toBe('x'.repeat(3000));
      client.destroy();
      await close();
    }
  });

  it('is the socket itself when the proxy speaks for itself', async () => {
    const arrived = Promise.withResolvers<Arrival>();
    const port = await listen({ proxyProtocol: 'require' }, arrived.resolve);
    await tlsAfter(port, 'PROXY UNKNOWN\r\n');
    expect((await arrived.promise).peer).toMatchObject({ address: '127.0.0.1', source: 'socket' });
  });

  it.each([
    ['without one', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
    ['with HTTP instead', 'GET / HTTP/1.1\r\n\r\n'],
    ['with a malformed one', 'PROXY TCP4 100.64.0.3\r\n'],
    ['with two', HEADER + HEADER],
  ])('is closed %s', async (_how, bytes) => {
    const port = await listen({ proxyProtocol: 'require' });
    const client = plain(port);
    client.write(bytes, 'latin1');
    await closed(client);
    await expect.poll(() => listener.halfOpenConnections, { interval: 1 }).toBe(0);
  });

  it('is closed when the header does not come in time, or is not finished', async () => {
    const port = await listen({ proxyProtocol: 'require', headerTimeoutMs: 50 });
    const silent = plain(port);
    const partial = plain(port);
    partial.write('PROXY TCP4 ');
    await Promise.all([closed(silent), closed(partial)]);
    const ended = plain(port);
    ended.end('PROXY TCP4 ');
    await closed(ended);
    await expect.poll(() => listener.halfOpenConnections, { interval: 1 }).toBe(0);
  });
});

describe('a connection without TLS', () => {
  let server: Server;
  beforeEach(() => {
    server = createHttpServer((request, response) => {
      request.resume().on('end', () => response.end(JSON.stringify(peerOf(request.socket))));
    });
  });
  afterAll(() => void server.close());

  const serve = ({ socket }: Arrival): void => void server.emit('connection', socket);
  const REQUEST = 'POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello';

  it.each([
    ['in one piece', [HEADER + REQUEST]],
    ['with the header alone', [HEADER, REQUEST]],
    ['cut inside both', [HEADER.slice(0, 9), HEADER.slice(9) + REQUEST.slice(0, 20), REQUEST.slice(20)]],
  ])('is HTTP after its PROXY header, %s', async (_how, pieces) => {
    const port = await listen({ proxyProtocol: 'require', tls: 'none' }, serve);
    const client = plain(port);
    client.setNoDelay();
    for (const piece of pieces) {
      client.write(piece);
      await new Promise(setImmediate);
    }
    let text = '';
    for await (const chunk of client) text += String(chunk);
    expect(text).toContain(JSON.stringify(PROXIED));
  });

  it('is refused as HTTP when it begins with a second PROXY header, or with one nobody asked for', async () => {
    const port = await listen({ proxyProtocol: 'require', tls: 'none' }, serve);
    const twice = plain(port);
    twice.write(HEADER + HEADER + REQUEST);
    expect(await read(twice, 12)).toContain('400 Bad Request');
    await listener.close(AbortSignal.abort());
    const offPort = await listen({ proxyProtocol: 'off', tls: 'none' }, serve);
    const once_ = plain(offPort);
    once_.write(HEADER + REQUEST);
    expect(await read(once_, 12)).toContain('400 Bad Request');
  });
});

describe('HTTP/2 on a handed-over socket', () => {
  it('works, knows its peer, and leaves nothing behind when the client goes', async () => {
    const http2 = createHttp2Server();
    http2.on('stream', (stream: ServerHttp2Stream) => {
      stream.respond({ ':status': 200 });
      stream.end(JSON.stringify(peerOf(stream.session!.socket)));
    });
    const gone = Promise.withResolvers<void>();
    const port = await listen({}, ({ socket }) => {
      socket.once('close', () => gone.resolve());
      http2.emit('connection', socket);
    });
    const session = connectHttp2(`https://localhost:${port}`, { ca: authority.caPem });
    const stream = session.request({ ':path': '/' });
    let text = '';
    for await (const chunk of stream) text += String(chunk);
    expect(JSON.parse(text)).toMatchObject({ address: '127.0.0.1', source: 'socket' });
    session.close();
    await gone.promise;
    expect(listener.openConnections).toBe(0);
  });

  it('closes with a client that just ends the connection', async () => {
    const http2 = createHttp2Server();
    const gone = Promise.withResolvers<boolean>();
    const port = await listen({}, ({ socket }) => {
      socket.once('close', () => gone.resolve(true));
      http2.emit('connection', socket);
    });
    const client = await tls(port, { ALPNProtocols: ['h2'] });
    client.end('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0');
    expect(await gone.promise).toBe(true);
  });
});

describe('closing a listener', () => {
  it('accepts no more, drops handshakes after a moment, and waits for the sockets handed over', async () => {
    const arrived = Promise.withResolvers<Arrival>();
    const port = await listen({}, arrived.resolve);
    const client = await tls(port);
    const { socket } = await arrived.promise;
    const unfinished = plain(port);
    await once(unfinished, 'connect');
    let done = false;
    const closing = listener.close().then(() => {
      done = true;
    });
    await closed(unfinished);
    await expect(tls(port)).rejects.toThrow('ECONNREFUSED');
    expect(done).toBe(false);
    socket.end();
    client.resume().end();
    await closing;
    expect(listener.openConnections).toBe(0);
  });

  it('destroys what is left when told', async () => {
    const port = await listen();
    const client = await tls(port);
    const deadline = new AbortController();
    const closing = listener.close(deadline.signal);
    deadline.abort();
    await closing;
    expect(await closed(client)).toBe(true);
  });

  it('fails to listen on a port that is taken', async () => {
    const port = await listen();
    await expect(
      createTailnetListener({ host: '127.0.0.1', port, proxyProtocol: 'off', certificates, log }),
    ).rejects.toMatchObject({ code: 'EADDRINUSE' });
  });

  it('turns away connections over the limit', async () => {
    const port = await listen({ maxConnections: 1 });
    await tls(port);
    await closed(plain(port));
    expect(listener.openConnections).toBe(1);
  });
});

/** Sends `header` and then the bytes of one client to `upstream`, in pieces of these sizes; the last size repeats. */
async function startCuttingRelay(
  upstream: Socket,
  header: string,
  sizes: readonly number[],
): Promise<{ readonly port: number; close(): Promise<void> }> {
  upstream.setNoDelay();
  const clients: Socket[] = [];
  const server = createTcpServer((client) => {
    clients.push(client.on('error', () => undefined));
    let pending: Buffer = Buffer.from(header);
    let index = 0;
    client.on('data', (chunk: Buffer) => {
      pending = Buffer.concat([pending, chunk]);
      while (pending.length > 0) {
        const size = sizes[Math.min(index, sizes.length - 1)]!;
        index += 1;
        upstream.write(pending.subarray(0, size));
        pending = pending.subarray(size);
      }
    });
    upstream.pipe(client);
  });
  await listenOn(server);
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      for (const socket of [upstream, ...clients]) socket.destroy();
      await once(server, 'close');
    },
  };
}
