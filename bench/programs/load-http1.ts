/** HTTP/1.1 load: keep-alive connections that send the next request after each correct response. */
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { ChunkedScanner } from '../../src/proxy/upstream/chunked.ts';
import { openAll } from './connect.ts';
import {
  BLOCK_BYTES,
  ContentCheck,
  createBlock,
  createSmall,
  LIST_BLOCKS,
  POST_BYTES,
  SMALL_BYTES,
} from './content.ts';
import { percentiles, type Answer, type LoadPlan, type LoadResult, type Target } from './plan.ts';
import { openWindow } from './window.ts';

type RequestsPlan = Extract<LoadPlan, { readonly kind: 'requests' }>;

/** A request and its expected response. */
export interface Exchange {
  readonly request: Buffer;
  readonly status: string;
  check(): ContentCheck;
}

const COMMON =
  'Host: localhost\r\nUser-Agent: kubectl/v1.33.0 (linux/amd64) kubernetes/bench\r\nAccept: application/json\r\n';

export function createExchange(answer: Answer, token?: string): Exchange {
  const get = (path: string, extra = ''): Buffer =>
    Buffer.from(`GET ${path} HTTP/1.1\r\n${COMMON}${extra}\r\n`);
  if (typeof answer === 'object') {
    const body = readFileSync(answer.body);
    const extra = token === undefined ? '' : `Authorization: Bearer ${token}\r\n`;
    return {
      request: get(answer.path, extra),
      status: '200',
      check: () => new ContentCheck(body, body.length),
    };
  }
  switch (answer) {
    case 'small': {
      const small = createSmall();
      return {
        request: get(SMALL_PATH, 'Accept-Encoding: gzip\r\n'),
        status: '200',
        check: () => new ContentCheck(small, SMALL_BYTES),
      };
    }
    case 'list-chunked':
    case 'list-length': {
      const block = createBlock('json');
      return {
        request: get(`/api/v1/pods?framing=${answer.slice(5)}`),
        status: '200',
        check: () => new ContentCheck(block, LIST_BLOCKS * BLOCK_BYTES),
      };
    }
    case 'post': {
      const response = Buffer.from(`{"received":${POST_BYTES}}`);
      const head =
        `POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\n${COMMON}Content-Type: ` +
        `application/json\r\nContent-Length: ${POST_BYTES}\r\n\r\n`;
      return {
        request: Buffer.concat([Buffer.from(head), createBlock('json')]),
        status: '201',
        check: () => new ContentCheck(response, response.length),
      };
    }
  }
}

export const SMALL_PATH = '/api/v1/namespaces/default/configmaps/small';

/** Runs the plan. @throws Error for an unexpected response */
export async function loadHttp1(
  target: Target,
  plan: RequestsPlan,
  onSteady: () => void,
): Promise<LoadResult> {
  const exchange = createExchange(plan.answer, target.token);
  const sockets = await openAll(target, 'http/1.1', plan.connections);
  const latencies: number[] = [];
  let bytes = 0;
  const window = openWindow(plan, () => {
    latencies.length = 0;
    bytes = 0;
    onSteady();
  });
  await Promise.all(
    sockets.map(async (socket) => {
      if (plan.bytesPerSecond !== undefined) throttle(socket, plan.bytesPerSecond);
      for await (const answer of answers(socket, exchange)) {
        latencies.push(answer.ms);
        bytes += answer.bytes;
        if (window.isOver()) break;
        if (plan.pauseMs !== undefined) await delay(plan.pauseMs);
      }
      socket.destroy();
    }),
  );
  return {
    units: countsBytes(plan.answer) ? bytes : latencies.length,
    ...window.close(),
    ...percentiles(latencies),
  };
}

function countsBytes(answer: Answer): boolean {
  return typeof answer === 'string' && (answer.startsWith('list') || answer === 'post');
}

interface Answered {
  readonly ms: number;
  /** Size of the measured body: the body of the POST, or of the response to another request. */
  readonly bytes: number;
}

/** Sends the request again and again. Yields each response after it was checked. */
async function* answers(socket: Socket, exchange: Exchange): AsyncGenerator<Answered, void> {
  for (;;) yield await ask(socket, exchange);
}

/** Sends one request. @throws Error for an unexpected response */
export function ask(socket: Socket, exchange: Exchange): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const check = exchange.check();
    const startedAt = performance.now();
    let head = '';
    let take: ((chunk: Buffer, from: number) => boolean) | undefined;
    const done = (error?: Error): void => {
      socket.off('data', onData);
      socket.off('close', onClose);
      if (error !== undefined) return reject(error);
      const posted = exchange.request.length > POST_BYTES ? POST_BYTES : 0;
      resolve({ ms: performance.now() - startedAt, bytes: posted || check.received });
    };
    const onClose = (): void => done(new Error('the connection was closed'));
    const onData = (chunk: Buffer): void => {
      try {
        if (take !== undefined) {
          if (take(chunk, 0)) done();
          return;
        }
        const before = head.length;
        head += chunk.toString('latin1');
        const end = head.indexOf('\r\n\r\n');
        if (end === -1) return;
        take = createBody(head.slice(0, end + 2).toLowerCase(), exchange.status, check);
        if (take(chunk, end + 4 - before)) done();
      } catch (error) {
        done(error as Error);
      }
    };
    socket.on('data', onData);
    socket.once('close', onClose);
    socket.write(exchange.request);
  });
}

/** Reads the body according to its framing; returns true when the body is complete. */
function createBody(
  head: string,
  status: string,
  check: ContentCheck,
): (chunk: Buffer, from: number) => boolean {
  if (!head.startsWith(`http/1.1 ${status} `)) throw new Error(head);
  if (head.includes('\r\ntransfer-encoding: chunked\r\n')) {
    const scanner = new ChunkedScanner();
    return (chunk, from) => {
      if (scanner.scan(chunk, from, (start, end) => check.push(chunk, start, end)) === -1) return false;
      if (!check.complete) throw new Error(`only ${check.received} bytes`);
      return true;
    };
  }
  if (!/\r\ncontent-length: \d+\r\n/.test(head)) throw new Error(`an answer without framing: ${head}`);
  return (chunk, from) => {
    check.push(chunk, from);
    return check.complete;
  };
}

/**
 * Limits the read rate of a connection. Each period of 50 ms has an equal share of `bytesPerSecond`. After the share is
 * used up, the connection pauses until the next period.
 */
function throttle(socket: Socket, bytesPerSecond: number): void {
  const share = bytesPerSecond / 20;
  let left = share;
  socket.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left <= 0) socket.pause();
  });
  const timer = setInterval(() => {
    left = Math.min(share, left + share);
    if (left > 0) socket.resume();
  }, 50);
  socket.once('close', () => clearInterval(timer));
}
