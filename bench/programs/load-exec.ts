/** Client of exec sessions that uses kubectl's protocol, but much less CPU time than kubectl. */
import type { Socket } from 'node:net';
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';
import { createSpdyParser, encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { CHANNEL } from '../../src/wire/remotecommand/channel.ts';
import { parseExitStatus } from '../../src/wire/remotecommand/exit-status.ts';
import { encodeResize } from '../../src/wire/remotecommand/resize.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  type WebSocketPiece,
} from '../../src/wire/websocket/frame.ts';
import { open } from './connect.ts';
import { ContentCheck, createBlock, type Content } from './content.ts';
import { LINE_BYTES, LINES_BLOCK, PROMPT } from './exec-content.ts';
import {
  percentiles,
  type ExecWork,
  type LoadPlan,
  type LoadResult,
  type Target,
  type Transport,
} from './plan.ts';

type ExecPlan = Extract<LoadPlan, { readonly kind: 'exec' }>;

const SIZE = { columns: 120, rows: 40 };
const MASK = Uint8Array.of(0x37, 0xfa, 0x21, 0x3d);
const SPDY_IDS = { error: 1, stdin: 3, stdout: 5, resize: 7, stderr: 7 } as const;

/** An open session. `ended` resolves with the exit code. */
interface Session {
  readonly socket: Socket;
  readonly ended: Promise<number>;
  /** Sends input as if the user had typed it. */
  type(bytes: Uint8Array): void;
}

/** Runs the plan. @throws Error if the output is wrong, or a session does not end with exit code 0 */
export async function loadExec(target: Target, plan: ExecPlan, onSteady: () => void): Promise<LoadResult> {
  const { work } = plan;
  const before = process.cpuUsage();
  const measured = await measure(target, plan.transport, work, onSteady);
  const cpu = process.cpuUsage(before);
  return { ...measured, loadCpuSeconds: (cpu.user + cpu.system) / 1e6 };
}

type Measured = Omit<LoadResult, 'loadCpuSeconds'>;

function measure(
  target: Target,
  transport: Transport,
  work: ExecWork,
  onSteady: () => void,
): Promise<Measured> {
  switch (work.kind) {
    case 'cat':
      return cat(target, transport, work);
    case 'lines':
      return lines(target, transport, work.lines);
    case 'echo':
      return echo(target, transport, work);
    case 'echoes':
      return echoes(target, transport, work, onSteady);
  }
}

const blocks = new Map<Content, Buffer>();

async function cat(
  target: Target,
  transport: Transport,
  { content, bytes, file }: Extract<ExecWork, { readonly kind: 'cat' }>,
): Promise<Measured> {
  const block = blocks.get(content) ?? createBlock(content);
  blocks.set(content, block);
  const check = new ContentCheck(block, bytes);
  const startedAt = performance.now();
  const command = file === undefined ? ['bench', 'cat', content, String(bytes)] : ['cat', file];
  const session = await start(target, transport, command, false, (chunk) => check.push(chunk));
  await finished(session);
  if (!check.complete) throw new Error(`${check.received} bytes of ${bytes}`);
  return { units: bytes, seconds: (performance.now() - startedAt) / 1000 };
}

async function lines(target: Target, transport: Transport, count: number): Promise<Measured> {
  const check = new ContentCheck(LINES_BLOCK, count * LINE_BYTES);
  const startedAt = performance.now();
  const session = await start(target, transport, ['bench', 'lines', String(count)], true, (chunk) =>
    check.push(chunk),
  );
  await finished(session);
  if (!check.complete) throw new Error(`${check.received} bytes of ${count * LINE_BYTES}`);
  return { units: count, seconds: (performance.now() - startedAt) / 1000 };
}

/** Sends keystrokes to all shells in turn. Measures the latency of a keystroke from the time at which it was due. */
async function echoes(
  target: Target,
  transport: Transport,
  { sessions, everyMs, durationMs }: Extract<ExecWork, { readonly kind: 'echoes' }>,
  onSteady: () => void,
): Promise<Measured> {
  const latencies: number[] = [];
  const wrong = Promise.withResolvers<never>();
  wrong.promise.catch(() => {});
  /** For each shell: due times of the keystrokes whose echo has not arrived yet. */
  const due: number[][] = Array.from({ length: sessions }, () => []);
  const { shells, broken } = await openShells(target, transport, sessions, (shell, chunk) => {
    for (const letter of chunk) {
      const dueAt = due[shell]?.shift();
      if (letter !== LETTER || dueAt === undefined) wrong.reject(new Error('another letter came back'));
      else latencies.push(performance.now() - dueAt);
    }
  });
  onSteady();
  const gap = everyMs / sessions;
  const keys = Math.floor(durationMs / gap);
  const startedAt = performance.now();
  for (let key = 0; key < keys; key += 1) {
    const dueAt = startedAt + key * gap;
    const early = dueAt - performance.now();
    if (early > 0) await Promise.race([sleep(early), broken, wrong.promise]);
    // a timer may fire slightly early
    due[key % sessions]?.push(Math.min(dueAt, performance.now()));
    shells[key % sessions]?.type(Uint8Array.of(LETTER));
  }
  while (latencies.length < keys) await Promise.race([sleep(10), broken, wrong.promise]);
  const seconds = (performance.now() - startedAt) / 1000;
  await endShells(shells);
  return { units: keys, seconds, ...percentiles(latencies) };
}
const LETTER = 0x61;

