/**
 * One interactive session through the gateway, so that the player has a recording. The session behaves like a user: it
 * types into a shell, and waits until the screen shows the result.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { TailcastError } from '../src/errors.ts';
import { createWebSocketScanner, encodeWebSocketFrame, OPCODE } from '../src/wire/websocket/frame.ts';
import { CHANNEL } from '../src/wire/remotecommand/channel.ts';

interface Typing {
  /** Pause before the text is typed, in milliseconds. */
  readonly restMs: number;
  readonly text: string;
}

/** Escape sequence that an editor sends to switch to the alternate screen. */
const FULL_SCREEN = '\x1b[?1049h';
const EDITOR_MS = 2000;
/**
 * Input that starts the editor, if it is installed. Text in the editor disappears from the screen, but the search
 * still finds it.
 */
const EDITOR: Typing = { restMs: 600, text: 'vi notes.txt\r' };
const IN_EDITOR: readonly Typing[] = [
  { restMs: 400, text: 'iThe cormorant rollout waits for Monday.' },
  { restMs: 900, text: '\x1b' },
  { restMs: 400, text: ':wq\r' },
];
const BEFORE: readonly Typing[] = [
  { restMs: 500, text: 'uname -sr\r' },
  { restMs: 600, text: 'head -n 4 /etc/os-release; date -u\r' },
];
const AFTER: readonly Typing[] = [
  { restMs: 700, text: 'printf "\\033[32m%s\\033[0m\\n" "every byte of this shell was recorded"\r' },
  { restMs: 700, text: 'exit\r' },
];
const KEY_MS = 25;
const SESSION_LIMIT_MS = 20_000;
const MAX_RESPONSE_HEAD_BYTES = 64 * 1024;
const MAX_SEEN = 64 * 1024;

export interface SampleTarget {
  readonly host: string;
  readonly port: number;
  readonly caPem: string;
  /** Bearer token of the gateway. */
  readonly token: string;
  /** Prefix of the API path. Empty if the gateway serves only one cluster. */
  readonly basePath: string;
  readonly namespace: string;
  readonly pod: string;
}

/**
 * Runs the session, and resolves when it has ended.
 *
 * @throws TailcastError `UPSTREAM_BROKEN` if the gateway does not respond with 101
 */
export async function recordSampleSession(target: SampleTarget, signal: AbortSignal): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(SESSION_LIMIT_MS)]);
  const socket = connect({
    host: target.host,
    port: target.port,
    ca: target.caPem,
    ALPNProtocols: ['http/1.1'],
  });
  const destroy = (): void => void socket.destroy();
  limit.addEventListener('abort', destroy, { once: true });
  try {
    await once(socket, 'secureConnect');
    const editor = Promise.withResolvers<boolean>();
    await upgrade(socket, target, () => editor.resolve(true));
    const ended = once(socket, 'close');
    socket.resume();
    sendFrame(socket, CHANNEL.resize, '{"Width":100,"Height":28}');
    await type(socket, BEFORE.concat(EDITOR), limit);
    const timer = setTimeout(() => editor.resolve(false), EDITOR_MS);
    if (await editor.promise) await type(socket, IN_EDITOR, limit);
    clearTimeout(timer);
    await type(socket, AFTER, limit);
    await ended;
  } finally {
    limit.removeEventListener('abort', destroy);
    socket.destroy();
  }
}

async function upgrade(
  socket: TLSSocket,
  { host, port, token, basePath, namespace, pod }: SampleTarget,
  onEditor: () => void,
): Promise<void> {
  const query = 'command=sh&stdin=true&stdout=true&tty=true';
  socket.write(
    [
      `GET ${basePath}/api/v1/namespaces/${namespace}/pods/${pod}/exec?${query} HTTP/1.1`,
      `Host: ${host}:${port}`,
      `Authorization: Bearer ${token}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      `Sec-WebSocket-Key: ${randomBytes(16).toString('base64')}`,
      'Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io',
      'User-Agent: tailcast-demo',
      '',
      '',
    ].join('\r\n'),
  );
  let head = Buffer.alloc(0);
  while (!head.includes('\r\n\r\n')) {
    const arrived: readonly unknown[] = await once(socket, 'data');
    const [chunk] = arrived;
    if (!Buffer.isBuffer(chunk) || head.length > MAX_RESPONSE_HEAD_BYTES) break;
    head = Buffer.concat([head, chunk]);
  }
  const statusLine = head.toString('latin1').split('\r\n', 1)[0] ?? '';
  if (!statusLine.startsWith('HTTP/1.1 101 ')) {
    throw new TailcastError('UPSTREAM_BROKEN', `the sample session was answered with ${statusLine}`);
  }
  watch(socket, head.subarray(head.indexOf('\r\n\r\n') + 4), onEditor);
}

/**
 * Calls `onEditor` when an editor appears on the screen. Responds to the close frame, so that the session ends
 * cleanly.
 */
function watch(socket: TLSSocket, head: Buffer, onEditor: () => void): void {
  const scanner = createWebSocketScanner({ expectMask: false });
  let seen = '';
  const read = (chunk: Buffer): void => {
    for (const piece of scanner.push(chunk)) {
      seen = (seen + Buffer.from(piece.bytes).toString('latin1')).slice(-MAX_SEEN);
      if (seen.includes(FULL_SCREEN)) onEditor();
      if (piece.opcode === OPCODE.close && piece.last) {
        socket.end(
          encodeWebSocketFrame({
            opcode: OPCODE.close,
            fin: true,
            payload: Buffer.from([3, 232]),
            mask: randomBytes(4),
          }),
        );
      }
    }
  };
  socket.on('data', read);
  if (head.length > 0) read(head);
}

async function type(socket: TLSSocket, script: readonly Typing[], signal: AbortSignal): Promise<void> {
  for (const { restMs, text } of script) {
    await sleep(restMs, undefined, { signal });
    for (const key of text) {
      sendFrame(socket, CHANNEL.stdin, key);
      await sleep(KEY_MS, undefined, { signal });
    }
  }
}

function sendFrame(socket: TLSSocket, channel: number, text: string): void {
  if (!socket.writable) return;
  const payload = Buffer.concat([Buffer.from([channel]), Buffer.from(text)]);
  socket.write(encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload, mask: randomBytes(4) }));
}
