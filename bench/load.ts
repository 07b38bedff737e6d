/**
 * The load generator: a number of keep-alive TLS connections that ask for one path, one request after the other, for a
 * time. Every answer's status and length are checked; one wrong answer fails the run.
 *
 *   node bench/load.ts <port> <ca> <path> <connections> <milliseconds>      prints a JSON line
 */
import { readFileSync } from 'node:fs';
import { connect, createSecureContext } from 'node:tls';
import { createChunkedScanner } from '../src/proxy/chunked.ts';
import { BULK_BYTES, SMALL_BYTES } from './sizes.ts';

const [port = '', ca = '', path = '', connections = '', durationMs = ''] = process.argv.slice(2);
const bulk = path === '/list';
const secureContext = createSecureContext({ ca: readFileSync(ca) });
const request = Buffer.from(
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kubectl/v1.33.0 (linux/amd64) kubernetes/bench\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n`,
);
const latencies: number[] = [];
let bytes = 0;
let stopped = false;

/** Follows one answer; `take` returns true when it is complete. */
interface Answer {
  take(chunk: Buffer): boolean;
}

function createAnswer(): Answer {
  const scanner = bulk ? createChunkedScanner() : undefined;
  let head: string | undefined = '';
  let received = 0;
  const takeBody = (chunk: Buffer, from: number): boolean => {
    if (scanner === undefined) {
      received += chunk.length - from;
      if (received > SMALL_BYTES) throw new Error(`${received} bytes instead of ${SMALL_BYTES}`);
      return received === SMALL_BYTES;
    }
    const end = scanner.scan(chunk, from, (start, stop) => (received += stop - start));
    if (end === -1) return false;
    if (received !== BULK_BYTES) throw new Error(`${received} bytes instead of ${BULK_BYTES}`);
    return true;
  };
  return {
    take(chunk) {
      if (head === undefined) return takeBody(chunk, 0);
      const before = head.length;
      head += chunk.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end === -1) return false;
      checkHead(head.slice(0, end).toLowerCase());
      head = undefined;
      return takeBody(chunk, end + 4 - before);
    },
  };
}

function checkHead(head: string): void {
  if (!head.startsWith('http/1.1 200 ')) throw new Error(head);
  const framing = bulk ? 'transfer-encoding: chunked' : `content-length: ${SMALL_BYTES}`;
  if (!head.includes(`\r\n${framing}`)) throw new Error(`no ${framing} in ${head}`);
}

function client(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      port: Number(port),
      host: '127.0.0.1',
      servername: 'localhost',
      secureContext,
      ALPNProtocols: ['http/1.1'],
    });
    socket.setNoDelay(true);
    let startedAt = 0;
    let answer = createAnswer();
    const ask = (): void => {
      startedAt = performance.now();
      answer = createAnswer();
      socket.write(request);
    };
    socket.once('secureConnect', ask);
    socket.on('error', reject);
    socket.on('close', () => (stopped ? resolve() : reject(new Error('the connection was closed'))));
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (!answer.take(chunk)) return;
      latencies.push(performance.now() - startedAt);
      if (stopped) socket.end();
      else ask();
    });
  });
}

const before = process.cpuUsage();
const beganAt = performance.now();
setTimeout(() => (stopped = true), Number(durationMs));
await Promise.all(Array.from({ length: Number(connections) }, client));
const seconds = (performance.now() - beganAt) / 1000;
const cpu = process.cpuUsage(before);
latencies.sort((a, b) => a - b);
const at = (share: number): number =>
  latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))] ?? 0;
console.log(
  JSON.stringify({
    requests: latencies.length,
    seconds,
    bytes,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    loadCpuSeconds: (cpu.user + cpu.system) / 1e6,
  }),
);
process.exit(0);