interface Shells {
  readonly shells: readonly Session[];
  /** Rejects if a session ends too early. */
  readonly broken: Promise<never>;
}

/** Opens shells, 16 at a time, and resolves after all prompts. Later output goes to `onOutput`. */
async function openShells(
  target: Target,
  transport: Transport,
  count: number,
  onOutput: (shell: number, chunk: Uint8Array) => void,
): Promise<Shells> {
  const prompts = Promise.withResolvers<void>();
  let seen = 0;
  const shells: Session[] = [];
  let next = 0;
  const openSome = async (): Promise<void> => {
    while (next < count) {
      const index = next;
      next += 1;
      let prompted = 0;
      shells[index] = await start(target, transport, ['bench', 'shell'], true, (chunk) => {
        if (prompted >= PROMPT.length) return onOutput(index, chunk);
        prompted += chunk.length;
        if (prompted === PROMPT.length) seen += 1;
        if (seen === count) prompts.resolve();
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(16, count) }, openSome));
  const broken = Promise.race(shells.map((shell) => shell.ended)).then((): never => {
    throw new Error('a shell has ended');
  });
  broken.catch(() => {});
  await Promise.race([prompts.promise, broken]);
  return { shells, broken };
}

async function endShells(shells: readonly Session[]): Promise<void> {
  for (const shell of shells) {
    shell.ended.catch(() => {});
    shell.type(Uint8Array.of(EOT));
  }
  await Promise.all(shells.map((shell) => shell.ended));
  for (const { socket } of shells) socket.destroy();
}

async function echo(
  target: Target,
  transport: Transport,
  { keys, pauseMs }: Extract<ExecWork, { readonly kind: 'echo' }>,
): Promise<Measured> {
  const latencies: number[] = [];
  let waiting = Promise.withResolvers<number>();
  const session = await start(target, transport, ['bench', 'shell'], true, (chunk) =>
    waiting.resolve(chunk[0] ?? 0),
  );
  const gone = session.ended.then((code) => {
    throw new Error(`the shell has ended with ${code}`);
  });
  gone.catch(() => {});
  await Promise.race([waiting.promise, gone]);
  const startedAt = performance.now();
  for (let key = 0; key < keys; key += 1) {
    if (pauseMs > 0) await sleep(pauseMs);
    waiting = Promise.withResolvers();
    const letter = 0x61 + (key % 26);
    const pressedAt = performance.now();
    session.type(Uint8Array.of(letter));
    const back = await Promise.race([waiting.promise, gone]);
    latencies.push(performance.now() - pressedAt);
    if (back !== letter) throw new Error('another letter came back');
  }
  const seconds = (performance.now() - startedAt) / 1000;
  session.type(Uint8Array.of(EOT));
  await finished(session);
  return { units: keys, seconds, ...percentiles(latencies) };
}

/** Ctrl-D. */
const EOT = 4;

async function finished(session: Session): Promise<void> {
  const code = await session.ended;
  session.socket.destroy();
  if (code !== 0) throw new Error(`exit code ${code}`);
}

async function start(
  target: Target,
  transport: Transport,
  command: readonly string[],
  tty: boolean,
  onOutput: (chunk: Uint8Array) => void,
): Promise<Session> {
  const socket = await open(target, 'http/1.1');
  const query = command.map((word) => `command=${encodeURIComponent(word)}`).join('&');
  const path = `/api/v1/namespaces/default/pods/shell/exec?${query}&container=main&stdin=true&stdout=true&stderr=${!tty}&tty=${tty}`;
  const first = await upgrade(socket, transport, path, target.token);
  return transport === 'spdy'
    ? speakSpdy(socket, first, tty, onOutput)
    : speakWebSocket(socket, first, onOutput);
}

/** Sends the upgrade request. Resolves with the bytes after the headers of the 101 response. */
function upgrade(
  socket: Socket,
  transport: Transport,
  path: string,
  token: string | undefined,
): Promise<Buffer> {
  const credential = token === undefined ? '' : `Authorization: Bearer ${token}\r\n`;
  const common =
    `${path} HTTP/1.1\r\nHost: localhost\r\n${credential}User-Agent: kubectl/v1.33.0 (linux/amd64) ` +
    'kubernetes/bench\r\n';
  socket.write(
    transport === 'spdy'
      ? `POST ${common}Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: ` +
          'SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n'
      : `GET ${common}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: ` +
          '13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n',
  );
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    const onClose = (): void => reject(new Error(`closed before an answer: ${head.toString('latin1')}`));
    const onData = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf('\r\n\r\n');
      if (end === -1) return;
      socket.off('data', onData);
      socket.off('close', onClose);
      socket.pause();
      const text = head.toString('latin1', 0, end);
      if (text.startsWith('HTTP/1.1 101 ')) resolve(head.subarray(end + 4));
      else reject(new Error(head.toString('latin1').slice(0, 500)));
    };
    socket.on('data', onData);
    socket.once('close', onClose);
  });
}

