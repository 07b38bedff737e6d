/** Port forwarding: several large bodies at the same time, half-closed connections, and a port without a listener. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Server, type Socket, connect, createServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { startKubectl } from '../rig/kubectl.ts';
import type { CaseContext, KubectlCase } from './case.ts';
import { listenOn } from '../../support/listen.ts';

const BODY_BYTES = 8 * 1024 * 1024;
const PARALLEL = 5;

export const PORT_FORWARD_CASES: readonly KubectlCase[] = [
  { name: 'port-forward', streams: 'port-forward', run: forward },
];

async function forward(context: CaseContext): Promise<Record<string, unknown>> {
  const body = randomBytes(BODY_BYTES);
  // The test double of the kubelet forwards each port of a pod to the same port of this machine.
  const sender = await listen((socket) => socket.end(body));
  const digester = await listen(answerWithDigest);
  const child = startKubectl(
    context.kubectl,
    [
      'port-forward',
      `pod/${context.pod}`,
      '--address=127.0.0.1',
      `:${portOf(sender)}`,
      `:${portOf(digester)}`,
    ],
    context,
  );
  try {
    const [toSender = 0, toDigester = 0] = await localPorts(child, 2);
    const downloads = Array.from({ length: PARALLEL }, async () => sha256(await download(toSender)));
    const parallel = await Promise.all(downloads);
    const digest = await sendAndHalfClose(toDigester, body);
    return {
      parallel: parallel.map((value) => value === sha256(body)),
      halfClose: digest === sha256(body),
    };
  } finally {
    child.kill('SIGKILL');
    sender.close();
    digester.close();
  }
}

/** Responds after the peer has closed its direction. `for await` would close both directions of the socket. */
function answerWithDigest(socket: Socket): void {
  const hash = createHash('sha256');
  socket.on('data', (chunk: Buffer) => hash.update(chunk));
  socket.on('end', () => socket.end(hash.digest('hex')));
}

async function listen(serve: (socket: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    serve(socket);
  });
  await listenOn(server);
  return server;
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the server listens on no port');
  return address.port;
}

async function localPorts(child: ReturnType<typeof startKubectl>, count: number): Promise<number[]> {
  let output = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
  });
  for (;;) {
    const ports = [...output.matchAll(/Forwarding from 127\.0\.0\.1:(\d+)/g)].map((match) =>
      Number(match[1]),
    );
    if (ports.length >= count) return ports;
    if (child.exitCode !== null) throw new Error(`port-forward ended: ${output}`);
    await once(child.stdout ?? child, 'data', { signal: AbortSignal.timeout(20_000) });
  }
}

async function download(port: number): Promise<Buffer> {
  const socket = connect(port, '127.0.0.1');
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

async function sendAndHalfClose(port: number, body: Buffer): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.end(body);
  return text(socket);
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
