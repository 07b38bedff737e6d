/** Simulates a user of a shell in a pod: opens an exec over WebSocket, types key by key, and waits for output. */
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import WebSocket from 'ws';

const STDIN = 0;
const RESIZE = 4;
const EXPECT_MS = 15_000;

export interface ShellTarget {
  readonly url: string;
  readonly ca: string;
  readonly namespace: string;
  readonly pod: string;
  readonly command: readonly string[];
  readonly columns: number;
  readonly rows: number;
  /** Pause between two keystrokes. */
  readonly keyMs?: number;
}

export interface ShellSession {
  /** Types at human speed; resolves when the last keystroke is sent. */
  type(text: string): Promise<void>;
  resize(columns: number, rows: number): void;
  /** Resolves when `wanted` appears after the previous match. */
  expect(wanted: string): Promise<void>;
  /** Resolves when the session has ended. */
  readonly ended: Promise<void>;
}

export async function openShell(target: ShellTarget): Promise<ShellSession> {
  const { url, ca, namespace, pod, command, columns, rows, keyMs = 0 } = target;
  const query = new URLSearchParams([
    ...command.map((word) => ['command', word]),
    ['stdin', 'true'],
    ['stdout', 'true'],
    ['tty', 'true'],
  ]);
  const address = `${url.replace('https', 'wss')}/api/v1/namespaces/${namespace}/pods/${pod}/exec?${query.toString()}`;
  const socket = new WebSocket(address, ['v5.channel.k8s.io'], { ca });
  const screen = watchScreen(socket);
  const ended = once(socket, 'close').then(() => undefined);
  await once(socket, 'open');
  const send = (channel: number, text: string): void =>
    socket.send(Buffer.concat([Buffer.of(channel), Buffer.from(text)]));
  const resize = (width: number, height: number): void =>
    send(RESIZE, JSON.stringify({ Width: width, Height: height }));
  resize(columns, rows);
  return {
    async type(text) {
      for (const key of text) {
        send(STDIN, key);
        if (keyMs > 0) await delay(keyMs);
      }
    },
    resize,
    expect: screen.expect,
    ended,
  };
}

function watchScreen(socket: WebSocket): { expect(wanted: string): Promise<void> } {
  let text = '';
  let position = 0;
  socket.on('message', (data: Buffer) => {
    if (data[0] === 1 || data[0] === 2) text += data.subarray(1).toString();
  });
  return {
    async expect(wanted) {
      const limit = AbortSignal.timeout(EXPECT_MS);
      for (;;) {
        const found = text.indexOf(wanted, position);
        if (found >= 0) {
          position = found + wanted.length;
          return;
        }
        if (socket.readyState !== WebSocket.OPEN || limit.aborted)
          throw new Error(`"${wanted}" did not appear:\n${text}`);
        await delay(10);
      }
    },
  };
}
