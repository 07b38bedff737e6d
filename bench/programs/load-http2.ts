/**
 * HTTP/2 load without Node's HTTP/2 client, because that client needs more CPU than the measured servers. The load
 * sends the same request frames each time, and checks only parts of the responses. The header table is disabled, so
 * that a status of 200 is always the byte 0x88 (RFC 7541 appendix A).
 */
import type { Socket } from 'node:net';
import { openAll } from './connect.ts';
import { createExchange, SMALL_PATH, type Exchange } from './load-http1.ts';
import { percentiles, type LoadPlan, type LoadResult, type Target } from './plan.ts';
import { openWindow, type Window } from './window.ts';

const TYPE = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, goaway: 7, windowUpdate: 8 } as const;
const FLAG = { ack: 1, endStream: 1, endHeaders: 4, padded: 8, priority: 32 } as const;
const WINDOW = 0x7fff_ffff;
const INITIAL_CONNECTION_WINDOW = 65_535;
const STATUS_200 = 0x88;
const MAX_STREAM_ID = 0x7fff_0000;

type RequestsPlan = Extract<LoadPlan, { readonly kind: 'requests' }>;

/**
 * Sends requests. Each connection has `streams` requests in flight at a time.
 * @throws Error for an unexpected response
 */
export async function loadHttp2(
  target: Target,
  plan: RequestsPlan,
  onSteady: () => void,
): Promise<LoadResult> {
  const sockets = await openAll(target, 'h2', plan.connections);
  const latencies: number[] = [];
  const window = openWindow(plan, () => {
    latencies.length = 0;
    onSteady();
  });
  const { check } = createExchange(plan.answer, target.token);
  const block = headerBlock(typeof plan.answer === 'object' ? plan.answer.path : SMALL_PATH, target.token);
  const streams = plan.streams ?? 1;
  await Promise.all(sockets.map((socket) => drive(socket, { check, block, streams }, window, latencies)));
  return { units: latencies.length, ...window.close(), ...percentiles(latencies) };
}

interface Stream {
  readonly startedAt: number;
  readonly check: ReturnType<Exchange['check']>;
  answered: boolean;
}

interface Requests {
  readonly check: Exchange['check'];
  /** Encoded headers of each request. */
  readonly block: Buffer;
  readonly streams: number;
}

function drive(
  socket: Socket,
  { check, block, streams }: Requests,
  window: Window,
  latencies: number[],
): Promise<void> {
  const open = new Map<number, Stream>();
  let nextId = 1;
  let owed = 0;
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => {
      reject(error);
      socket.destroy();
    };
    const ask = (): void => {
      if (nextId > MAX_STREAM_ID) return fail(new Error('out of streams'));
      open.set(nextId, {
        startedAt: performance.now(),
        check: check(),
        answered: false,
      });
      socket.write(frame(TYPE.headers, FLAG.endStream | FLAG.endHeaders, nextId, block));
      nextId += 2;
    };
    const ended = (id: number, stream: Stream): void => {
      if (!stream.answered || !stream.check.complete) return fail(new Error('an answer is not whole'));
      open.delete(id);
      latencies.push(performance.now() - stream.startedAt);
      if (!window.isOver()) ask();
      else if (open.size === 0) socket.end(() => resolve());
    };
    const seeControl = (type: number, flags: number, payload: Buffer): void => {
      if (type === TYPE.goaway || type === TYPE.reset) throw new Error('the server gave up');
      if ((flags & FLAG.ack) !== 0) return;
      if (type === TYPE.settings) socket.write(frame(TYPE.settings, FLAG.ack, 0, Buffer.alloc(0)));
      if (type === TYPE.ping) socket.write(frame(TYPE.ping, FLAG.ack, 0, payload));
    };
    const see = (type: number, flags: number, id: number, payload: Buffer): void => {
      if (type !== TYPE.headers && type !== TYPE.data) return seeControl(type, flags, payload);
      const stream = open.get(id);
      if (stream === undefined) throw new Error(`a frame of stream ${id}, which is not open`);
      const padding = flags & FLAG.padded ? 1 + (payload[0] ?? 0) : 0;
      const from = Math.min(1, padding);
      if (type === TYPE.headers)
        stream.answered ||= statusIs200(payload, from + (flags & FLAG.priority ? 5 : 0));
      else {
        owed += payload.length;
        stream.check.push(payload, from, payload.length - padding + from);
      }
      if (flags & FLAG.endStream) ended(id, stream);
    };
    const parser = createFrameReader(see);
    socket.on('data', (chunk: Buffer) => {
      socket.cork();
      try {
        parser(chunk);
      } catch (error) {
        fail(error as Error);
      }
      if (owed > WINDOW / 4) {
        socket.write(windowUpdate(owed));
        owed = 0;
      }
      socket.uncork();
    });
    socket.on('error', fail);
    socket.once('close', () => reject(new Error('the connection was closed')));
    socket.write(
      Buffer.concat([
        Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
        frame(TYPE.settings, 0, 0, settings({ 1: 0, 2: 0, 4: WINDOW })),
        windowUpdate(WINDOW - INITIAL_CONNECTION_WINDOW),
      ]),
    );
    for (let index = 0; index < streams; index += 1) ask();
  });
}

