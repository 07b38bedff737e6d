import { once } from 'node:events';
import { PassThrough, Transform, Writable, type TransformCallback } from 'node:stream';
import type { TerminalSize } from '../src/wire/remotecommand/resize.ts';
import { createLineDiscipline } from './line-discipline.ts';
import { createOutput } from './output.ts';
import { startOnPipes, type ProcessPlan, type RunningProcess } from './process.ts';
import { loadPty, type StartInTerminal } from './pty.ts';

/** Starts programs with the best kind of terminal that this machine supports. */
export interface Terminals {
  /** A sentence about the kind of terminal, for the user of the demo. */
  readonly description: string;
  readonly start: StartInTerminal;
}

/** Terminal size until the client sends one. */
export const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

/**
 * Opens terminals with the optional package from `load`. Without the package, programs run on pipes with a minimal
 * line discipline, and `description` informs the user about this.
 */
export async function openTerminals(load: () => Promise<unknown>): Promise<Terminals> {
  if (process.platform === 'win32') return pipeTerminals('pseudo-terminals are not supported on Windows');
  const loaded = await loadPty(load);
  if ('reason' in loaded) return pipeTerminals(loaded.reason);
  return { description: 'shells run in a real pseudo-terminal', start: loaded.start };
}

function pipeTerminals(reason: string): Terminals {
  return {
    description: `shells run on pipes, without job control or full-screen programs (no pseudo-terminal: ${reason})`,
    start: startOnLineDiscipline,
  };
}

const INTERACTIVE_SHELLS = /\/(sh|bash|dash|ash|zsh|ksh)$/;

/**
 * Returns the arguments for an interactive shell. In Bash, they disable line editing, because the line discipline
 * already echoes input.
 */
function interactive(program: string): readonly string[] {
  return program.endsWith('/bash') ? ['--noediting', '-i'] : ['-i'];
}

function startOnLineDiscipline(plan: ProcessPlan): RunningProcess {
  const bare = plan.argv.length === 1 && INTERACTIVE_SHELLS.test(plan.program);
  const inner = startOnPipes(bare ? { ...plan, argv: [...plan.argv, ...interactive(plan.program)] } : plan);
  const discipline = createLineDiscipline();
  const screen = new PassThrough();
  const print = (chunk: Uint8Array, _encoding: BufferEncoding, done: TransformCallback): void => {
    done(null, discipline.printed(chunk));
  };
  const printers = [inner.stdout, inner.stderr].flatMap((output) => {
    if (output === undefined) return [];
    const printer = new Transform({ transform: print });
    printer.pipe(screen, { end: false });
    output.subscribe(printer);
    return [printer];
  });
  const stdout = createOutput(screen);
  const keyboard = new Writable({
    write(chunk: Uint8Array, _encoding, done) {
      const { deliver, echo, interrupt, end } = discipline.typed(chunk);
      if (!screen.writableEnded) screen.write(echo);
      if (interrupt) inner.kill('SIGINT');
      const { stdin } = inner;
      if (stdin === undefined || stdin.destroyed || stdin.writableEnded) done();
      else if (end) stdin.end(deliver, () => done());
      else stdin.write(deliver, () => done());
    },
    final(done) {
      inner.stdin?.end();
      done();
    },
  });
  const exited = inner.exited.then(async (result) => {
    await Promise.all(printers.map((printer) => once(printer.end(), 'end')));
    screen.end();
    await stdout.done;
    keyboard.destroy();
    return result;
  });
  return {
    pid: inner.pid,
    stdin: keyboard,
    stdout,
    stderr: undefined,
    resize: () => undefined,
    kill: (signal) => {
      inner.kill(signal);
    },
    exited,
  };
}
