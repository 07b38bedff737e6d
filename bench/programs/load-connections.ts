/** Load with many handshakes or many watches. */
import type { Socket } from 'node:net';
import { ChunkedScanner } from '../../src/proxy/upstream/chunked.ts';
import { open } from './connect.ts';
import { EVENT_BYTES } from './content.ts';
import { ask, createExchange } from './load-http1.ts';
import { percentiles, type LoadPlan, type LoadResult, type Target } from './plan.ts';

type HandshakesPlan = Extract<LoadPlan, { readonly kind: 'handshakes' }>;
type WatchesPlan = Extract<LoadPlan, { readonly kind: 'watches' }>;

const REQUESTS_PER_CONNECTION = 3;

/** Short connections like those of kubectl, with a few requests each. Counts connections. */
export async function loadHandshakes(target: Target, plan: HandshakesPlan): Promise<LoadResult> {
  const exchange = createExchange('small');
  const latencies: number[] = [];
  const before = process.cpuUsage();
  const beganAt = performance.now();
  const until = beganAt + plan.durationMs;
  const visit = async (): Promise<void> => {
    while (performance.now() < until) {
      const startedAt = performance.now();
      const socket = await open(target, 'http/1.1');
      for (let request = 0; request < REQUESTS_PER_CONNECTION; request += 1) await ask(socket, exchange);
      socket.destroy();
      latencies.push(performance.now() - startedAt);
    }
  };
  await Promise.all(Array.from({ length: plan.parallel }, visit));
  const cpu = process.cpuUsage(before);
  return {
    units: latencies.length,
    seconds: (performance.now() - beganAt) / 1000,
    ...percentiles(latencies),
    loadCpuSeconds: (cpu.user + cpu.system) / 1e6,
  };
}

/** Number of connections to open at the same time. Larger values are not faster. */
const OPENING_AT_ONCE = 32;

/**
 * Opens every watch, waits for an event of each, reports the steady state, and then counts events and their latency. An
 * event contains its send time, from the clock that all processes of a machine share.
 */
export async function loadWatches(
  target: Target,
  plan: WatchesPlan,
  onSteady: () => void,
): Promise<LoadResult> {
  const latencies: number[] = [];
  let seen = 0;
  let counting = false;
  const failed = Promise.withResolvers<never>();
  const sockets: Socket[] = [];
  let next = 0;
  const openSome = async (): Promise<void> => {
    while (next < plan.watches) {
      next += 1;
      const socket = await open(target, 'http/1.1');
      sockets.push(socket);
      socket.once('close', () => failed.reject(new Error('a watch was closed')));
      socket.on('error', failed.reject);
      let first = true;
      const read = createEventReader((sentNs) => {
        if (first) seen += 1;
        first = false;
        if (counting) latencies.push(Number(process.hrtime.bigint() - sentNs) / 1e6);
      });
      socket.on('data', (chunk: Buffer) => {
        try {
          read(chunk);
        } catch (error) {
          failed.reject(error);
        }
      });
      socket.write(
        'GET /api/v1/pods?watch=true&resourceVersion=1 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: ' +
          'bench\r\nAccept: application/json\r\n\r\n',
      );
    }
  };
  await Promise.race([Promise.all(Array.from({ length: OPENING_AT_ONCE }, openSome)), failed.promise]);
  while (seen < plan.watches) await Promise.race([sleep(100), failed.promise]);
  await Promise.race([sleep(1000), failed.promise]);
  onSteady();
  counting = true;
  const before = process.cpuUsage();
  const beganAt = performance.now();
  await Promise.race([sleep(plan.durationMs), failed.promise]);
  counting = false;
  const seconds = (performance.now() - beganAt) / 1000;
  const cpu = process.cpuUsage(before);
  failed.promise.catch(() => {});
  for (const socket of sockets) socket.destroy();
  return {
    units: latencies.length,
    seconds,
    ...percentiles(latencies),
    loadCpuSeconds: (cpu.user + cpu.system) / 1e6,
  };
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Splits a watch into its events. @throws Error for an unexpected event */
function createEventReader(onEvent: (sentNs: bigint) => void): (chunk: Buffer) => void {
  let head: string | undefined = '';
  const scanner = new ChunkedScanner();
  let rest = '';
  const take = (text: string): void => {
    rest += text;
    for (;;) {
      const end = rest.indexOf('\n');
      if (end === -1) return;
      const line = rest.slice(0, end + 1);
      rest = rest.slice(end + 1);
      const sent = /^\{"type":"MODIFIED","sent":(\d+),/.exec(line)?.[1];
      if (sent === undefined || line.length !== EVENT_BYTES)
        throw new Error(`not an event: ${line.slice(0, 80)}`);
      onEvent(BigInt(sent));
    }
  };
  const takeBody = (chunk: Buffer, from: number): void => {
    if (scanner.scan(chunk, from, (start, stop) => take(chunk.toString('latin1', start, stop))) !== -1)
      throw new Error('a watch has ended');
  };
  return (chunk) => {
    if (head === undefined) return takeBody(chunk, 0);
    const before = head.length;
    head += chunk.toString('latin1');
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    if (!/^HTTP\/1\.1 200 [^]*\r\ntransfer-encoding: chunked\r\n/i.test(head.slice(0, end + 2)))
      throw new Error(head);
    head = undefined;
    takeBody(chunk, end + 4 - before);
  };
}