/** The first header must be `:status: 200`, possibly after changes of the table size. */
function statusIs200(payload: Buffer, from: number): boolean {
  let at = from;
  while (((payload[at] ?? 0) & 0xe0) === 0x20) at += 1;
  if (payload[at] !== STATUS_200) throw new Error('the status is not 200');
  return true;
}

function createFrameReader(
  see: (type: number, flags: number, id: number, payload: Buffer) => void,
): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    while (bytes.length - at >= 9) {
      const length = bytes.readUIntBE(at, 3);
      if (bytes.length - at < 9 + length) break;
      const id = bytes.readUInt32BE(at + 5) & WINDOW;
      see(bytes[at + 3] ?? 0, bytes[at + 4] ?? 0, id, bytes.subarray(at + 9, at + 9 + length));
      at += 9 + length;
    }
    rest = bytes.subarray(at);
  };
}

function frame(type: number, flags: number, id: number, payload: Buffer): Buffer {
  const bytes = Buffer.alloc(9 + payload.length);
  bytes.writeUIntBE(payload.length, 0, 3);
  bytes[3] = type;
  bytes[4] = flags;
  bytes.writeUInt32BE(id, 5);
  payload.copy(bytes, 9);
  return bytes;
}

function settings(values: Readonly<Record<number, number>>): Buffer {
  const entries = Object.entries(values);
  const bytes = Buffer.alloc(6 * entries.length);
  for (const [index, [id, value]] of entries.entries()) {
    bytes.writeUInt16BE(Number(id), 6 * index);
    bytes.writeUInt32BE(value, 6 * index + 2);
  }
  return bytes;
}

function windowUpdate(increment: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(increment);
  return frame(TYPE.windowUpdate, 0, 0, payload);
}

/**
 * GET with the headers of kubectl. The headers are literals without indexing (RFC 7541 §6.2.2) and without Huffman
 * code.
 */
function headerBlock(path: string, token: string | undefined): Buffer {
  const literal = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.of(0), text(name), text(value)]);
  return Buffer.concat([
    Buffer.of(0x82, 0x87), // :method GET, :scheme https
    Buffer.of(0x01),
    text('localhost'), // :authority
    Buffer.of(0x04),
    text(path), // :path
    literal('user-agent', 'kubectl/v1.33.0 (linux/amd64) kubernetes/bench'),
    literal('accept', 'application/json'),
    ...(token === undefined
      ? [literal('accept-encoding', 'gzip')]
      : [literal('authorization', `Bearer ${token}`)]),
  ]);
}

/** A string literal: its length with a prefix of 7 bits (RFC 7541 §5.1), and its bytes. */
function text(value: string): Buffer {
  if (value.length < 127) return Buffer.concat([Buffer.of(value.length), Buffer.from(value)]);
  const length = [127];
  let rest = value.length - 127;
  for (; rest > 127; rest >>= 7) length.push((rest & 127) | 128);
  return Buffer.concat([Buffer.from([...length, rest]), Buffer.from(value)]);
}
