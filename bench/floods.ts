/**
 * Many programs write at full speed to slow clients. The benchmark checks that pending output stays within the total
 * limits.
 *
 *   node bench/floods.ts [--sessions 300] [--seconds 60]
 *
 * The sessions use the relay and the taps of a gateway with default settings, in a separate process. Exit code: 0 if
 * all limits hold and all memory is released in the end, 1 otherwise.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { BUFFER_SETTINGS, createElasticBuffers } from '../src/proxy/session/elastic-buffers.ts';
import { startRelay } from '../src/proxy/session/relay.ts';
import { createUnrecordedSessionTap } from '../src/recording/tap-unrecorded.ts';
import { encodeWebSocketFrame, OPCODE } from '../src/wire/websocket/frame.ts';

interface Plan {
  readonly sessions: number;
  readonly upstreamPort: number;
  readonly clientPort: number;
}

interface Sample {
  readonly rss: number;
  readonly memory: number;
  readonly disk: number;
}

const MIB = 1024 ** 2;
const READ_BYTES = 4 * 1024;
const READ_EVERY_MS = 100;
/** Maximum time until the process detects disconnected clients. */
const SETTLE_S = 20;
/**
 * Allowed excess over the limits: bytes that were read before a limit was reached, and bytes on the way to or from a
 * file.
 */
const SLACK_BYTES = 256 * 1024;

if (process.send === undefined) process.exitCode = await main();
else process.once('message', (plan: Plan) => void relay(plan));

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      sessions: { type: 'string', default: '300' },
      seconds: { type: 'string', default: '60' },
    },
  });
  const sessions = Number(values.sessions);
  const upstream = createServer(flood);
  const clients = new Set<Socket>();
  const client = createServer((socket) => {
    clients.add(socket);
    void readSlowly(socket);
  });
  const plan: Plan = { sessions, upstreamPort: await listen(upstream), clientPort: await listen(client) };
  const gateway = fork(fileURLToPath(import.meta.url));
  const samples: Sample[] = [];
  gateway.on('message', (sample: Sample) => {
    samples.push(sample);
    const { rss, memory, disk } = sample;
    process.stdout.write(
      `${inMiB(rss)} MiB RSS, waiting: ${inMiB(memory)} in memory, ${inMiB(disk)} on disk\n`,
    );
  });
  gateway.send(plan);
  await delay(Number(values.seconds) * 1000);
  for (const socket of clients) socket.destroy();
  for (let left = SETTLE_S; left > 0 && !isEmpty(samples.at(-1)); left -= 1) await delay(1000);
  gateway.kill();
  upstream.close();
  client.close();
  return judge(samples, sessions);
}

function isEmpty(sample: Sample | undefined): boolean {
  return sample !== undefined && sample.memory === 0 && sample.disk === 0;
}

function judge(samples: readonly Sample[], sessions: number): number {
  const most = (of: (sample: Sample) => number): number => Math.max(...samples.map(of));
  const { totalMemoryBytes, totalDiskBytes } = BUFFER_SETTINGS;
  const last = samples.at(-1);
  const faults = [
    most(({ memory }) => memory) > totalMemoryBytes + sessions * SLACK_BYTES && 'too much in memory',
    most(({ disk }) => disk) > totalDiskBytes && 'too much on disk',
    most(({ memory }) => memory) < totalMemoryBytes / 4 && 'there was no flood',
    !isEmpty(last) && 'not everything was given back',
  ].filter((fault) => fault !== false);
  process.stdout.write(`most: ${inMiB(most(({ rss }) => rss))} MiB RSS\n`);
  for (const fault of faults) process.stdout.write(`FAULT ${fault}\n`);
  return faults.length > 0 ? 1 : 0;
}

/** Writes the standard output of a program forever. */
function flood(socket: Socket): void {
  const payload = Buffer.alloc(32 * 1024 + 1, 'x');
  payload[0] = 1;
  const frame = encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload });
  socket.on('error', () => {});
  const write = (): void => {
    while (!socket.destroyed && socket.write(frame));
  };
  socket.on('drain', write);
  write();
}

async function readSlowly(socket: Socket): Promise<void> {
  socket.on('error', () => {});
  socket.pause();
  while (!socket.destroyed) {
    socket.read(READ_BYTES);
    await delay(READ_EVERY_MS);
  }
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** The process under test. */
async function relay({ sessions, upstreamPort, clientPort }: Plan): Promise<void> {
  const buffers = createElasticBuffers({ ...BUFFER_SETTINGS, directory: tmpdir() });
  const { budget } = buffers;
  setInterval(() => {
    const { rss } = process.memoryUsage();
    process.send?.({ rss, memory: budget.memoryBytes, disk: budget.diskBytes } satisfies Sample);
  }, 1000);
  const ends = await Promise.all(
    Array.from({ length: sessions }, async () => {
      const client = connect(clientPort, '127.0.0.1').pause();
      const upstream = connect(upstreamPort, '127.0.0.1').pause();
      await Promise.all([once(client, 'connect'), once(upstream, 'connect')]);
      return { client, upstream };
    }),
  );
  for (const { client, upstream } of ends) {
    const tap = createUnrecordedSessionTap('websocket', 'v5.channel.k8s.io');
    const none = new Uint8Array(0);
    startRelay({
      client,
      upstream,
      clientHead: none,
      upstreamHead: none,
      ...(tap === undefined ? {} : { tap }),
      openBuffer: (events) => buffers.open('deep', events),
      lingerMs: 500,
      signal: new AbortController().signal,
    });
  }
}

function inMiB(bytes: number): string {
  return (bytes / MIB).toFixed(0);
}