function speakSpdy(
  socket: Socket,
  first: Buffer,
  tty: boolean,
  onOutput: (chunk: Uint8Array) => void,
): Session {
  const ended = Promise.withResolvers<number>();
  const parser = createSpdyParser();
  const status: Uint8Array[] = [];
  const deflater = createHeaderDeflater();
  const roles = ['error', 'stdin', 'stdout', tty ? 'resize' : 'stderr'] as const;
  let asked = 0;
  const type = (streamId: number, payload: Uint8Array): void =>
    void socket.write(encodeSpdyFrame({ kind: 'data', streamId, fin: false, payload }));
  // opens streams sequentially, each after the reply to the previous one, like kubectl
  const askNext = (): void => {
    const role = roles[asked];
    asked += 1;
    if (role === undefined) {
      if (asked === roles.length + 1 && tty) type(SPDY_IDS.resize, encodeResize(SIZE));
      return;
    }
    socket.write(
      encodeSpdyFrame({
        kind: 'synStream',
        streamId: SPDY_IDS[role],
        associatedTo: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        block: deflater.encode([['streamtype', role]]),
      }),
    );
  };
  const see = (chunk: Buffer): void => {
    for (const event of parser.push(chunk)) {
      if (event.kind === 'synReply') askNext();
      // even ids are pings of a server; every client must reply to them
      if (event.kind === 'ping' && event.id % 2 === 0)
        socket.write(encodeSpdyFrame({ kind: 'ping', id: event.id }));
      if (event.kind === 'rstStream' && event.streamId === SPDY_IDS.error) ended.resolve(exitCode(status));
      if (event.kind !== 'data') continue;
      if (event.streamId === SPDY_IDS.stdout) {
        if (event.payload.length > 0) onOutput(event.payload);
      } else if (event.streamId === SPDY_IDS.error) {
        status.push(event.payload.slice());
        if (event.fin) ended.resolve(exitCode(status));
      }
    }
  };
  listen(socket, first, see, ended);
  askNext();
  return { socket, ended: ended.promise, type: (bytes) => type(SPDY_IDS.stdin, bytes) };
}

function speakWebSocket(socket: Socket, first: Buffer, onOutput: (chunk: Uint8Array) => void): Session {
  const ended = Promise.withResolvers<number>();
  const scanner = createWebSocketScanner({ expectMask: false });
  const status: Uint8Array[] = [];
  let channel = -1;
  let asked: Uint8Array[] = [];
  const answer = ({ opcode, bytes, last }: WebSocketPiece): void => {
    if (opcode !== OPCODE.ping) return;
    asked.push(bytes.slice());
    if (!last) return;
    const payload = Buffer.concat(asked);
    asked = [];
    socket.write(encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload, mask: MASK }));
  };
  const see = (chunk: Buffer): void => {
    for (const piece of scanner.push(chunk)) {
      if (piece.opcode >= OPCODE.close) {
        answer(piece);
        continue;
      }
      let { bytes } = piece;
      if (piece.first && bytes.length > 0) {
        channel = bytes[0] ?? -1;
        bytes = bytes.subarray(1);
      }
      if (channel === CHANNEL.stdout && bytes.length > 0) onOutput(bytes);
      if (channel === CHANNEL.error) {
        status.push(bytes.slice());
        if (piece.last && piece.fin) ended.resolve(exitCode(status));
      }
    }
  };
  listen(socket, first, see, ended);
  const send = (channelId: number, data: Uint8Array): void => {
    const payload = Buffer.concat([Uint8Array.of(channelId), data]);
    socket.write(encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload, mask: MASK }));
  };
  send(CHANNEL.resize, encodeResize(SIZE));
  return { socket, ended: ended.promise, type: (bytes) => send(CHANNEL.stdin, bytes) };
}

function listen(
  socket: Socket,
  first: Buffer,
  see: (chunk: Buffer) => void,
  ended: PromiseWithResolvers<number>,
): void {
  const take = (chunk: Buffer): void => {
    try {
      see(chunk);
    } catch (error) {
      ended.reject(error);
      socket.destroy();
    }
  };
  socket.on('data', take);
  socket.on('error', ended.reject);
  socket.once('close', () => ended.reject(new Error('the session was closed without a status')));
  if (first.length > 0) take(first);
  socket.resume();
}

function exitCode(status: readonly Uint8Array[]): number {
  const exit = parseExitStatus(Buffer.concat(status), 4);
  if (exit.kind === 'success') return 0;
  if (exit.kind === 'exit') return exit.code;
  throw new Error(exit.message);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}
