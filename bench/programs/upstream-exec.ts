/** Programs with known output, which the benchmark's API server runs. */
import type { TLSSocket } from 'node:tls';
import { BLOCK_BYTES, createBlock, type Content } from './content.ts';
import { LINES_BLOCK, LINE_BYTES, PROMPT } from './exec-content.ts';
import { serveSession, type Session } from './exec-session.ts';

/** Maximum size of one read from a container, and of one frame. Kubernetes servers use the same size. */
const FRAME_BYTES = 32 * 1024;

/** Accepts the upgrade and runs the command. `rest` contains the bytes after the headers of the request. */
export function serveExec(socket: TLSSocket, head: string, rest: Buffer): void {
  const [line = ''] = head.split('\r\n');
  const query = new URLSearchParams(line.slice(line.indexOf('?') + 1, line.lastIndexOf(' ')));
  const [, program = '', ...args] = query.getAll('command');
  const webSocketKey = /\r\nsec-websocket-key: ([^\r]+)/i.exec(head)?.[1] ?? '';
  serveSession(socket, { webSocketKey, rest }, (session) => run(session, program, args));
}

function run(session: Session, program: string, args: readonly string[]): void {
  switch (program) {
    case 'cat':
      return send(session, blockFrames(session, args[0] as Content), Number(args[1]) / FRAME_BYTES);
    case 'lines':
      return send(session, lineFrames(session), Number(args[0]));
    default:
      return shell(session);
  }
}

const blocks = new Map<string, Buffer>();

function blockFrames(session: Session, content: Content): readonly Uint8Array[] {
  const block = blocks.get(content) ?? createBlock(content);
  blocks.set(content, block);
  return Array.from({ length: BLOCK_BYTES / FRAME_BYTES }, (_, index) =>
    session.frame(block.subarray(index * FRAME_BYTES, (index + 1) * FRAME_BYTES)),
  );
}

function lineFrames(session: Session): readonly Uint8Array[] {
  return Array.from({ length: LINES_BLOCK.length / LINE_BYTES }, (_, index) =>
    session.frame(LINES_BLOCK.subarray(index * LINE_BYTES, (index + 1) * LINE_BYTES)),
  );
}

/** Writes at full speed, one frame at a time, as a Kubernetes server does. */
function send(session: Session, frames: readonly Uint8Array[], count: number): void {
  const { socket } = session;
  let sent = 0;
  const more = (): void => {
    while (sent < count) {
      const frame = frames[sent % frames.length] ?? new Uint8Array(0);
      sent += 1;
      if (!socket.write(frame)) return;
    }
    socket.off('drain', more);
    session.exit(0);
  };
  socket.on('drain', more);
  more();
}

/** Prints a prompt and echoes input until Ctrl-D. */
function shell(session: Session): void {
  session.onInput = (bytes) => {
    if (bytes.includes(4)) session.exit(0);
    else session.socket.write(session.frame(bytes));
  };
  session.socket.write(session.frame(PROMPT));
}
