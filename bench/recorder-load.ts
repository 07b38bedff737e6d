/**
 * Sessions that upload with the protocol of Tailscale's API-server proxy (*the reference*), in a separate process:
 * `node recorder-load.ts <json>`. Prints one JSON line.
 *
 * `flood`: every session sends at full speed for a fixed time and then stops. `idle`: every session sends one short
 * line per second and measures the time to its acknowledgement.
 */
import { connect, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { setTimeout as delay } from 'node:timers/promises';
import { createAckParser } from '../src/wire/recorder-api/ack.ts';

export interface RecorderLoad {
  readonly url: string;
  readonly mode: 'flood' | 'idle';
  readonly sessions: number;
  readonly seconds: number;
}

export interface RecorderLoadResult {
  /** Number of acknowledged (durable) bytes at the end of the measured time, and the duration of the measurement. */
  readonly bytes: number;
  readonly seconds: number;
  /** Number of bytes of all sessions, and the time until the last session was stored. */
  readonly storedBytes: number;
  readonly storedSeconds: number;
  /** Time between sending a line and its acknowledgement; 0 for a flood. */
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const plan = JSON.parse(process.argv[2] ?? '{}') as RecorderLoad;
const headerOf = (session: number): string =>
  `{"version":2,"width":80,"height":24,"timestamp":1785325858,"command":"bench ${session}","srcNode":"n","srcNodeID":"n"}\n`;

/** Terminal output like that of a busy build: coloured lines of a few hundred bytes. */
const CHUNK = Buffer.from(
  Array.from({ length: 256 }, (_, index) => {
    const words = `\u001b[32m${index}\u001b[0m compiling module/${index * 7919}/file.ts `.repeat(
      1 + (index % 7),
    );
    return `[${(index / 100).toFixed(3)},"o",${JSON.stringify(`${words}\r\n`)}]\n`;
  }).join(''),
);
const LINE = '[1.5,"o","$ "]\n';

interface Session {
  readonly http: ClientHttp2Session;
  readonly stream: ClientHttp2Stream;
  sent: number;
  acked: number;
  onAck: () => void;
  readonly over: Promise<void>;
}

function open(index: number): Session {
  const http = connect(plan.url);
  const stream = http.request({ ':method': 'POST', ':path': '/v2/record' });
  const parser = createAckParser();
  const over = new Promise<void>((resolve, reject) => {
    stream.once('close', resolve);
    stream.once('error', reject);
  });
  const header = headerOf(index);
  const session: Session = { http, stream, sent: header.length, acked: 0, onAck: () => undefined, over };
  stream.on('data', (chunk: Buffer) => {
    for (const { ack, error } of parser.push(chunk)) {
      if (error !== undefined) throw new Error(error);
      session.acked = ack;
    }
    session.onAck();
  });
  stream.write(header);
  return session;
}

async function flood(session: Session, until: number): Promise<void> {
  while (performance.now() < until) {
    session.sent += CHUNK.length;
    if (!session.stream.write(CHUNK)) await new Promise((resolve) => session.stream.once('drain', resolve));
  }
}

async function idle(session: Session, until: number, latencies: number[]): Promise<void> {
  await delay(Math.random() * 1000);
  while (performance.now() < until) {
    session.sent += LINE.length;
    const wanted = session.sent;
    const at = performance.now();
    const acked = new Promise<void>((resolve) => {
      session.onAck = () => {
        if (session.acked >= wanted) resolve();
      };
    });
    session.stream.write(LINE);
    await acked;
    latencies.push(performance.now() - at);
    await delay(1000);
  }
}

async function end(session: Session): Promise<void> {
  session.stream.end();
  await session.over;
  if (session.acked !== session.sent)
    throw new Error(`${session.acked} of ${session.sent} bytes acknowledged`);
  session.http.close();
}

const total = (sessions: readonly Session[], of: (session: Session) => number): number =>
  sessions.reduce((sum, session) => sum + of(session), 0);

const sessions = Array.from({ length: plan.sessions }, (_, index) => open(index));
await Promise.all(
  sessions.map(
    (session) =>
      new Promise<void>((resolve) => {
        session.onAck = () => {
          if (session.acked > 0) resolve();
        };
      }),
  ),
);
const latencies: number[] = [];
const before = total(sessions, ({ acked }) => acked);
const startedAt = performance.now();
const until = startedAt + plan.seconds * 1000;
const running = Promise.all(
  sessions.map((session) =>
    plan.mode === 'flood' ? flood(session, until) : idle(session, until, latencies),
  ),
);
await delay(plan.seconds * 1000);
const bytes = total(sessions, ({ acked }) => acked) - before;
const seconds = (performance.now() - startedAt) / 1000;
await running;
await Promise.all(sessions.map(end));
latencies.sort((left, right) => left - right);
const result: RecorderLoadResult = {
  bytes,
  seconds,
  storedBytes: total(sessions, ({ sent }) => sent),
  storedSeconds: (performance.now() - startedAt) / 1000,
  p50Ms: latencies[Math.floor(latencies.length * 0.5)] ?? 0,
  p99Ms: latencies[Math.floor(latencies.length * 0.99)] ?? 0,
};
process.stdout.write(`${JSON.stringify(result)}\n`);
