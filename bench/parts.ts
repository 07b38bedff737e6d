/**
 * Cost of single steps without the rest of tailcast in this Node: a lower limit for everything that uses them.
 *
 *   node bench/parts.ts [--megabytes 512]
 *
 * Measures the CPU time of the process that runs the step, including the kernel. The peer of a connection is a separate
 * process with a separate measurement. Relays, taps and queues of tailcast are not included; the escaping of lines and
 * the stored state of a session are. Prints a line for each step.
 */
import { fork } from 'node:child_process';
import { createCipheriv, createHash, randomBytes } from 'node:crypto';
import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import {
  connect as connectHttp2,
  createSecureServer,
  createServer as createHttp2Server,
  type ServerHttp2Stream,
} from 'node:http2';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { isUtf8 } from 'node:buffer';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { takeBlock } from '../src/memory/block-pool.ts';
import type { ConnectionEvents, RecorderConnection } from '../src/recording/recorder-connection.ts';
import { createUpload } from '../src/recording/recorder-upload.ts';
import { RecordingSession } from '../src/recording/session.ts';
import { issueAuthority, issueServer } from '../src/tailnet/issue-certificate.ts';
import { FrameLines } from '../src/wire/recorder-api/frame-lines.ts';
import { FrameBatch } from '../src/wire/recorder-api/upload-frame.ts';
import { createBlock } from './programs/content.ts';

const MB = 1_000_000;
const PIECE = 64 * 1024;
const HANDSHAKES = 2_000;
const REQUESTS = 60_000;
const STREAMS = 32;
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;

type Far = 'plain' | 'http2' | 'requests' | 'handshakes';
interface Pair {
  readonly certificatePem: string;
  readonly keyPem: string;
}

if (process.send === undefined) await main();
else process.once('message', ({ far, pair }: { far: Far; pair: Pair }) => serve(far, pair));

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { megabytes: { type: 'string', default: '512' } } });
  const bytes = Number(values.megabytes) * MB;
  const perMb = (name: string, ms: number): void => print(name, (ms * MB) / bytes, 'ms per MB');
  for (const far of ['plain', 'http2'] as const) {
    const { near, there } = await across(far, (port) => send(far, port, bytes));
    perMb(`socket, ${far === 'plain' ? 'plain' : 'HTTP/2'}: who sends`, near);
    perMb(`socket, ${far === 'plain' ? 'plain' : 'HTTP/2'}: who reads`, there);
  }
  perMb(
    'AES-128-GCM of 16 KiB each',
    alone(bytes, (count) => seal('aes-128-gcm', 16 * 1024, count)),
  );
  perMb(
    'AES-256-GCM of 64 KiB each',
    alone(bytes, (count) => seal('aes-256-gcm', PIECE, count)),
  );
  perMb('SHA-256', alone(bytes, hash));
  perMb('frames of text to cast lines', alone(bytes, escape));
  for (const content of ['ascii', 'binary'] as const)
    perMb(
      `a recording that is kept, ${content}`,
      // one step is so short that V8 would hardly compile it otherwise
      alone(8 * bytes, (count) => keep(content, count)) / 8,
    );
  perMb('a file, with fdatasync for each MiB', alone(bytes, append));
  const requests = await across('requests', ask);
  print('an HTTP/2 server that answers at once', (requests.there * 1000) / REQUESTS, 'µs per request');
  const handshakes = await across('handshakes', shake);
  print('a TLS server that is connected to', (handshakes.there * 1000) / HANDSHAKES, 'µs per handshake');
}

function print(name: string, value: number, unit: string): void {
  process.stdout.write(`${name.padEnd(44)} ${value.toFixed(2).padStart(8)} ${unit}\n`);
}

/** @returns milliseconds of CPU time */
function cpuMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1000;
}

/** @param step processes a number of bytes; the first call is a warm-up and does not count */
function alone(bytes: number, step: (bytes: number) => void): number {
  step(bytes / 8);
  const before = process.cpuUsage();
  step(bytes);
  return cpuMs(before);
}

/** Runs one end of a connection, and prints the CPU time of both ends. */
async function across(
  far: Far,
  run: (port: number) => Promise<void>,
): Promise<{ readonly near: number; readonly there: number }> {
  const nowMs = Date.now();
  const authority = await issueAuthority({ nowMs, validMs: DAY_MS });
  const pair = await issueServer(authority, { names: ['127.0.0.1'], nowMs, validMs: DAY_MS });
  const child = fork(fileURLToPath(import.meta.url));
  const next = (): Promise<number> =>
    new Promise((resolve, reject) => {
      child.once('message', (value: number) => resolve(value));
      child.once('exit', () => reject(new Error(`the other end of ${far} has ended`)));
    });
  const listening = next();
  child.send({ far, pair });
  const port = await listening;
  const before = process.cpuUsage();
  await run(port);
  const near = cpuMs(before);
  const took = next();
  child.send('how much');
  const there = await took;
  child.kill();
  return { near, there };
}

/** The peer process: reports its port, and its CPU time since the first connection on request. */
function serve(far: Far, { certificatePem: cert, keyPem: key }: Pair): void {
  let before: NodeJS.CpuUsage | undefined;
  const begin = (): void => void (before ??= process.cpuUsage());
  const server = serverOf(far, cert, key);
  server.on('connection', begin);
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
  process.on('message', () => process.send?.(cpuMs(before ?? process.cpuUsage())));
  process.on('disconnect', () => process.exit(0));
}

function serverOf(far: Far, cert: string, key: string): Server {
  switch (far) {
    case 'plain':
      return createServer({ allowHalfOpen: true }, (socket) => acknowledge(socket));
    case 'http2': {
      const server = createHttp2Server();
      server.on('stream', (stream: ServerHttp2Stream) => {
        stream.respond({ ':status': 200 });
        acknowledge(stream);
      });
      return server;
    }
    case 'requests': {
      const server = createSecureServer({ cert, key });
      const body = Buffer.alloc(1_000, 'x');
      server.on('stream', (stream: ServerHttp2Stream) => {
        stream.respond({ ':status': 200, 'content-type': 'application/json' });
        stream.end(body);
      });
      return server;
    }
    case 'handshakes':
      return createTlsServer({ cert, key }, (socket) => {
        socket.on('error', () => undefined);
        socket.end();
      });
  }
}

/** Reads to the end, with a short word for each MiB, as a recorder does. */
function acknowledge(stream: Duplex): void {
  let read = 0;
  stream.on('data', (chunk: Buffer) => {
    const before = Math.floor(read / 2 ** 20);
    read += chunk.length;
    if (Math.floor(read / 2 ** 20) > before) stream.write(`{"ack":${read}}\n`);
  });
  stream.on('end', () => stream.end());
  stream.on('error', () => undefined);
}

async function send(far: 'plain' | 'http2', port: number, bytes: number): Promise<void> {
  const piece = randomBytes(PIECE);
  const session = far === 'http2' ? connectHttp2(`http://127.0.0.1:${port}`) : undefined;
  const stream: Duplex =
    session?.request({ ':method': 'POST', ':path': '/' }, { endStream: false }) ??
    connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const over = new Promise<void>((resolve, reject) => {
    stream.on('data', () => undefined);
    stream.on('end', resolve);
    stream.on('error', reject);
  });
  let under = 0;
  for (let sent = 0; sent < bytes; sent += PIECE) {
    under += 1;
    stream.write(piece, () => (under -= 1));
    // data of one event-loop turn is sent together, with at most a few MB in flight
    do if (sent % (4 * PIECE) === 0 || under > STREAMS) await new Promise(setImmediate);
    while (under > STREAMS);
  }
  stream.end();
  await over;
  stream.destroy();
  session?.close();
}

function seal(cipher: 'aes-128-gcm' | 'aes-256-gcm', size: number, bytes: number): void {
  const piece = randomBytes(size);
  const key = randomBytes(cipher === 'aes-128-gcm' ? 16 : 32);
  for (let done = 0; done < bytes; done += size) {
    const sealer = createCipheriv(cipher, key, randomBytes(12));
    sealer.update(piece);
    sealer.final();
  }
}

function hash(bytes: number): void {
  const piece = randomBytes(PIECE);
  const sum = createHash('sha256');
  for (let done = 0; done < bytes; done += PIECE) sum.update(piece);
  sum.digest();
}

function escape(bytes: number): void {
  const block = createBlock('ascii').subarray(0, PIECE);
  const batch = new FrameBatch();
  const lines = new FrameLines({ lines: 0, frames: 0 }, isUtf8);
  for (let done = 0; done < bytes; done += block.length) {
    batch.output(done / MB, block, 'exact');
    lines.push(batch.take());
  }
}

/**
 * The processing of output in a session, up to the stored copy for the acknowledgement. The connection is a stub that
 * accepts everything.
 */
function keep(content: 'ascii' | 'binary', bytes: number): void {
  let sent = 0;
  let events: ConnectionEvents | undefined;
  const connection: RecorderConnection = {
    address: 'nowhere',
    protocol: 'v2',
    annotations: true,
    resumable: true,
    frames: true,
    unwritten: 0,
    attach: (told) => (events = told),
    send: (piece) => void (sent += piece.length),
    finish: () => undefined,
    destroy: () => undefined,
  };
  const limits = { maxPendingBytes: 8 * MB, stallWindowMs: MINUTE_MS, finishTimeoutMs: MINUTE_MS };
  const session = new RecordingSession(createUpload(connection, { ...limits, maxFruitlessMoves: 1 }), {
    tty: false,
    enforce: true,
    header: () => '{"version":2}\n',
    about: { kind: 'session', id: 'parts', tty: false, stdin: false, protocol: 'spdy', path: '/' },
    nowMs: () => performance.now(),
  });
  // as the API server cuts it, each behind the head of a frame
  const block = takeBlock();
  block.set(createBlock(content).subarray(0, PIECE));
  const pieces = [block.subarray(8, PIECE / 2), block.subarray(PIECE / 2 + 9)];
  for (let done = 0, turn = 0; done < bytes; done += 4 * PIECE, turn += 1) {
    for (let count = 0; count < 4; count += 1) for (const piece of pieces) session.output('stdout', piece);
    void session.flush();
    if (turn % 4 === 0) events?.acknowledged(sent, sent);
  }
  session.abandon('measured');
}

function append(bytes: number): void {
  const folder = mkdtempSync(join(tmpdir(), 'tcparts-'));
  const piece = randomBytes(PIECE);
  const fd = openSync(join(folder, 'file'), 'w');
  try {
    for (let done = 0; done < bytes; done += PIECE) {
      writeSync(fd, piece);
      if (done % 2 ** 20 === 0) fdatasyncSync(fd);
    }
  } finally {
    closeSync(fd);
    rmSync(folder, { recursive: true, force: true });
  }
}

async function ask(port: number): Promise<void> {
  const session = connectHttp2(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
  let asked = 0;
  const one = async (): Promise<void> => {
    while (asked < REQUESTS) {
      asked += 1;
      await new Promise<void>((resolve, reject) => {
        const stream = session.request({ ':path': '/api' });
        stream.on('data', () => undefined);
        stream.on('end', resolve);
        stream.on('error', reject);
      });
    }
  };
  await Promise.all(Array.from({ length: STREAMS }, one));
  session.close();
}

async function shake(port: number): Promise<void> {
  for (let done = 0; done < HANDSHAKES; done += 1) {
    await new Promise<void>((resolve, reject) => {
      const socket: Socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
      socket.on('error', reject);
      socket.on('close', resolve);
      socket.resume();
    });
  }
}
